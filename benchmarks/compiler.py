"""The cost of the first run that trains in a new Python, without and with torch's compiler.

    python -m benchmarks.compiler [--quick] [--markdown]

Prints the time of the run, from the call of `run` to its result, and the processor time of its
Python process and all descendants.

An optimizer imports torch's compiler, which takes a second or more, but does not use it. In each
rank, a stand-in takes the compiler's place (`ddpkit.rank.compiler`). In every second process of
this benchmark, the forkserver imports the compiler itself before ranks start, as for ranks that
compile.
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
LOADED = "imported once for all"
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphaned descendants become children of this process
FIRST = """
import sys, time
from ddpkit import Cluster
from ddpkit.cluster.local import launch

ranks, loaded = int(sys.argv[1]), sys.argv[2] == "True"
if loaded:
    launch.COMPILES = (b"optim",)

def train():
    import torch
    from ddpkit.rank import compiler
    torch.optim.SGD([torch.zeros(1)], 0.1).step()
    return compiler.is_loaded()

cluster = Cluster(ranks)
begun = time.perf_counter()
assert cluster.run(train).results == [loaded] * ranks
print(time.perf_counter() - begun)
"""


def first_run(ranks: int, loaded: bool) -> tuple[float, float]:
    """Return the seconds of the first run, and the processor time of all processes in seconds."""
    before = _processor_time()
    command = [sys.executable, "-c", FIRST, str(ranks), str(loaded)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    with suppress(ChildProcessError):  # wait for the forkserver, which ends after its launcher
        while True:
            os.wait()
    return float(done.stdout), _processor_time() - before


def _processor_time() -> float:
    of_children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return of_children.ru_utime + of_children.ru_stime


def figures(ranks: int, runs: int, done: Callable[[], object]) -> list[Figure]:
    """Return two rows, time and processor time: without the compiler, beside with the compiler."""
    found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(runs):
        for loaded in found:  # in turns
            found[loaded].append(first_run(ranks, loaded))
            done()
    rows = []
    for column, what in enumerate(("time", "processor time of all")):
        ours, others = (Sample.of(each[column] for each in both) for both in found.values())
        rows.append(Figure(f"{ranks} ranks, the first run: {what}", "s", ours, {LOADED: others}))
    return rows


def main() -> None:
    options = _report.options(__doc__)
    if not sys.platform.startswith("linux"):
        sys.exit("Only Linux has a forkserver here.")
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    print(machine())
    sizes, runs = ((2,), 2) if options.quick else ((2, 4), 7)
    with tqdm(total=len(sizes) * runs * 2, leave=False, disable=None) as watched:
        rows = [row for ranks in sizes for row in figures(ranks, runs, watched.update)]
    found = table("measured", rows, [LOADED])
    print((as_markdown if options.markdown else as_text)(found))


if __name__ == "__main__":
    main()
