"""The cost of small messages between ranks that are batch jobs, and between usual processes.

    python -m benchmarks.turns [--quick] [--markdown]

Prints the time and the processor time of a rank, and the same of a usual process, divided by the
rank's.

If there are more threads than cores, a usual process's thread that wakes up takes a core from a
running thread. The thread that loses its core to gloo's thread often holds the lock that gloo's
thread is about to try, and gloo's thread tries again and again without a pause. So ranks are batch
jobs, in which a thread that wakes up waits for a free core (`rank.process`). Here the ranks of
every second run make themselves usual processes again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from statistics import mean

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks import _report
from benchmarks._report import Figure, Sample, as_markdown, as_text, machine, table
from ddpkit import Cluster

MB = 1_000_000 // 4  # numbers of 4 bytes
USUAL = "usual processes"


def ring(x: torch.Tensor) -> None:
    """Send to the right, receive from the left."""
    rank, size, there = dist.get_rank(), dist.get_world_size(), torch.empty_like(x)
    sent = dist.isend(x, (rank + 1) % size)
    dist.recv(there, (rank - 1) % size)
    assert sent is not None
    sent.wait()


# name -> function, number of elements, number of calls
JOBS: dict[str, tuple[Callable[[torch.Tensor], object], int, int]] = {
    "40 rounds of a ring, 400 B": (ring, 100, 40),
    "20 all-reduces, 4 kB": (dist.all_reduce, 1_000, 20),
    "8 all-reduces, 4 MB": (dist.all_reduce, MB * 4, 8),
}


def work(job: str, batch: bool) -> tuple[float, float]:
    """Return the ms of a job on a rank, and the ms of processor time of all threads."""
    policy = os.SCHED_BATCH if batch else os.SCHED_OTHER
    for thread in os.listdir("/proc/self/task"):
        os.sched_setscheduler(int(thread), policy, os.sched_param(0))
    do, length, times = JOBS[job]
    x = torch.ones(length)
    dist.barrier()
    begun, computed = time.perf_counter(), time.process_time()
    for _ in range(times):
        do(x)
    return 1e3 * (time.perf_counter() - begun), 1e3 * (time.process_time() - computed)


def figures(ranks: int, runs: int, done: Callable[[], object]) -> list[Figure]:
    """Return two rows for each job, time and CPU time: batch jobs beside usual processes."""
    cluster = Cluster(ranks, record=False)
    cluster.run(work, "20 all-reduces, 4 kB", True)
    rows = []
    for job in JOBS:
        found: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        for _ in range(runs):
            for batch in (True, False):  # in turns
                took = cluster.run(work, job, batch).results
                found[batch].append((mean(ms for ms, _ in took), mean(cpu for _, cpu in took)))
                done()
        for column, what in enumerate(("time", "processor time of a rank")):
            ours, usual = (Sample.of(each[column] for each in found[b]) for b in (True, False))
            rows.append(Figure(f"{ranks} ranks, {job}: {what}", "ms", ours, {USUAL: usual}))
    return rows


def main() -> None:
    options = _report.options(__doc__)
    print(machine())
    sizes, runs = ((2,), 2) if options.quick else ((2, 4, 8), 7)
    with tqdm(total=len(sizes) * len(JOBS) * runs * 2, leave=False, disable=None) as watched:
        rows = [row for ranks in sizes for row in figures(ranks, runs, watched.update)]
    found = table("measured", rows, [USUAL])
    print((as_markdown if options.markdown else as_text)(found))


if __name__ == "__main__":
    main()
