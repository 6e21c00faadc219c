"""The cost of large traces, and its growth: `ddpkit trace`, `predict`, `tune` and a page.

    python -m benchmarks.traces [--quick] [--markdown]

Prints CPU seconds and memory of each command on a trace of 64 ranks and 200 steps, and on a trace
of a million spans; each trace comes in three sizes, and each size is double the size before.

The traces are data-parallel steps, made here and saved by `Trace.save`. Each command is a process
of its own, as for a user, so its seconds include the imports and the reading of the file. CPU
seconds count all threads, user and system time; memory is the peak of the process. The growth is
the largest size's seconds ÷ the smallest size's, after subtracting the seconds of the same command
on a trace of one step. The growth is 4 if the cost is linear.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._report import as_markdown, as_text, machine, options
from ddpkit.trace import Span, Trace

GOAL_S = {"trace": 5.0, "predict": 10.0, "tune": 10.0, "page": 15.0}  # CPU s at the largest size
GOAL_BYTES = 2_000_000_000
GOAL_GROWTH = 6.0  # for four times the size: 4 is linear, 16 is quadratic
MB = 2**20
NS = 1_000_000  # a step's parts are whole milliseconds
PAGE = "page"


@dataclass(frozen=True)
class Size:
    """A trace's ranks and steps; a rank has ``2 * layers + buckets + 3`` spans in a step."""

    ranks: int
    steps: int
    layers: int
    buckets: int = 2

    @property
    def spans(self) -> int:
        return self.ranks * self.steps * (2 * self.layers + self.buckets + 3)

    @property
    def label(self) -> str:
        return f"{self.ranks} ranks × {self.steps} steps, {self.spans:,} spans"

    def one_step(self) -> Size:
        return Size(self.ranks, 1, self.layers, self.buckets)


WIDE = [Size(64, steps, 6) for steps in (50, 100, 200)]
DEEP = [Size(8, 100, layers, 10) for layers in (150, 305, 620)]  # the last has a million spans


def spans(size: Size) -> Iterator[Span]:
    """Yield data-parallel steps: forwards, backwards with gradients, all_reduces, an optimizer."""
    layer = 10 * NS // size.layers
    share = size.layers // size.buckets
    end_of_step = 26 * NS
    for step in range(size.steps):
        for rank in range(size.ranks):
            at = step * end_of_step + rank * 1000
            yield Span(rank, "step", "step", "step", at, at + 25 * NS)
            for k in range(size.layers):
                yield Span(
                    rank, "compute", "Linear", "forward", at + k * layer, at + (k + 1) * layer
                )
            begin = at + size.layers * layer
            for k in range(size.layers):
                start = begin + k * layer
                facts = {"gradient": f"p{k}"}
                yield Span(
                    rank, "compute", "p", "backward", start, start + layer, MB // 4, args=facts
                )
            for k in range(size.buckets):
                start, bucket = begin + (k + 1) * share * layer, step * size.buckets + k
                yield Span(
                    rank, "comm", "all_reduce", "comm", start, start + layer // 2, share * MB // 4,
                    group="0", seq=bucket, ready_ns=start, args={"group_size": size.ranks},
                )  # fmt: skip
            done = at + 24 * NS
            yield Span(rank, "compute", "wait", "span", begin + 11 * NS, begin + 11 * NS)
            yield Span(rank, "compute", "SGD", "optimizer", done, at + 25 * NS)


def made(size: Size, folder: Path) -> Path:
    """Save the trace of a size, and return its file."""
    path = folder / f"{size.ranks}_{size.steps}_{size.layers}.json.gz"
    facts = {"backend": "gloo", "device": "cpu"}
    Trace(tuple(spans(size)), size.ranks, facts).save(path)
    return path


def apart(size: Size, folder: Path) -> Path:
    """Make a trace in another process: a process starts with its parent's peak of memory."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(made, size, folder).result()


def cost(command: str, path: Path) -> tuple[float, int]:
    """Return the CPU seconds and the peak of memory in bytes of a command on a trace."""
    page = ["--html", str(path.with_suffix(".html"))] if command == PAGE else []
    name = "trace" if command == PAGE else command
    started = subprocess.Popen(
        [sys.executable, "-m", "ddpkit", name, str(path), *page],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert started.stdout is not None
    said = started.stdout.read()
    _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise RuntimeError(f"ddpkit {name} failed on {path.name}: {said.decode()[-300:]}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(sizes: list[Size], commands: list[str], folder: Path) -> Iterator[list[str]]:
    """Yield a row of the table for each size and command."""
    bases = {each: cost(each, apart(sizes[0].one_step(), folder))[0] for each in commands}
    first: dict[str, float] = {}
    for size in sizes:
        path = apart(size, folder)
        for command in commands:
            seconds, held = cost(command, path)
            own = seconds - bases[command]
            first.setdefault(command, own)
            row = [size.label, command, f"{seconds:.1f} s", f"{held / 1e6:,.0f} MB"]
            if size is sizes[-1]:
                growth = own / first[command] if first[command] > 0 else float("inf")
                yield [*row, *verdict(command, seconds, held, growth)]
            else:
                yield [*row, "", ""]
        path.unlink()


def verdict(command: str, seconds: float, held: int, growth: float) -> list[str]:
    """Return the growth, and each goal with its verdict."""
    good = seconds <= GOAL_S[command] and held <= GOAL_BYTES and growth <= GOAL_GROWTH
    goal = f"≤ {GOAL_S[command]:g} s, ≤ {GOAL_BYTES / 1e9:g} GB, ≤ × {GOAL_GROWTH:g}"
    return [f"× {growth:.1f}", f"{goal}: {'ok' if good else 'MISSED'}"]


def main() -> None:
    chosen = options(__doc__)
    print(machine())
    rows = [["trace", "command", "CPU", "memory", "growth (size × 4)", "goals"]]
    quick = [[Size(4, steps, 6) for steps in (5, 10, 20)]]
    families = quick if chosen.quick else [each for each in (WIDE, DEEP) if each]
    with TemporaryDirectory() as folder:
        for sizes in families:
            rows += measure(sizes, [*GOAL_S], Path(folder))
    print((as_markdown if chosen.markdown else as_text)(rows))


if __name__ == "__main__":
    main()
