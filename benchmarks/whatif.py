"""The error of a replay of one recorded run that predicts other runs.

    python -m benchmarks.whatif [--quick] [--markdown]

Prints predicted ÷ measured step time at five other bucket caps and on two other links.

torch's own DDP trains on an emulated link, and one run is recorded. From this recording alone,
`simulate.what_if` predicts a step with another `bucket_cap_mb` or on another link. Then each of
these runs is made.

Layers sleep in place of computing, so that the two cores of a laptop do not limit the speed. Other
work of the machine makes a step longer, never shorter. So the measured value is the lowest decile
of all steps after the warm-up (DDP rebuilds its buckets after the first step), in several runs, in
turns with the runs of all other cases. `what_if` itself takes the lower quartile of each part of
the recorded steps.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster, Trace
from ddpkit.simulate import what_if
from ddpkit.simulate.step.recorded import WARM_UP

RANKS = 2
LAYERS, WIDTH = 12, 512  # 12 gradients of 1 MB, and a bias each
FORWARD_S, BACKWARD_S = 0.004, 0.008  # sleep of a layer; a busy machine is up to 1 ms late
LINK, CAP_MB = "1 Gbit/s, 200 us", 2.0  # settings of the recording
GOAL = 0.08


@dataclass(frozen=True)
class Case:
    """The changed settings of a run."""

    link: str = LINK
    cap_mb: float = CAP_MB


CASES = (
    *(Case(cap_mb=cap) for cap in (1.0, 3.0, 6.0, 8.0, 25.0)),
    *(Case(link=link) for link in ("500 Mbit/s, 1 ms", "4 Gbit/s, 50 us")),
)


def train(steps: int, cap_mb: float) -> None:
    """Train with torch's DDP, on a rank; each layer's forward and backward take a fixed time."""
    import time

    import torch
    from torch.nn.parallel import DistributedDataParallel

    class Sleep(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            time.sleep(FORWARD_S)
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            time.sleep(BACKWARD_S)
            return gradient

    class Layer(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return Sleep.apply(super().forward(x))

    layers = [Layer(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=cap_mb)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(1, WIDTH)
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def run(case: Case, steps: int) -> Trace:
    return Cluster(RANKS, link=case.link).run(train, steps, case.cap_mb).trace


def steps_ms(trace: Trace) -> list[float]:
    """Return the ms of each step after the warm-up."""
    windows = trace.step_windows[0][WARM_UP:]
    return [(end - start) / 1e6 for start, end in windows]


def measure(steps: int, repeats: int) -> dict[Case, list[Trace]]:
    """Return the runs of the recorded case and of all other cases, made in turns."""
    runs: dict[Case, list[Trace]] = {case: [] for case in (Case(), *CASES)}
    for case in tqdm([*runs] * repeats, unit="run", leave=False, disable=None):
        runs[case].append(run(case, steps))
    return runs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer steps and repetitions")
    parser.add_argument("--markdown", action="store_true", help="the table as for BENCHMARKS.md")
    options = parser.parse_args()
    print(machine())
    runs = measure(*((10, 2) if options.quick else (20, 4)))
    recording = runs[Case()][0]
    rows, worst = [], 0.0
    for case, traces in runs.items():
        replayed = what_if(recording, bucket_cap_mb=case.cap_mb, link=case.link)
        times = [time for trace in traces for time in steps_ms(trace)]
        predicted, measured = replayed.end_ns / 1e6, statistics.quantiles(times, n=10)[0]
        ratio, median = predicted / measured, statistics.median(times)
        row = [case.link, f"{case.cap_mb:g} MB", f"{predicted:.1f} ms", f"{measured:.1f} ms"]
        rows.append([*row, f"{ratio:.3f}", f"{median:.1f} ms", "recorded" * (case == Case())])
        worst = max(worst, abs(ratio - 1))
    layout = as_markdown if options.markdown else as_text
    header = ["link", "bucket cap", "predicted", "measured", "ratio", "median of steps", ""]
    print(layout([header, *rows]))
    verdict = "ok" if worst <= GOAL else "MISSED"
    print(f"\nworst deviation {worst:.1%} (goal ≤ {GOAL:.0%}: {verdict}), {RANKS} ranks")


if __name__ == "__main__":
    main()
