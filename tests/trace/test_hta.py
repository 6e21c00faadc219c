"""HolisticTraceAnalysis (HTA), a tool by others, gets our numbers from the files of `to_chrome`."""

import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ddpkit
from ddpkit import Cluster
from ddpkit.trace import Breakdown, Span, Trace
from tests.trace.recordings import NCCL, event, of_rank, write

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("hta") is None,
    reason="HolisticTraceAnalysis is not installed: pip install -c constraints.txt -e '.[hta]'",
)

CLOSE = 0.1  # percentage points; HTA rounds to 0.01
MS = 1_000_000
FIXTURES = Path(__file__).parent / "fixtures"

READ = """
import sys
from hta.trace_analysis import TraceAnalysis
for folder in sys.argv[1:]:
    read = TraceAnalysis(trace_dir=folder)
    overlap = read.get_comm_comp_overlap(visualize=False)
    parts = read.get_temporal_breakdown(visualize=False)
    print(parts.merge(overlap, on="rank").to_json(orient="records"))
"""


def hta(*folders: Path) -> list[dict[int, dict[str, float]]]:
    """Return folder and rank -> HTA's numbers. HTA forks, so it runs in another process."""
    command = [sys.executable, "-W", "ignore", "-c", READ, *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    tables = [json.loads(line) for line in done.stdout.splitlines()[-len(folders) :]]
    return [{row["rank"]: row for row in table} for table in tables]


def assert_same(ours: dict[int, Breakdown], theirs: dict[int, dict[str, float]]) -> None:
    assert sorted(theirs) == sorted(ours)
    for rank, part in ours.items():
        row = theirs[rank]
        assert row["kernel_time(us)"] == pytest.approx(part.step_ns / 1000, abs=1)
        expected = {
            "idle_time_pctg": part.idle_ns / part.step_ns,
            "compute_time_pctg": part.compute_ns / part.step_ns,
            "non_compute_time_pctg": (part.exposed_ns + part.copy_ns) / part.step_ns,
        }
        if part.hidden is not None:
            expected["comp_comm_overlap_pctg"] = part.hidden
        for column, fraction in expected.items():
            assert row[column] == pytest.approx(100 * fraction, abs=CLOSE), (rank, column)


def train(steps: int = 3) -> None:
    """Train DDP with several buckets."""
    import torch
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    layers = [nn.Sequential(nn.Linear(512, 512), nn.ReLU()) for _ in range(4)]
    model = DistributedDataParallel(nn.Sequential(*layers), bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(128, 512)).sum().backward()
        optimizer.step()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_recorded_ddp(ranks: int, tmp_path: Path) -> None:
    """HTA and ddpkit agree on the whole run, and on a step with different windows of ranks."""
    assert_run_and_step_agree(Cluster(ranks).run(train).trace, tmp_path)


@pytest.mark.slow
def test_emulated_ddp(tmp_path: Path) -> None:
    """The times are those of the emulated machines, of which one is slow."""
    run = Cluster(4, link="1 Gbit/s, 200 us", speed={3: 0.5}).run(train).trace
    assert run.facts["time"] == "emulated"
    assert_run_and_step_agree(run, tmp_path)


@pytest.mark.slow
def test_emulated_messages_that_were_done_before_their_wait(tmp_path: Path) -> None:
    """The time between done and collected is no communication, in HTA and in ddpkit."""
    run = Cluster(2, link="1 ms").run(waits_late).trace
    sent = next(span for span in run.of(0) if span.name == "send")
    assert sent.collected_ns is not None
    assert sent.collected_ns - sent.end_ns > 90 * MS
    assert run.breakdown()[0].comm_ns < 10 * MS
    run.to_chrome(tmp_path)
    (theirs,) = hta(tmp_path)
    assert_same(run.breakdown(), theirs)


def waits_late() -> None:
    """Compute for 100 ms on rank 0 before it waits for its isend."""
    import torch
    import torch.distributed as dist

    message = torch.zeros(1)
    if dist.get_rank():
        dist.recv(message, 0)
        return
    work = dist.isend(message, 1)
    ddpkit.busy("100 ms")
    assert work is not None
    work.wait()


def assert_run_and_step_agree(run: Trace, tmp_path: Path) -> None:
    traces = [run, run.step(-1)]
    folders = [tmp_path / "run", tmp_path / "step"]
    for trace, folder in zip(traces, folders, strict=True):
        assert all(part.hidden is not None for part in trace.breakdown().values())
        trace.to_chrome(folder)
    for trace, theirs in zip(traces, hta(*folders), strict=True):
        assert_same(trace.breakdown(), theirs)


@pytest.mark.processes
def test_it_reads_the_profilers_own_files_as_we_do(tmp_path: Path) -> None:
    """The numbers agree within a point: HTA rounds both ends of kernels inwards, to whole us."""
    files = [FIXTURES / f"nccl.rank{rank}.json" for rank in (0, 1)]
    written = tmp_path / "profiler"
    written.mkdir()
    for file in files:
        shutil.copy(file, written)
    copies = write(tmp_path / "copies", of_rank(0, 1, *with_copies(), backend="nccl"))
    theirs, their_copies = hta(written, copies[0].parent)
    for rank, part in Trace.load(*files).breakdown().items():
        assert part.hidden is not None
        assert theirs[rank]["comp_comm_overlap_pctg"] == pytest.approx(100 * part.hidden, abs=1)
    part = Trace.load(*copies).breakdown()[0]
    assert (part.compute_ns, part.exposed_ns, part.copy_ns) == (300_000, 100_000, 300_000)
    assert_same({0: part}, their_copies)


def with_copies() -> list[Any]:
    """Return kernels and copies of whole microseconds, with the 5 kinds of copies."""
    return [
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 0, 100, 7, correlation=1, stream=7),
        event("kernel", "sgemm", 100, 300, 7, correlation=2, stream=7),
        event(
            "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 150, 50, 8, correlation=3, stream=8
        ),
        event("kernel", NCCL, 300, 200, 20, correlation=4, stream=20),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 450, 150, 7, correlation=5, stream=7),
        event("gpu_memset", "Memset (Device)", 700, 50, 7, correlation=6, stream=7),
        event(
            "gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 750, 50, 7, correlation=7, stream=7
        ),
    ]


