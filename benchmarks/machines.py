"""Modelled machines: the cost of counting, the equality of runs, and the error of counted time.

    python -m benchmarks.machines [--quick] [--markdown] [--machine mine.json] [--minutes 60]
    python -m benchmarks.machines --part repeat --repeat 20  # whole traces, on 2, 4, 8, 16 ranks
    python -m benchmarks.machines --part steps               # lab 06's class, torch's, the replay
    python -m benchmarks.machines --part models              # counted ÷ measured

Prints real CPU time per counted operation; the number of different traces in twenty runs of each
training program, every other run beside three processes that burn the cores; the step of lab 06's
class ÷ the step of torch's DDP, at equal caps and views, and ÷ the simulator's replay of the same
compute and buckets; and counted ÷ measured steps of three models, on the machine of --machine or on
a machine that is measured first. The measured time is the CPU time of one thread, the least of many
steps; on an idle core it equals the wall time.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import json
import math
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tqdm import tqdm

from benchmarks._counted import (
    PROGRAMS,
    class_against_torch,
    cost_of_counting,
    digest,
    steps_of_class,
    training,
)
from benchmarks._load import burning
from benchmarks._report import Figure, Sample, as_markdown, as_text, machine, table
from ddpkit import Cluster
from ddpkit.measure import measure
from ddpkit.simulate import Step, replay
from ddpkit.simulate.step.recorded import recorded_buckets

LINK = "10 Gbit/s, 5 us"
PROCESSOR = "20 TFLOP/s, 2 TB/s, 80 GB, 5 us"
MODELS = ("lab 06's MLP", "transformer", "ResNet")
ON_ALL = ("torch's DDP", "lab 06's DDP")  # run in all worlds; other programs in the first two
PARTS = ("counting", "repeat", "steps", "models")
BURNING = 3  # processes
MOST_US, CLASS, AGREES = 30.0, 1.02, 1.10  # goals


Work: TypeAlias = tuple[str, Callable[[], list[Figure]]]


@dataclass(frozen=True)
class Extent:
    """The extent of the measurements."""

    worlds: tuple[int, ...] = (2, 4, 8, 16)
    runs: int = 20
    steps: int = 30


QUICK = Extent((2,), 2, 5)


def run(world_size: int, job: Callable[..., Any], *args: Any, spec: str = PROCESSOR) -> Any:
    """Return a run with counted compute, made without output."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the warning about many ranks
        return Cluster(world_size, link=LINK, machine=spec).run(job, *args)


def counting() -> Figure:
    """Return the real time that counting an operation takes."""
    taken = Sample.of(run(1, cost_of_counting).results[0] for _ in range(5))
    return Figure("counting an operation", "µs", taken, goal=MOST_US)


def traces(name: str, world_size: int, runs: int) -> Figure:
    """Return the number of different traces in a program's runs, idle and loaded in turns."""
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
    """Return the slowest rank's step of lab 06's class ÷ that of torch's DDP."""
    steps = [run(world_size, class_against_torch, kind).results for kind in ("ours", "torch")]
    (ours, count), (theirs, torchs) = (
        (max(took for took, _ in ranks), max(n for _, n in ranks)) for ranks in steps
    )
    note = f"{ours / 1e3:,.1f} and {theirs / 1e3:,.1f} µs, {count} and {torchs} operations"
    title = f"lab 06's class ÷ torch's DDP, {world_size} ranks"
    return Figure(title, "", Sample((ours / theirs,)), goal=CLASS, note=note)


def against_replay(world_size: int) -> Figure:
    """Return the step of lab 06's class ÷ the replay of its ranks' compute, with its buckets."""
    trace = run(world_size, steps_of_class).trace
    cut = trace.step(-1)
    took = max(end - start for start, end in map(cut.window_of, cut.ranks))
    steps = [Step.of_trace(trace, -1, rank) for rank in trace.ranks]
    buckets = recorded_buckets(trace)
    replayed = replay(steps, world_size, LINK, buckets).step_ns
    note = f"{took / 1e3:,.1f} and {replayed / 1e3:,.1f} µs, {len(buckets)} buckets"
    title = f"lab 06's class ÷ its replay, {world_size} ranks"
    return Figure(title, "", Sample((took / replayed,)), goal=CLASS, note=note)


