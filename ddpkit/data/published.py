"""Numbers published by other authors, each with its unit and its source.

A lesson prints the numbers from here. ``checked`` names the place where a number was read. Numbers
that could not be read again are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

DDP_PAPER = (
    "S. Li and others: PyTorch Distributed: Experiences on Accelerating Data Parallel Training. "
    "VLDB 13(12), 2020, arXiv 2006.15704"
)
HETSEQ = (
    "Y. Ding, N. Botzer, T. Weninger: HetSeq. IAAI 2021, arXiv 2009.14783; table of the README of "
    "yifding/hetseq (MIT)"
)
CM_DARE = (
    "S. Li, R. Walls, T. Guo: Characterizing and Modeling Distributed Training with Transient "
    "Cloud GPU Servers. ICDCS 2020, arXiv 2004.03072; data of cake-lab/CM-DARE (Apache-2.0)"
)
BUCKET_LOG = "pytorch/pytorch issue 48880 (2020-12-05): a user's log of NCCL's all-reduces"


@dataclass(frozen=True, slots=True)
class Published:
    """One number of a paper or a log."""

    value: float
    unit: str
    what: str
    source: str
    checked: str  # place and date of the reading


_SENTENCE = "the paper's sentence, quoted in a public book's source, 2026-11-22"
_NOTES = "public notes on the paper, 2026-11-22"

# (model, backend) -> speed-up by overlap on 32 GPUs. The paper does not define its "speedup": 38 %
# may mean 38 % less time, or 1.38 times the speed.
OVERLAP = {
    (model, backend): Published(percent, "%", "speed-up by overlap", DDP_PAPER, _SENTENCE)
    for model, backend, percent in (
        ("ResNet-50", "NCCL", 38.0),
        ("BERT", "NCCL", 35.2),
        ("ResNet-50", "gloo", 26.8),
        ("BERT", "gloo", 21.5),
    )
}
# (model, backend) -> the time of a step on 256 GPUs, divided by the time on one GPU
SLOWER_AT_256 = {
    (model, backend): Published(times, "x", "step on 256 GPUs ÷ on one", DDP_PAPER, _NOTES)
    for model, backend, times in (
        ("ResNet-50", "NCCL", 2.0),
        ("ResNet-50", "gloo", 3.0),
        ("BERT", "gloo", 6.0),
    )
}
# The time saved by synchronizing only at every 8th step, for ResNet-50 on 256 GPUs.
SKIPPING_8 = Published(38.0, "%", "less time, NCCL, every 8th step", DDP_PAPER, _NOTES)


@dataclass(frozen=True, slots=True)
class HetSeqRow:
    """A row of HetSeq's table: BERT, 5 epochs, nodes of 4 GPUs."""

    nodes: int
    batch: int
    steps: int
    step_s: float
    days: float  # copied from the table
    loss: float
    expansion: float  # speed-up ÷ nodes, copied from the table
    speed_up: float  # copied from the table


# Read in the README, 2026-11-22.
HETSEQ_ROWS = (
    HetSeqRow(1, 128, 267_139, 2.60, 7.19, 0.026, 1.0, 1.0),
    HetSeqRow(2, 256, 133_570, 2.69, 4.19, 0.028, 0.86, 1.72),
    HetSeqRow(4, 512, 66_785, 2.794, 2.23, 0.031, 0.81, 3.22),
    HetSeqRow(8, 1024, 33_393, 3.126, 1.21, 0.055, 0.74, 5.94),
)

# bucket cap in MB -> bytes of ResNet-18's all-reduces, in order; the first bucket's cap is 1 MB.
# Read in the issue, 2026-11-22.
RESNET_18_BUCKETS = {
    25: (2_052_000, 28_852_224, 15_853_824),
    35: (2_052_000, 38_297_600, 6_408_448),
}


@dataclass(frozen=True, slots=True)
class ServerRates:
    """Steps per second of asynchronous training with parameter servers, on CIFAR-10."""

    model: str
    tensors: int
    parameters: int
    one_server: tuple[float, ...]  # for 1, 2, ... 8 workers on P100s, with one server
    two_servers: tuple[float, ...]
    k80: tuple[float, ...]  # for 1, 2, ... 8 workers on K80s, with one server

    @property
    def bytes(self) -> int:
        """Bytes that a worker sends in a step."""
        return 4 * self.parameters


# Medians of the 96 files processed_data/speed_and_cluster_size/{p100,p100ps2,k80}/*. A file has
# about 40 to 145 rates; the first quarter is left out, because training starts there. On 2026-11-22
# all 32 medians of the K80s, and five of the 64 medians of the P100s, were computed again from the
# files. Tensors and parameters are from checkpoint/aggregated.csv.
SERVER_RATES = (
    ServerRates(
        "ResNet-15", 50, 693_818,
        (21.2, 46.8, 62.3, 79.4, 93.6, 96.1, 97.2, 106.6),
        (26.0, 46.8, 70.7, 98.9, 120.3, 145.2, 163.2, 176.3),
        (9.92, 18.9, 28.5, 38.0, 47.1, 57.6, 64.9, 75.7),
    ),
    ServerRates(
        "ResNet-32", 104, 1_857_722,
        (11.5, 22.6, 34.8, 40.9, 44.6, 44.1, 47.5, 43.2),
        (12.6, 25.4, 40.3, 50.1, 65.1, 73.1, 80.6, 75.7),
        (4.52, 9.07, 13.6, 18.1, 22.5, 26.9, 31.5, 36.1),
    ),
    ServerRates(
        "Shake small", 216, 2_926_986,
        (6.76, 13.7, 19.5, 24.9, 27.3, 27.4, 28.5, 27.1),
        (7.38, 14.4, 21.4, 28.1, 32.3, 33.4, 35.9, 34.2),
        (2.54, 5.11, 7.63, 10.1, 12.6, 15.1, 17.4, 19.9),
    ),
    ServerRates(
        "Shake large", 216, 26_204_362,
        (2.10, 3.97, 4.97, 6.03, 6.21, 5.97, 4.63, 6.49),
        (2.18, 4.23, 5.73, 6.39, 6.52, 6.74, 5.98, 6.50),
        (0.679, 1.34, 2.05, 2.64, 3.32, 3.96, 4.33, 4.97),
    ),
)  # fmt: skip