def compute(rank: int, start: int, end: int, name: str = "Linear", kind: str = "forward") -> Span:
    return Span(rank, "compute", name, kind, start * MS, end * MS)


def comm(rank: int, start: int, end: int, blocked: int | None = None) -> Span:
    blocked_ns = None if blocked is None else blocked * MS
    return Span(rank, "comm", "all_reduce", "comm", start * MS, end * MS, 8, blocked_ns=blocked_ns)


def names_that_hta_reads_otherwise() -> list[Span]:
    names = ["SyncBatchNorm", "Memcpy it", "Memset", "dma", "ncclOwnKernel", "ProfilerStep#1"]
    spans = [compute(0, 10 * n, 10 * n + 10, name) for n, name in enumerate(names)]
    more = [compute(0, 60, 70, "ProfilerStep#2", "span"), comm(0, 5, 68)]
    return [*spans, *more, compute(1, 0, 30, "x"), comm(1, 20, 90)]


def overlapping_in_every_way() -> list[Span]:
    return [
        compute(0, 10, 60, "Sequential"),
        compute(0, 20, 30),
        compute(0, 50, 70, "a thread of its own", "span"),
        comm(0, 25, 55),
        comm(0, 40, 80, blocked=58),  # no compute runs after 58
        comm(0, 40, 45),
        compute(1, 0, 1),  # idle from then on
        comm(1, 90, 100),
    ]


def copies_of_every_kind() -> list[Span]:
    """Return copies alone, behind compute, behind communication, and behind each other."""
    times = [(0, 20), (15, 30), (40, 60), (75, 95)]
    directions = ["host→device", "device→device", "memset", "copy"]
    copies = [
        Span(0, "copy", name, "copy", start * MS, end * MS, 8)
        for name, (start, end) in zip(directions, times, strict=True)
    ]
    return [*copies, compute(0, 25, 50), comm(0, 45, 80), comm(1, 0, 100), compute(1, 10, 20)]


def no_compute() -> list[Span]:
    return [comm(0, 0, 10), comm(0, 20, 30), comm(1, 0, 40)]


@pytest.mark.slow
def test_hard_cases(tmp_path: Path) -> None:
    cases: list[Callable[[], list[Span]]] = [
        names_that_hta_reads_otherwise,
        overlapping_in_every_way,
        copies_of_every_kind,
        no_compute,
    ]
    traces = [Trace(tuple(case()), 2) for case in cases]
    folders = [tmp_path / case.__name__ for case in cases]
    for trace, folder in zip(traces, folders, strict=True):
        trace.to_chrome(folder)
    for trace, theirs in zip(traces, hta(*folders), strict=True):
        assert_same(trace.breakdown(), theirs)