def agreement(model: str, spec: str, steps: int) -> tuple[float, str]:
    """Return counted ÷ measured of a model's training step, and both times in words."""
    counted = run(1, training, model, 3, spec=spec).results[0][-1] / 1e9
    measured = min(training(model, steps, clock=time.thread_time_ns)) / 1e9
    return counted / measured, f"{1e3 * counted:.2f} ÷ {1e3 * measured:.2f} ms"


def off(ratio: float) -> float:
    """Return the distance of a ratio from 1, as a factor."""
    return max(ratio, 1 / ratio)


def models(spec: str, steps: int) -> list[Figure]:
    """Return counted ÷ measured of all models, and the median of their distances from 1."""
    ratios = {model: agreement(model, spec, steps) for model in MODELS}
    rows = [
        Figure(f"{model}: counted ÷ measured", "", Sample((ratio,)), note=note)
        for model, (ratio, note) in ratios.items()
    ]
    median = statistics.median(off(ratio) for ratio, _ in ratios.values())
    return [*rows, Figure("the median of the three ratios", "", Sample((median,)), goal=AGREES)]


def works(extent: Extent, spec: Callable[[], str], parts: Collection[str]) -> list[Work]:
    """Return (title, work) for some of `PARTS`; the work gives the figures."""
    found: list[Work] = []
    if "counting" in parts:
        found.append(("counting", lambda: [counting()]))
    if "repeat" in parts:
        for name in PROGRAMS:
            worlds = extent.worlds if name in ON_ALL else extent.worlds[:2]
            found += [
                (f"{name}, {n} ranks", lambda name=name, n=n: [traces(name, n, extent.runs)])
                for n in worlds
            ]
    if "steps" in parts:
        for n in extent.worlds:
            found.append((f"torch's, {n} ranks", lambda n=n: [against_torch(n)]))
            found.append((f"replay, {n} ranks", lambda n=n: [against_replay(n)]))
    if "models" in parts:
        found.append(("models", lambda: models(spec(), extent.steps)))
    return found


def figures(works: Sequence[Work], minutes: float) -> Iterator[Figure]:
    """Yield all figures; work that would begin after `minutes` gives a figure "not run"."""
    until = time.monotonic() + 60 * minutes
    for title, work in (bar := tqdm(works, leave=False, disable=None)):
        bar.set_description(title)
        if time.monotonic() < until:
            yield from work()
        else:
            note = f"not run: {minutes:g} minutes were over"
            yield Figure(title, "", Sample((math.nan,)), note=note)


def main() -> None:
    """Run the benchmark, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer ranks, runs and steps")
    parser.add_argument("--markdown", action="store_true", help="as tables")
    parser.add_argument("--machine", help="a machine file; else one is measured")
    parser.add_argument("--part", action="append", choices=PARTS, help="this part, or several")
    parser.add_argument("--repeat", type=int, help="runs of each training program")
    parser.add_argument("--minutes", type=float, default=60, help="begin nothing more after these")
    given = parser.parse_args()
    extent = QUICK if given.quick else Extent()
    if given.repeat:
        extent = dataclasses.replace(extent, runs=given.repeat)
    with tempfile.TemporaryDirectory() as folder:

        def spec() -> str:
            path = Path(folder) / "mine.json"
            if given.machine is None:
                path.write_text(json.dumps(measure().as_json()), "utf-8")
            return given.machine or str(path)

        rows = list(figures(works(extent, spec, given.part or PARTS), given.minutes))
    print(machine())
    print((as_markdown if given.markdown else as_text)(table("Modelled machines", rows, ())))


if __name__ == "__main__":
    main()
