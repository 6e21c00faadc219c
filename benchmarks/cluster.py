"""Prints the costs of a Cluster: the first run ÷ one `import torch`, the time of every later run
and of runs after a fault, memory, large tensors, and recorded ÷ plain communication. Beside each
cost stands the cost of `torch.multiprocessing.spawn` and `ipyparallel`, divided by the Cluster's.

    python -m benchmarks.cluster               a quarter of an hour on two idle cores
    python -m benchmarks.cluster --quick       two minutes: few repetitions, one start of each
    python -m benchmarks.cluster --recording   the second table alone, five minutes
    python -m benchmarks.cluster --markdown    the tables as BENCHMARKS.md has them
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from tqdm import tqdm

from benchmarks import _recording, _report
from benchmarks._report import Figure, Sample

OTHERS = ("spawn", "ipyparallel")
SIZES = (1, 2, 4, 8)  # ranks
FAULTS = {"raises": "exception", "deadlocks": "deadlock", "is_killed": "SIGKILL"}
LIMIT = 300  # seconds for one process; a slower process is printed as "no answer"
Step = dict[str, Any]
Plan = list[tuple[str, int]]  # (name of a job, ranks)


@dataclass(frozen=True)
class Extent:
    """The numbers of repetitions."""

    starts: int  # fresh processes of `import torch` and of ddpkit
    starts_of_others: int
    faults_of_others: bool  # True if spawn and ipyparallel run faults too
    later: int  # later runs per fresh process
    models: int  # pairs of ranks that train
    blocks: int  # blocks of three steps of each variant, for each pair of ranks
    messages: int  # blocks of small operations


QUICK = Extent(
    starts=2, starts_of_others=1, faults_of_others=False, later=3, models=4, blocks=40, messages=6
)
FULL = Extent(
    starts=7, starts_of_others=3, faults_of_others=True, later=10, models=45, blocks=40, messages=40
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions, about two minutes")
    parser.add_argument("--recording", action="store_true", help="what recording costs, alone")
    parser.add_argument("--markdown", action="store_true", help="print markdown tables")
    arguments = parser.parse_args()
    extent = QUICK if arguments.quick else FULL
    write = _report.as_markdown if arguments.markdown else _report.as_text
    print(_report.machine())
    print("Each cell: median (middle half, max, number of repetitions). 'a ÷ b': how many times b.")
    if not arguments.recording:
        rows = starts(measure_worlds(extent))
        print("\n" + write(_report.table("start, run and end", rows, OTHERS)))
    print("\n" + write(_report.table("recording, 2 ranks", recording(extent), OTHERS)))


# Worlds: fresh processes, in turns


@dataclass
class Worlds:
    """The steps that the processes of each world carried out."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)  # world -> the reason for no steps
    first: dict[str, list[float]] = field(default_factory=dict)  # seconds of each first step

    def sample(self, world: str, choose: Callable[[Step], float | None]) -> Sample | str:
        values = [value for step in self.steps.get(world, []) if (value := choose(step))]
        return Sample.of(values) if values else self.missing.get(world, "–")


def measure_worlds(extent: Extent) -> Worlds:
    """Let each world carry out its plan in fresh processes, never two at a time."""
    worlds = Worlds()
    if importlib.util.find_spec("ipyparallel") is None:
        worlds.missing["ipyparallel"] = "not installed: pip install 'ddpkit[bench]'"
    turns = list(_turns(extent, [w for w in OTHERS if w not in worlds.missing]))
    _in_fresh_process("import", [("nothing", 1)])  # reads torch's files into the page cache
    for world, plan in tqdm(turns, desc="worlds", disable=None):
        steps = _in_fresh_process(world, plan)
        if not steps:
            worlds.missing[world] = f"no answer in {LIMIT} s"
            continue
        first, *others = _after(steps)
        worlds.first.setdefault(world, []).append(first["seconds"])
        worlds.steps.setdefault(world, []).extend(others)
    return worlds


def _turns(extent: Extent, others: list[str]) -> Iterable[tuple[str, Plan]]:
    """Yield the worlds and their plans in order; an `import torch` comes just before ddpkit."""
    for start in range(extent.starts):
        yield "import", [("nothing", 4)]
        yield "ddpkit", _plan_of_ours(extent.later)
        if start < extent.starts_of_others:
            yield from ((other, _plan_of_others(extent.faults_of_others)) for other in others)


