"""What the first run that trains costs in a new Python: who imports torch's compiler.

    python -m benchmarks.compiler [--quick] [--markdown]

Prints the time of that run, from the call of `run` to its result, and the processor time of its
Python and of all that this has started.

An optimizer's constructor imports the compiler, for a second and more. The forkserver imports it
once for all ranks where the launcher asks for that (`launch.load_compiler_for`). In every second
Python here the launcher never asks, so each rank imports it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tqdm import tqdm

from benchmarks import _report
from benchmarks._report import Figure, Sample, as_markdown, as_text, machine, table

ROOT = Path(__file__).parents[1]
BY_RANKS = "imported by each rank"
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: who has lost its parent becomes a child of this process
FIRST = """
import sys, time
from ddpkit import Cluster
from ddpkit.cluster.local import launch

ranks, asks = int(sys.argv[1]), sys.argv[2] == "True"
if not asks:
    launch.COMPILES = ()

def train():
    import torch
    return type(torch.optim.SGD([torch.zeros(1)], 0.1)).__name__

cluster = Cluster(ranks)
begun = time.perf_counter()
assert cluster.run(train).results == ["SGD"] * ranks
print(time.perf_counter() - begun)
"""


def first_run(ranks: int, asks: bool) -> tuple[float, float]:
    """The seconds of the first run, and the processor time of all processes, in seconds."""
    before = _processor_time()
    command = [sys.executable, "-c", FIRST, str(ranks), str(asks)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    with suppress(ChildProcessError):  # the forkserver, which ends after its launcher
        while True:
            os.wait()
    return float(done.stdout), _processor_time() - before


def _processor_time() -> float:
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of_children.ru_utime + of_children.ru_stime


def figures(ranks: int, runs: int, done: Callable[[], object]) -> list[Figure]:
    """Two rows: time and processor time, where the launcher asks beside where it does not."""
    found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(runs):
        for asks in (True, False):  # in turns
            found[asks].append(first_run(ranks, asks))
            done()
    rows = []
    for column, what in enumerate(("time", "processor time of all")):
        ours, others = (Sample.of(each[column] for each in found[asks]) for asks in (True, False))
        rows.append(Figure(f"{ranks} ranks, the first run: {what}", "s", ours, {BY_RANKS: others}))
    return rows


def main() -> None:
    options = _report.options(__doc__)
    if not sys.platform.startswith("linux"):
        sys.exit("Only Linux has a forkserver here: elsewhere each rank imports all.")
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    print(machine())
    sizes, runs = ((2,), 2) if options.quick else ((2, 4), 7)
    with tqdm(total=len(sizes) * runs * 2, leave=False, disable=None) as watched:
        rows = [row for ranks in sizes for row in figures(ranks, runs, watched.update)]
    found = table("what", rows, [BY_RANKS])
    print((as_markdown if options.markdown else as_text)(found))


if __name__ == "__main__":
    main()
