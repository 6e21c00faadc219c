"""Emulated time ÷ the time by its rules, on free cores and beside processes that burn the cores.

    python -m benchmarks.emulation [--quick] [--markdown] [--minutes 90]
    python -m benchmarks.emulation --part ratios --part servers

Prints emulated ÷ exact for five algorithms of sends and receives on real ranks, and for torch's
all_reduce and broadcast, first with free compute (`speed=math.inf`), then with measured compute
(`speed=1`); 64 ranks; pipelines and an asynchronous server with stated compute; and measured
compute beside the wall clock.

Exact is the closed form (`simulate.cost`) on equal links, else the event engine
(`simulate.time_of`). Emulated is (last rank done − first rank began), after the ranks' clocks have
been aligned. Each measurement is made twice, the second time beside three processes that burn the
cores. Parts follow each other, with small worlds first. A part that would begin after --minutes is
printed as "not run".
"""

from __future__ import annotations

import argparse
import contextlib
import io
import math
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tqdm import tqdm

from benchmarks._load import burning
from benchmarks._on_ranks import (
    BY_TORCH,
    Cell,
    Moments,
    asynchronous_server,
    moments_of,
    one_all_reduce,
    pipeline,
    training,
)
from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster
from ddpkit.link import Links, LinkSpec
from ddpkit.simulate import cost, schedule, time_of
from ddpkit.simulate.engine.operations import collective_ns, schedule_of
from ddpkit.simulate.engine.timing import makespan_ns