def _plan_of_ours(later: int) -> Plan:
    plan: Plan = [("nothing", 4)]
    for _ in range(later):
        plan += [("nothing", size) for size in SIZES]
    for fault in FAULTS:
        plan += [(fault, 4), ("nothing", 4)] * 2
    plan += [("memory", size) for size in SIZES]
    return plan + [("gives", 1), ("gives", 4), ("takes", 1), ("takes", 4)] * 2


def _plan_of_others(faults: bool) -> Plan:
    """Return the plan for spawn and ipyparallel, without steps that would take minutes.

    Sizes other than 4 are left out, and so is a deadlock, which would never end.
    """
    plan: Plan = [*[("nothing", 4)] * 3, ("memory", 4), ("gives", 4), ("takes", 4)]
    if faults:
        plan += [("raises", 4), ("nothing", 4), ("is_killed", 4), ("nothing", 4)]
        plan += [("gives", 1), ("takes", 1)]
    return plan


def _after(steps: list[Step]) -> list[Step]:
    """Return each step with "after": the fault just before the step, or ""."""
    faults = ["", *(step["job"] if step["job"] in FAULTS else "" for step in steps)]
    return [step | {"after": fault} for step, fault in zip(steps, faults, strict=False)]


def _in_fresh_process(world: str, plan: Plan) -> list[Step]:
    """Return the steps that a world's process reports; no steps if it takes too long."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks._worlds", world, json.dumps(plan)],
        cwd=Path(__file__).parent.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of its own: all descendants can be ended together
    )
    try:
        out, errors = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    if process.returncode:
        raise RuntimeError(f"{world} failed:\n{errors[-2000:]}")
    steps: list[Step] = json.loads(out.splitlines()[-1])
    return steps


# Figures


def starts(worlds: Worlds) -> list[Figure]:
    """Return rows about starting, running and ending ranks, their memory and large tensors."""

    def figure(name: str, choose: Callable[[Step], float | None], **more: Any) -> Figure:
        others: dict[str, Sample | str] = {other: worlds.sample(other, choose) for other in OTHERS}
        if "deadlock" in name:
            others = dict.fromkeys(OTHERS, "hangs forever")
        return Figure(name, "s", worlds.sample("ddpkit", choose), others, **more)

    figures = _first_runs(worlds)
    for size in SIZES:
        goal = 0.2 if size == 4 else None
        name = f"later run of an empty function, {size} rank{'s' * (size > 1)}"
        figures.append(figure(name, _empty(size), goal=goal))
    cpu = "processor time of a later run of an empty function, 4 ranks"
    figures.append(figure(cpu, _processor_time))
    for fault, name in FAULTS.items():
        figures.append(figure(f"run after {name}, 4 ranks", _empty(4, fault), goal=0.2))
    for fault, name in FAULTS.items():
        figures.append(figure(f"run with {name}, until it is explained", _seconds(fault, 4)))
    for job, words in (("gives", "return 100 MB per rank"), ("takes", "send 100 MB to each rank")):
        for size in (1, 4):
            chosen = figure(f"{words}, {size} rank{'s' * (size > 1)}", _seconds(job, size))
            figures.append(_with_rate(chosen, 0.1 * size))
    return figures + _memory(worlds)


def _first_runs(worlds: Worlds) -> list[Figure]:
    imports = Sample.of(worlds.first["import"])
    first: dict[str, Sample | str] = {
        world: Sample.of(worlds.first[world]) if world in worlds.first else worlds.missing[world]
        for world in ("ddpkit", *OTHERS)
    }

    def compared(world: str) -> Sample | str:
        sample = first[world]
        if isinstance(sample, str):
            return sample
        yardsticks = imports.values  # each start has an import of its own, measured just before
        return Sample.of(s / y for s, y in zip(sample.values, yardsticks, strict=False))

    return [
        Figure("one import torch", "s", imports, note="the unit of the ratios"),
        Figure("first run of a fresh kernel, 4 ranks", "s", first["ddpkit"], _without_ours(first)),
        Figure(
            "first run ÷ import torch",
            "",
            compared("ddpkit"),
            {other: compared(other) for other in OTHERS},
            goal=1.5,
        ),
    ]


def _without_ours(samples: dict[str, Sample | str]) -> dict[str, Sample | str]:
    return {world: sample for world, sample in samples.items() if world != "ddpkit"}


def _empty(size: int, after: str = "") -> Callable[[Step], float | None]:
    def choose(step: Step) -> float | None:
        same = (step["job"], step["ranks"], step["after"]) == ("nothing", size, after)
        return step["seconds"] if same and not step["failed"] else None

    return choose


def _processor_time(step: Step) -> float | None:
    return step["cpu"] if _empty(4)(step) else None


def _seconds(job: str, size: int) -> Callable[[Step], float | None]:
    def choose(step: Step) -> float | None:
        same = (step["job"], step["ranks"]) == (job, size)
        return step["seconds"] if same and bool(step["failed"]) == (job in FAULTS) else None

    return choose


def _with_rate(figure: Figure, gigabytes: float) -> Figure:
    if isinstance(figure.ours, str):
        return figure
    rate = f"{gigabytes / figure.ours.median:.2f} GB/s"
    return Figure(figure.name, "s", figure.ours, figure.others, note=f"ddpkit: {rate}")


def _memory(worlds: Worlds) -> list[Figure]:
    def per_rank(size: int) -> Callable[[Step], float | None]:
        def choose(step: Step) -> float | None:
            same = (step["job"], step["ranks"]) == ("memory", size) and step["values"]
            return fmean(step["values"]) if same else None

        return choose

    return [
        Figure(
            f"memory of a rank (PSS), of {size}",
            "MB",
            worlds.sample("ddpkit", per_rank(size)),
            {other: worlds.sample(other, per_rank(size)) for other in OTHERS},
        )
        for size in SIZES
    ]


def recording(extent: Extent) -> list[Figure]:
    """Return rows about recorded ÷ plain communication, in turns inside the same ranks."""
    from ddpkit import Cluster

    cluster = Cluster(2, record=False)
    _let_the_forkserver_load(cluster)
    wall = cluster.run(_recording.wall, 50).results
    pairs = [
        cluster.run(_recording.steps, extent.blocks, 3, seed).results
        for seed in tqdm(range(extent.models), desc="recording", disable=None)
    ]
    step = f"a step of {1000 * min(wall):.1f} ms"
    figures = [
        _quiet_ratio(f"{step}: record=True ÷ False, CPU", pairs, "hooked", "recorded", goal=1.03),
        _quiet_ratio(f"{step}: record=False ÷ plain gloo, CPU", pairs, "recorded", "plain"),
        _quiet_ratio(f"{step}: record=True ÷ plain gloo, CPU", pairs, "hooked", "plain"),
    ]
    for op, words in (("all_reduce", "all_reduce of 32 B"), ("ping_pong", "32 B there and back")):
        taken = cluster.run(_recording.latency, op, extent.messages, 50).results[0]
        for clock, title in (("wall", "time"), ("cpu", "CPU")):
            recorded, plain = taken[clock]["recorded"], taken[clock]["plain"]
            figures.append(_ratio(f"{words}: recorded ÷ plain gloo, {title}", recorded, plain))
    return figures


def _let_the_forkserver_load(cluster: Any) -> None:
    """Wait until ranks are forked with the imports of torch's DDP, which take two seconds."""
    for _ in range(60):
        if all(cluster.run(_recording.has_dynamo).results):
            return
        time.sleep(0.5)


