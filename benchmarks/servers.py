"""Parameter servers, measured on real ranks ÷ simulated, for 1 to 16 workers and 1 to 4 servers.

    python -m benchmarks.servers [--quick] [--markdown]

Prints measured ÷ simulated time until the last push has arrived, for each number of workers and
servers; and the simulator's processor time for up to 64 workers and servers, with Python's garbage
collector off, as usual, and on, in turns.

Lab 08's answers run on the emulated cluster: workers pull, compute for a stated time and push, and
synchronous servers answer. The simulator gets the same numbers. Then bounded servers with a bound
of 0 take the places of the synchronous servers, and must take the same time.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks._report import as_markdown, as_text, machine
from ddpkit import Cluster, Run, busy
from ddpkit.answers.lab08 import Bounded, Synchronous, done, pull, push, serve
from ddpkit.simulate import parameter_server
from ddpkit.simulate.engine import play

LINK, LENGTH, COMPUTE_NS, ROUNDS = "1 Gbit/s, 200 us", 250_000, 20_000_000, 3
WORKERS, SERVERS = tuple(range(1, 17)), (1, 2, 3, 4)
BOUNDED = ((1, 1), (4, 2), (16, 1), (16, 4))  # (workers, servers) with a bound of 0
GOAL = 0.02
MANY, TURNS = (1, 2, 4, 8, 16, 32, 64), 7  # workers, and as many servers


def job(bounded: bool, servers: int) -> None:
    """Serve, or train for some rounds, on a rank."""
    rank, ranks = dist.get_rank(), list(range(dist.get_world_size()))
    flat, workers = torch.zeros(LENGTH), ranks[servers:]
    if rank >= servers:
        for _ in range(ROUNDS):
            pull(flat, ranks[:servers])
            busy(COMPUTE_NS / 1e9)
            push(flat, ranks[:servers])
        done(ranks[:servers])
        return
    mine = flat.tensor_split(servers)[rank].clone()

    def update(old: torch.Tensor, gradient: torch.Tensor) -> None:
        old.sub_(gradient)

    rules: Any = (Synchronous, partial(Bounded, bound=0))
    serve(rules[bounded](mine, update, workers), len(mine), workers)


def last_push_ns(run: Run[Any], servers: int) -> int:
    """Return the time at which the last chunk of a gradient arrived, in ns from the start."""
    spans = run.trace.spans
    data = [
        span.end_ns for span in spans if span.rank < servers and span.is_recv and span.bytes > 8
    ]
    return max(data) - run.trace.start_ns


def measured(workers: int, servers: int, bounded: bool = False) -> int:
    """Return the time on real ranks, in ns."""
    cluster = Cluster(servers + workers, link=LINK, speed=math.inf)
    return last_push_ns(cluster.run(job, bounded, servers), servers)


def simulated(workers: int, servers: int) -> int:
    """Return the time by the simulator, in ns."""
    told = parameter_server(workers, servers, 4 * LENGTH, COMPUTE_NS, LINK, rounds=ROUNDS)
    return told.done_ns


def grid(workers: Sequence[int], servers: Sequence[int]) -> dict[tuple[int, int], float]:
    """Return measured ÷ simulated time, by (workers, servers)."""
    cells = [(w, s) for w in workers for s in servers]
    watched = tqdm(cells, unit="run", leave=False, disable=None)
    return {cell: measured(*cell) / simulated(*cell) for cell in watched}


def simulator_s(many: Sequence[int]) -> float:
    """Return the simulator's CPU seconds, for one server and for as many servers as workers."""
    begun = time.process_time()
    for workers in many:
        for servers in (1, workers):
            parameter_server(workers, servers, 4 * LENGTH, COMPUTE_NS, LINK)
    return time.process_time() - begun


def garbage(many: Sequence[int], turns: int) -> tuple[float, float]:
    """Return medians of the simulator's seconds: with the garbage collector off, and on."""
    usual, looked = [], []
    for _ in range(turns):
        usual.append(simulator_s(many))
        with mock.patch.object(play, "_no_look_for_garbage", nullcontext):
            looked.append(simulator_s(many))
    return statistics.median(usual), statistics.median(looked)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="1 and 2 workers, 1 and 2 servers")
    parser.add_argument("--markdown", action="store_true", help="the table as for BENCHMARKS.md")
    options = parser.parse_args()
    print(machine())
    workers, servers = ((1, 2), (1, 2)) if options.quick else (WORKERS, SERVERS)
    ratios = grid(workers, servers)
    rows = [["workers", *(f"{s} server{'s'[: s > 1]}" for s in servers)]]
    rows += [[str(w), *(f"{ratios[w, s]:.6f}" for s in servers)] for w in workers]
    print((as_markdown if options.markdown else as_text)(rows))
    worst = max(abs(ratio - 1) for ratio in ratios.values())
    verdict = "ok" if worst <= GOAL else "MISSED"
    print(f"\nworst deviation {worst:.4%} (goal ≤ {GOAL:.0%}: {verdict}), {len(ratios)} runs")
    for cell in BOUNDED[:1] if options.quick else BOUNDED:
        ratio = measured(*cell, bounded=True) / simulated(*cell)
        print(
            f"a bound of 0, {cell[0]} workers, {cell[1]} servers: measured ÷ simulated {ratio:.6f}"
        )
    many, turns = (MANY[:3], 1) if options.quick else (MANY, TURNS)
    usual, looked = garbage(many, turns)
    print(
        f"the simulator, up to {many[-1]} workers: {usual:.2f} s of processor time, and "
        f"{looked:.2f} s where garbage is looked for meanwhile ({looked / usual:.2f} times)"
    )


if __name__ == "__main__":
    main()
