"""Modelled machines: what counting costs, whether runs are the same, and how far off it is.

    python -m benchmarks.machines [--quick] [--markdown] [--machine mine.json]

Prints real CPU time per counted operation; how many different traces twenty runs of each training
program gave, every other one beside three processes that burn the cores; the step of lab 06's class
÷ that of torch's DDP, at equal caps and views; and counted ÷ measured steps of three models, on the
machine of --machine, or one that is measured first. Measured is the CPU time of one thread, the
least of many steps: on an idle core that is the time on the wall.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._counted import PROGRAMS, class_against_torch, cost_of_counting, digest, training
from benchmarks._report import Figure, Sample, as_markdown, as_text, machine, table
from benchmarks.emulation import burning
from ddpkit import Cluster
from ddpkit.measure import measure

LINK = "10 Gbit/s, 5 us"
MODELS = ("lab 06's MLP", "transformer", "ResNet")
BURNING = 3  # processes
MOST_US, CLASS, AGREES = 30.0, 1.02, 1.10  # goals


@dataclass(frozen=True)
class Extent:
    """How much is run."""

    worlds: tuple[int, ...] = (2, 4, 8, 16)
    runs: int = 20
    steps: int = 30


QUICK = Extent((2,), 2, 5)


def run(world_size: int, job: Callable[..., Any], *args: Any, spec: str = "A100") -> Any:
    """A run whose compute is counted, without a word."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of many ranks
        return Cluster(world_size, link=LINK, machine=spec).run(job, *args)


def counting() -> Figure:
    """What counting an operation takes, in real time."""
    taken = Sample.of(run(1, cost_of_counting).results[0] for _ in range(5))
    return Figure("counting an operation", "µs", taken, goal=MOST_US)


def traces(name: str, world_size: int, runs: int) -> Figure:
    """How many different traces a program's runs gave, idle and loaded in turns."""
    found, seconds = set(), []
    for number in range(runs):
        with burning(BURNING) if number % 2 else nullcontext():
            begin = time.perf_counter()
            found.add(digest(run(world_size, PROGRAMS[name]).trace))
            seconds.append(time.perf_counter() - begin)
    note = f"{runs} runs of {statistics.median(seconds):.1f} s; {min(found)}"
    title = f"{name}, {world_size} ranks: different traces"
    return Figure(title, "", Sample((float(len(found)),)), goal=1.0, note=note)


def against_torch(world_size: int) -> Figure:
    """The step of lab 06's class ÷ that of torch's DDP, the slowest rank's."""
    steps = [run(world_size, class_against_torch, kind).results for kind in ("ours", "torch")]
    (ours, count), (theirs, torchs) = (
        (max(took for took, _ in ranks), max(n for _, n in ranks)) for ranks in steps
    )
    note = f"{ours / 1e3:,.1f} and {theirs / 1e3:,.1f} µs, {count} and {torchs} operations"
    title = f"lab 06's class ÷ torch's DDP, {world_size} ranks"
    return Figure(title, "", Sample((ours / theirs,)), goal=CLASS, note=note)


def agreement(model: str, spec: str, steps: int) -> tuple[float, str]:
    """Counted ÷ measured, of a model's training step."""
    counted = run(1, training, model, 3, spec=spec).results[0][-1] / 1e9
    measured = min(training(model, steps, clock=time.thread_time_ns)) / 1e9
    return counted / measured, f"{1e3 * counted:.2f} ÷ {1e3 * measured:.2f} ms"


def off(ratio: float) -> float:
    """How far a ratio is from 1, as a factor."""
    return max(ratio, 1 / ratio)


def figures(extent: Extent, spec: str) -> list[Figure]:
    """All that is printed."""
    rows = [counting()]
    for name in PROGRAMS:
        worlds = extent.worlds if name in ("torch's DDP", "lab 06's DDP") else extent.worlds[:2]
        rows += [traces(name, world_size, extent.runs) for world_size in worlds]
    rows += [against_torch(world_size) for world_size in extent.worlds]
    ratios = {model: agreement(model, spec, extent.steps) for model in MODELS}
    for model, (ratio, note) in ratios.items():
        rows.append(Figure(f"{model}: counted ÷ measured", "", Sample((ratio,)), note=note))
    median = statistics.median(off(ratio) for ratio, _ in ratios.values())
    rows.append(Figure("the three, how far off", "", Sample((median,)), goal=AGREES))
    return rows


def main() -> None:
    """Run the benchmark, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer ranks, runs and steps")
    parser.add_argument("--markdown", action="store_true", help="as tables")
    parser.add_argument("--machine", help="a machine file; else one is measured")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spec = given.machine
        if spec is None:
            import json

            spec = str(Path(folder) / "mine.json")
            Path(spec).write_text(json.dumps(measure().as_json()), "utf-8")
        rows = figures(QUICK if given.quick else Extent(), spec)
    print(machine())
    print((as_markdown if given.markdown else as_text)(table("Modelled machines", rows, ())))


if __name__ == "__main__":
    main()
