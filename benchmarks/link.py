"""How close the emulated link comes to its rules.

    python -m benchmarks.link [--quick] [--markdown]

Prints measured ÷ formula for five algorithms on two links, and the CPU used while waiting.

Measured is the median over repetitions of (last rank done − first rank began); the formula is the
algorithm's closed form on the link (α latency, β bandwidth, S bytes, n ranks). Where the formula is
below 20 ms the ratio stands in brackets and is not judged: there the two cores of a laptop decide
when a rank runs, and not the link.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable

from tqdm import tqdm

from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster
from ddpkit.link import Link

LINKS = ("1 Gbit/s, 200 us", "100 Mbit/s, 1 ms")
WORLDS = (2, 4, 8)
SIZES = (64 * 1024, 1024**2, 4 * 1024**2, 32 * 1024**2)
JUDGED_S = 0.020
GOAL = (0.95, 1.10)
LONGEST_S = 12.0  # a row whose formula takes longer is left out, and said

Formula = Callable[[int, float, float], float]  # (n, α in s, S/β in s) -> s

FORMULAS: dict[str, Formula] = {
    "ring": lambda n, a, wire: 2 * (n - 1) * a + 2 * (n - 1) / n * wire,
    "torch all_reduce": lambda n, a, wire: 2 * (n - 1) * a + 2 * (n - 1) / n * wire,
    "master-worker": lambda n, a, wire: 2 * a + 2 * (n - 1) * wire,
    "all-to-all": lambda n, a, wire: a + (n - 1) * wire,
    "broadcast": lambda n, a, wire: math.ceil(math.log2(n)) * (a + wire),
}


def measure(names: list[str], nbytes: int, repeats: int) -> dict[str, list[tuple[float, float]]]:
    """On a rank: begin and end of each repetition of each algorithm."""
    import torch
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(nbytes // 4)
    others = [torch.empty_like(x) for _ in range(n)] if "all-to-all" in names else []

    def ring() -> None:
        chunks, received = list(x.chunk(n)), torch.empty_like(x.chunk(n)[0])
        for step in range(2 * (n - 1)):
            sending = dist.isend(chunks[(rank - step) % n], (rank + 1) % n)
            dist.recv(received, (rank - 1) % n)
            sending.wait()

    def master_worker() -> None:
        if rank == 0:
            for peer in range(1, n):
                dist.recv(x, peer)
            for work in [dist.isend(x, peer) for peer in range(1, n)]:
                work.wait()
        else:
            dist.send(x, 0)
            dist.recv(x, 0)

    def all_to_all() -> None:
        works = [dist.isend(x, (rank + k) % n) for k in range(1, n)]
        works += [dist.irecv(others[k], (rank - k) % n) for k in range(1, n)]
        for work in works:
            work.wait()

    run = {
        "ring": ring,
        "torch all_reduce": lambda: dist.all_reduce(x),
        "master-worker": master_worker,
        "all-to-all": all_to_all,
        "broadcast": lambda: dist.broadcast(x, src=0),
    }
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(repeats):
        for name in names:
            dist.barrier()
            begin = time.perf_counter()
            run[name]()
            times[name].append((begin, time.perf_counter()))
    return times


def cpu_share() -> float:
    """On a rank: CPU seconds per second while a long collective waits for the link."""
    import torch
    import torch.distributed as dist

    x = torch.ones(1024**2 // 4)
    dist.all_reduce(x)
    wall, cpu = time.perf_counter(), time.process_time()
    dist.all_reduce(x)
    return (time.process_time() - cpu) / (time.perf_counter() - wall)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repetitions")
    parser.add_argument("--markdown", action="store_true", help="the table as for BENCHMARKS.md")
    options = parser.parse_args()
    sizes, repeats = (SIZES[1:3], 3) if options.quick else (SIZES, 5)
    print(machine())
    cases = [(link, n, size) for link in LINKS for n in WORLDS for size in sizes]
    judged: list[float] = []
    rows = []
    for link, n, nbytes in tqdm(cases, unit="case", leave=False, disable=None):
        alpha, wire = Link.parse(link).latency_ns / 1e9, Link.parse(link).wire_ns(nbytes) / 1e9
        expected = {name: formula(n, alpha, wire) for name, formula in FORMULAS.items()}
        names = [name for name in FORMULAS if expected[name] <= LONGEST_S]
        longest = max(expected[name] for name in names)
        results = (
            Cluster(n, link=link).run(measure, names, nbytes, 2 if longest > 2 else repeats).results
        )
        cells = []
        for name in FORMULAS:
            if name not in names:
                cells.append("too long")
                continue
            spans = zip(*(times[name] for times in results), strict=True)
            took = statistics.median(
                max(e for _, e in each) - min(b for b, _ in each) for each in spans
            )
            ratio = took / expected[name]
            cells.append(f"{ratio:.2f}" if expected[name] >= JUDGED_S else f"({ratio:.2f})")
            if expected[name] >= JUDGED_S:
                judged.append(ratio)
        rows.append([link, str(n), f"{nbytes // 1024:,} kB", *cells])
    layout = as_markdown if options.markdown else as_text
    print(layout([["link", "ranks", "S", *FORMULAS], *rows]))
    median = statistics.median(judged)
    inside = sum(GOAL[0] <= ratio <= GOAL[1] for ratio in judged) / len(judged)
    print(f"\nmeasured ÷ formula, where the formula says ≥ 20 ms: median {median:.3f}, ", end="")
    print(f"{inside:.0%} of {len(judged)} within {GOAL[0]} to {GOAL[1]} (in brackets: below 20 ms)")
    shares = Cluster(2, link="4 Mbit/s").run(cpu_share).results
    print(f"CPU of a rank while it waits for the link: {max(shares):.1%} of a core (goal < 5%)")


if __name__ == "__main__":
    main()
