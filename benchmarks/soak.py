"""Hundreds of random faults in a row: `python -m benchmarks.soak [N [SEED]]` (300 by default).

With `--emulated`, the faults happen on emulated clusters; on every other cluster, compute takes no
time. After each fault the same cluster must work; at the end no process, no file descriptor and no
folder may be left. The order is drawn from a fixed seed. Prints a table; the exit code is 1 after
any surprise.
"""

from __future__ import annotations

import contextlib
import io
import math
import random
import statistics
import sys
import threading
import time
from collections import defaultdict

import torch.distributed as dist
from tqdm import tqdm

from ddpkit import Cluster
from ddpkit.errors import RunFailed
from tests.cluster.faults import FAULTS, Fault
from tests.cluster.processes import becomes_true, descriptors, folders, ranks_alive

LINK = "1 Gbit/s, 200 us"


def main(count: int = 300, seed: int = 0, *, emulated: bool = False) -> int:
    rng = random.Random(seed)
    sizes = sorted({fault.world_size for fault in FAULTS})
    kinds = [{"link": LINK}, {"link": LINK, "speed": math.inf}] if emulated else [{}]
    clusters = [{size: Cluster(size, **kind) for size in sizes} for kind in kinds]
    for cluster in [cluster for of_kind in clusters for cluster in of_kind.values()]:
        cluster.run(dist.get_rank)
    before = descriptors()
    seconds: dict[str, list[float]] = defaultdict(list)
    surprises: list[str] = []
    progress = tqdm([rng.choice(FAULTS) for _ in range(count)], unit="fault", mininterval=1)
    for number, fault in enumerate(progress):
        took, surprise = one(clusters[number % len(kinds)][fault.world_size], fault)
        seconds[fault.name].append(took)
        if surprise:
            surprises.append(f"{number} {fault.name}: {surprise}")
            tqdm.write(surprises[-1])
    surprises += left_behind(before)
    report(seconds)
    print(f"{count} faults, {len(surprises)} surprises")
    print("\n".join(surprises))
    return 1 if surprises else 0


def one(cluster: Cluster, fault: Fault) -> tuple[float, str]:
    """Run a fault, then a healthy function; return the seconds to the message, and any surprise."""
    begun = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()):
        error = run(cluster, fault)
    took = time.perf_counter() - begun
    surprise = ""
    if type(error) is not fault.error:
        surprise = f"{type(error).__name__} instead of {fault.error.__name__}: {error}"
    elif missing := fault.missing(str(error), "script" if cluster.links is None else "emulated"):
        surprise = f"{missing} not in: {error}"
    results = cluster.run(dist.get_rank).results
    if results != list(range(cluster.world_size)):
        surprise += f"; after it the cluster returned {results}"
    return took, surprise


def run(cluster: Cluster, fault: Fault) -> BaseException | None:
    try:
        cluster.run(fault.function, timeout=fault.timeout or 60)
    except RunFailed as error:
        return error
    return None


def left_behind(descriptors_before: int) -> list[str]:
    found = []
    if not becomes_true(lambda: not ranks_alive(), 5):
        found.append(f"processes left: {ranks_alive()}")
    if descriptors() != descriptors_before:
        found.append(f"file descriptors: {descriptors_before} before, {descriptors()} after")
    if threads := [each.name for each in threading.enumerate() if "ddpkit" in each.name]:
        found.append(f"threads left: {threads}")
    if folders():
        found.append(f"folders left: {folders()}")
    return found


def report(seconds: dict[str, list[float]]) -> None:
    errors = {fault.name: fault.error.__name__ for fault in FAULTS}
    print(f"{'fault':28} {'times':>5} {'median s':>9} {'most s':>7}  error")
    for name, times in sorted(seconds.items(), key=lambda item: (errors[item[0]], item[0])):
        middle, most = statistics.median(times), max(times)
        print(f"{name:28} {len(times):5} {middle:9.2f} {most:7.2f}  {errors[name]}")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word != "--emulated"]
    sys.exit(main(*numbers, emulated="--emulated" in sys.argv))