LINKS: tuple[LinkSpec, ...] = (
    "1 Gbit/s, 200 us",
    "25 Gbit/s, 10 us",
    {"hosts of": 4, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"},
)
SCHEDULES = ("ring", "butterfly", "tree", "master_worker", "all_to_all")
OPERATIONS = (*SCHEDULES, *BY_TORCH)
WORLDS = (2, 4, 8, 16, 32)
SIZES = (4 * 1024, 64 * 1024, 1024**2, 4 * 1024**2, 32 * 1024**2)
GOAL = (0.999, 1.001)
MOST = 8 * 1024**3  # bytes that a cell may hold, or move through this machine
BURNING = 3  # processes
RUNS = 20  # runs of the server
PARTS = ("ratios", "many", "pipelines", "servers", "wall", "measured")
AGREES, STEADY = 1.10, 1.15  # goals of measured compute: on free cores, and on busy cores


@dataclass(frozen=True)
class Extent:
    """The extent of the measurements."""

    worlds: tuple[int, ...] = WORLDS
    sizes: tuple[int, ...] = SIZES
    many: int = 64
    stages: tuple[int, ...] = (4, 16)
    runs: int = RUNS
    steps: int = 60


QUICK = Extent((2, 4), (4 * 1024, 1024**2), 16, (4,), 2, 10)


def exact_ns(operation: str, n: int, nbytes: int, links: Links) -> int:
    """Return the time of an operation by the rules, in ns."""
    if operation in BY_TORCH:
        return collective_ns(operation.removeprefix("torch "), nbytes, links)
    if links.equal:
        return cost(operation, n, nbytes, links.slowest)
    return time_of(schedule(operation, n, nbytes // 4), links).end_ns


def events_ns(operation: str, n: int, nbytes: int, links: Links) -> int:
    """Return the time by the event engine, in which each message takes whole nanoseconds."""
    if operation in BY_TORCH:
        plan = schedule_of(operation.removeprefix("torch "), nbytes, n)
        return makespan_ns(plan, links, 1)
    return makespan_ns(schedule(operation, n, nbytes // 4), links, 4)


def needs(operation: str, n: int, nbytes: int) -> int:
    """Return the bytes that all ranks together hold or send, the larger of the two numbers."""
    if operation in BY_TORCH:
        return 2 * n * nbytes
    plan = schedule(operation, n, n)
    return max(2 * n * nbytes, plan.sent() * nbytes // n)


def cells_of(n: int, sizes: tuple[int, ...]) -> tuple[list[Cell], list[Cell]]:
    """Return the cells of `n` ranks: the measured cells, and the cells left out."""
    cells = [(operation, size) for size in sizes for operation in OPERATIONS]
    return (
        [cell for cell in cells if needs(cell[0], n, cell[1]) <= MOST],
        [cell for cell in cells if needs(cell[0], n, cell[1]) > MOST],
    )


def took(n: int, link: LinkSpec, cells: list[Cell], speed: float = math.inf) -> dict[Cell, int]:
    """Return the ns of each operation on real ranks, from the first begin to the last end."""
    ranks = run(n, link, speed, moments_of, cells)
    return {cell: span_of([rank[cell] for rank in ranks]) for cell in cells}


def run(n: int, link: LinkSpec, speed: float, job: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the results of a job on the ranks of an emulated cluster."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # the warning about many ranks
        return Cluster(n, link=link, speed=speed, record=False).run(job, *args).results


def span_of(moments: list[Moments]) -> int:
    """Return the ns from the first rank's begin to the last rank's end."""
    return max(end for _, end in moments) - min(begin for begin, _ in moments)


LOADS = {"idle": 0, "loaded": BURNING}


@dataclass
class Ratios:
    """Emulated ÷ exact of all cells."""

    # (number of the link, ranks, cell) -> ratios
    found: dict[tuple[int, int, Cell], list[float]] = field(default_factory=dict)
    equal: int = 0  # number of times equal to the event engine's, to the nanosecond
    left_out: list[str] = field(default_factory=list)
    not_run: list[str] = field(default_factory=list)

    def row(self, link: int, n: int) -> list[str]:
        """Return a row: for each operation, the least and the greatest ratio of all sizes."""
        row = [str(Links.parse(LINKS[link], n)), str(n)]
        for operation in OPERATIONS:
            ratios = [
                ratio
                for (of, ranks, cell), each in self.found.items()
                if (of, ranks, cell[0]) == (link, n, operation)
                for ratio in each
            ]
            row.append(_between(ratios))
        return row

    def verdict(self) -> str:
        """Return a sentence on the ratios within the goal."""
        ratios = [ratio for each in self.found.values() for ratio in each]
        if not ratios:
            return "nothing was run"
        inside = sum(GOAL[0] <= ratio <= GOAL[1] for ratio in ratios)
        return (
            f"{inside} of {len(ratios)} within {GOAL[0]} to {GOAL[1]} ({len(self.found)} cells, "
            f"{' and '.join(LOADS)}); the least {min(ratios):.6f}, the greatest "
            f"{max(ratios):.6f}; {self.equal} equal to the event engine to the nanosecond"
        )


def all_ratios(extent: Extent, until: float = math.inf) -> Ratios:
    """Return emulated ÷ exact with free compute, on an idle and on a loaded machine."""
    ratios = Ratios()
    cases = [(n, link, load) for n in extent.worlds for link in range(len(LINKS)) for load in LOADS]
    for n, link, load in tqdm(cases, unit="case", leave=False, disable=None):
        if time.monotonic() > until:
            ratios.not_run.append(f"{n} ranks, {Links.parse(LINKS[link], n)}, {load}")
            continue
        cells, left_out = cells_of(n, extent.sizes)
        with burning(LOADS[load]):
            measured = took(n, LINKS[link], cells)
        for cell, ns in measured.items():
            exact = exact_ns(cell[0], n, cell[1], Links.parse(LINKS[link], n))
            ratios.found.setdefault((link, n, cell), []).append(ns / exact)
            ratios.equal += ns == events_ns(cell[0], n, cell[1], Links.parse(LINKS[link], n))
        if load == "idle" and link == 0:
            ratios.left_out += [
                f"{operation} of {_bytes(size)} on {n} ranks "
                f"({needs(operation, n, size) / 1024**3:.0f} GiB)"
                for operation, size in left_out
            ]
    return ratios


def measured_compute(extent: Extent, until: float = math.inf) -> list[list[str]]:
    """Return the ratios with `speed=1` on the first link, on an idle and on a loaded machine.

    Each operation has been done once before, because the first time takes longer.
    """
    rows = []
    for n in tqdm(extent.worlds, unit="case", leave=False, disable=None):
        if time.monotonic() > until:
            rows.append([str(n), "not run", *[""] * len(OPERATIONS)])
            continue
        cells, _ = cells_of(n, extent.sizes)
        warm_up = cells_of(n, extent.sizes[:1])[0]
        by_load = []
        for processes in LOADS.values():
            with burning(processes):
                by_load.append(took(n, LINKS[0], [*warm_up, *cells], 1.0))
        for size in extent.sizes:
            row = [str(n), _bytes(size)]
            for operation in OPERATIONS:
                if (operation, size) not in cells:
                    row.append("left out")
                    continue
                exact = exact_ns(operation, n, size, Links.parse(LINKS[0], n))
                row.append(" · ".join(f"{ns[operation, size] / exact:.3f}" for ns in by_load))
            rows.append(row)
    return rows


def many_ranks(n: int) -> str:
    """Return a sentence on one all_reduce of many ranks: its time, and its cost on this machine."""
    nbytes, begin = 1024**2, time.perf_counter()
    ranks = run(n, LINKS[0], math.inf, one_all_reduce, nbytes)
    real = time.perf_counter() - begin
    ratio = span_of([moments for moments, _ in ranks]) / exact_ns(
        "torch all_reduce", n, nbytes, Links.parse(LINKS[0], n)
    )
    memory = sum(bytes_ for _, bytes_ in ranks) / 1e9
    return (
        f"an all_reduce of 1 MB on {n} ranks: emulated ÷ exact {ratio:.6f}, in {real:.1f} s of "
        f"real time, {memory:.2f} GB of memory"
    )


def pipelines(extent: Extent) -> Iterator[str]:
    """Yield the times of pipelines beside (M + S - 1)(F + B).

    There are 8 micro-batches; a forward takes 20 ms, a backward 40 ms.
    """
    for stages in extent.stages:
        for order in ("gpipe", "1f1b"):
            by_load = []
            for processes in LOADS.values():
                with burning(processes):
                    ranks = run(stages, "unlimited", math.inf, pipeline, order, 8, "20 ms", "40 ms")
                by_load.append(span_of(ranks) / 1e6)
            exact = (8 + stages - 1) * 60
            text = ", ".join(f"{ms:.3f} ms" for ms in by_load)
            ok = all(abs(ms / exact - 1) <= 0.001 for ms in by_load)
            yield f"{order} of {stages} stages: {text}; exact {exact} ms {_ok(ok)}"


def servers(runs: int) -> str:
    """Return a sentence on the arrivals at an asynchronous server; every second run is loaded."""
    seen: dict[str, int] = {}
    for each in range(runs):
        with burning(BURNING * (each % 2)):
            came = run(5, LINKS[0], math.inf, asynchronous_server, 10, 20, 4)[0]
        seen[str(came)] = seen.get(str(came), 0) + 1
    return (
        f"arrivals at an asynchronous server, 4 workers, one four times slower: "
        f"{len(seen)} order{'s' * (len(seen) != 1)} and times in {runs} runs {_ok(len(seen) == 1)}"
    )


def wall_clock(steps: int) -> Iterator[str]:
    """Yield a training step's emulated and real time, on free cores and on busy cores.

    With DDP, the real step includes gloo's time to move gradients, and the emulated step has a link
    that takes no time. So the two times are not compared.
    """
    for name, n, together in (("1 rank", 1, False), ("2 ranks", 2, False), ("2 of DDP", 2, True)):
        emulated, real = [], []
        for processes in LOADS.values():
            with burning(processes):
                ranks = run(n, "unlimited", 1.0, training, steps, together)
            kept = [each for rank in ranks for each in rank[steps // 4 :]]
            emulated.append(statistics.median(e for e, _ in kept) * 1e3)
            real.append(statistics.median(r for _, r in kept) * 1e3)
        agrees, changes = emulated[0] / real[0], emulated[1] / emulated[0]
        judged = "" if together else f": {agrees:.3f} {_ok(1 / AGREES <= agrees <= AGREES)}"
        yield (
            f"a training step, {name}: emulated {emulated[0]:.1f} ms, real {real[0]:.1f} ms{judged}"
            f"; loaded: emulated {emulated[1]:.1f} ms, ×{changes:.3f} "
            f"{_ok(1 / STEADY <= changes <= STEADY)}, real {real[1]:.1f} ms, "
            f"×{real[1] / real[0]:.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few ranks, sizes and repetitions")
    parser.add_argument("--markdown", action="store_true", help="the tables as for BENCHMARKS.md")
    parser.add_argument("--part", action="append", choices=PARTS, help="this part, or several")
    parser.add_argument("--minutes", type=float, default=90, help="begin nothing more after these")
    options = parser.parse_args()
    extent = QUICK if options.quick else Extent()
    layout = as_markdown if options.markdown else as_text
    until = time.monotonic() + 60 * options.minutes
    print(machine(), flush=True)
    for part in PARTS:
        if part not in (options.part or PARTS):
            continue
        begin = time.monotonic()
        if begin > until:
            print(f"\n{part}: not run, {options.minutes:g} minutes were over")
            continue
        print()
        for line in _lines(part, extent, layout, until):
            print(line, flush=True)
        print(f"({part}: {(time.monotonic() - begin) / 60:.1f} minutes)", flush=True)


def _lines(
    part: str, extent: Extent, layout: Callable[[list[list[str]]], str], until: float
) -> Iterator[str]:
    """Yield the lines to print for one of `PARTS`, each as soon as it is known."""
    if part == "ratios":
        ratios = all_ratios(extent, until)
        yield "emulated ÷ exact, compute free: the least and the greatest of all sizes\n"
        rows = [ratios.row(link, n) for link in range(len(LINKS)) for n in extent.worlds]
        yield layout([["link", "ranks", *OPERATIONS], *rows])
        yield f"\n{ratios.verdict()}"
        yield f"left out, above 8 GiB: {'; '.join(ratios.left_out) or 'nothing'}"
        if ratios.not_run:
            yield f"not run, for the time was over: {'; '.join(ratios.not_run)}"
    elif part == "measured":
        yield f"emulated ÷ exact with measured compute, {LINKS[0]}: {' · '.join(LOADS)}\n"
        yield layout([["ranks", "S", *OPERATIONS], *measured_compute(extent, until)])
    elif part == "many":
        yield many_ranks(extent.many)
    elif part == "pipelines":
        yield from pipelines(extent)
    elif part == "servers":
        yield servers(extent.runs)
    else:
        yield from wall_clock(extent.steps)


def _between(ratios: list[float]) -> str:
    if not ratios:
        return "left out"
    low, high = f"{min(ratios):.6f}", f"{max(ratios):.6f}"
    return low if low == high else f"{low}–{high}"


def _bytes(n: int) -> str:
    return f"{n // 1024:,} kB"


def _ok(reached: bool) -> str:
    return "ok" if reached else "MISSED"


if __name__ == "__main__":
    main()