def _quiet_ratio(
    name: str,
    pairs: list[list[_recording.Blocks]],
    ours: str,
    plain: str,
    goal: float | None = None,
) -> Figure:
    """Return one ratio for each pair of ranks: the means of the quicker half of the steps.

    In the quicker half, the machine did little other work. The note has the mean of all ratios and
    its standard error.
    """
    ratios = [
        fmean(_quiet(rank[ours]) / _quiet(rank[plain]) for rank in per_rank) for per_rank in pairs
    ]
    more = fmean(_quiet(rank[ours]) - _quiet(rank[plain]) for pair in pairs for rank in pair)
    error = f" ± {stdev(ratios) / len(ratios) ** 0.5:.3f}" if len(ratios) > 1 else ""
    note = f"mean {fmean(ratios):.3f}{error}, {_time(more)} more"
    return Figure(name, "", Sample.of(ratios), goal=goal, note=note)


def _quiet(steps: list[float]) -> float:
    return fmean(sorted(steps)[: len(steps) // 2])


def _ratio(name: str, ours: list[float], plain: list[float]) -> Figure:
    """Return a row of ratios of neighbouring blocks; the note has the least seconds."""
    ratios = Sample.of(mine / other for mine, other in zip(ours, plain, strict=True))
    least = f"least: {_time(min(ours))} ÷ {_time(min(plain))} = {min(ours) / min(plain):.3f}"
    return Figure(name, "", ratios, note=least)


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds > 1e-3 else f"{seconds * 1e6:.0f} µs"


if __name__ == "__main__":
    main()
