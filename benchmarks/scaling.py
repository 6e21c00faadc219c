"""Predictions of other ranks, caps and links from one recorded run; and the cost of 4,096 ranks.

    python -m benchmarks.scaling [--quick] [--markdown]

Prints measured ÷ predicted steps of emulated runs, and the seconds and memory of `simulate`.

torch's own DDP trains two models, a deep model of many small layers and a wide model of few large
layers, on machines that count their compute. One run of each model on 2 ranks is recorded. From
this recording alone, `simulate.forecast` predicts the step on 2 to 16 ranks, with five bucket caps,
on three links. Then each of these runs is made, on real processes in emulated time.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from tqdm import tqdm

from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster, Trace
from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import Step, forecast, noisy_steps, replay, resnet

MACHINE, BATCH, STEPS = "laptop core", 64, 5
MODELS = {"deep": (24, 128), "wide": (4, 512)}  # number of layers, width of a layer
RANKS = (2, 4, 8, 16)
CAPS = (0.05, 0.25, 1.0, 4.0, 25.0)
LINKS = ("1 Gbit/s, 200 us", "10 Gbit/s, 20 us", "200 Mbit/s, 2 ms")
WORLDS = (256, 1024, 4096)
NETWORK = "100 Gbit/s, 10 us"
HOSTS: LinkSpec = {"hosts of": 8, "inside": "150 GB/s, 3 us", "between": NETWORK}
GOAL, GOAL_S = 0.05, 1.0


@dataclass(frozen=True)
class Case:
    """The settings of one run."""

    model: str
    ranks: int = 2
    cap_mb: float = 1.0
    link: str = LINKS[0]


def train(layers: int, width: int, cap_mb: float) -> None:
    """Train `layers` square layers with torch's DDP, on a rank."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    ddp = DistributedDataParallel(model, bucket_cap_mb=cap_mb, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad()
        ddp(torch.randn(BATCH, width)).square().mean().backward()
        optimizer.step()


def run(case: Case) -> Trace:
    cluster = Cluster(case.ranks, link=case.link, machine=MACHINE)
    return cluster.run(train, *MODELS[case.model], case.cap_mb).trace


def step_ms(trace: Trace) -> float:
    """Return the ms of the last step on the slowest rank."""
    cut = trace.step(-1)
    windows = [cut.window_of(rank) for rank in cut.ranks]
    return max(end - start for start, end in windows) / 1e6


def cases(quick: bool) -> list[Case]:
    if quick:
        return [Case(model, ranks) for model, ranks in product(MODELS, (2, 4))]
    return [Case(*each) for each in product(MODELS, RANKS, CAPS, LINKS)]


def predicted(todo: list[Case]) -> Iterator[tuple[Case, float, float]]:
    """Yield each case with its predicted and its measured ms."""
    models = {name: forecast(run(Case(name))) for name in MODELS}
    for case in tqdm(todo, unit="run", leave=False, disable=None):
        said = models[case.model].replay(case.ranks, case.link, case.cap_mb).step_ns / 1e6
        yield case, said, step_ms(run(case))


def simulated(worlds: Sequence[int]) -> dict[str, Callable[[int], object]]:
    """Return the simulations by name; each takes a number of ranks."""
    step = Step.of_model(resnet(50), 100_000_000)
    unequal = {n: [step.slowed(1 + rank / n) for rank in range(n)] for n in worlds}
    links = {n: Links(tuple(_own_link(rank / n) for rank in range(n))) for n in worlds}
    return {
        "ranks alike": lambda n: replay(step, n, NETWORK),
        "a different step on each rank": lambda n: replay(unequal[n], n, NETWORK),
        "a different step and link on each rank": lambda n: replay(unequal[n], n, links[n]),
        "the cheapest algorithm": lambda n: replay(step, n, NETWORK, algorithm="cheapest"),
        "hosts of 8": lambda n: replay(step, n, HOSTS),
        "100 steps with noise": lambda n: noisy_steps(step, n, NETWORK, 0.05),
    }


def _own_link(share: float) -> Link:
    """Return a link with a latency, and a time of a byte, that are up to half as much again."""
    return Link(10e-6 * (1 + share / 2), 12.5e9 / (1 + (7 * share) % 1 / 2))


def cost(work: Callable[[int], object], n: int) -> tuple[float, float]:
    """Return the CPU seconds and the peak of memory, in MB, of a piece of work."""
    started = time.process_time()
    work(n)
    seconds = time.process_time() - started
    tracemalloc.start()
    work(n)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return seconds, most / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="four runs, and 256 ranks")
    parser.add_argument("--markdown", action="store_true", help="the tables as for BENCHMARKS.md")
    options = parser.parse_args()
    layout = as_markdown if options.markdown else as_text
    print(machine())
    rows, worst = [["model", "ranks", "cap", "link", "predicted", "measured", "ratio"]], 0.0
    for case, said, came in predicted(cases(options.quick)):
        row = [case.model, str(case.ranks), f"{case.cap_mb:g} MB", case.link]
        rows.append([*row, f"{said:.2f} ms", f"{came:.2f} ms", f"{came / said:.3f}"])
        worst = max(worst, abs(came / said - 1))
    print(layout(rows))
    verdict = "ok" if worst <= GOAL else "MISSED"
    print(f"\nworst deviation {worst:.2%} (goal ≤ {GOAL:.0%}: {verdict}), {len(rows) - 1} runs\n")
    worlds = WORLDS[:1] if options.quick else WORLDS
    table = [["simulated", *(f"{n:,} ranks" for n in worlds)]]
    for name, work in simulated(worlds).items():
        found = [cost(work, n) for n in worlds]
        table.append([name, *(f"{seconds:.3f} s, {most:.1f} MB" for seconds, most in found)])
    print(layout(table))
    print(f"CPU time; a step of ResNet-50; goal ≤ {GOAL_S:g} s")


if __name__ == "__main__":
    main()
