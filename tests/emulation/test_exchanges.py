"""An all-to-all with equal or unequal splits takes the time of the same transfers as messages."""

from __future__ import annotations

import math
import random
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, busy
from ddpkit.exercises.ranks import call
from ddpkit.link import Links
from ddpkit.simulate import program_ns
from ddpkit.simulate.engine.operations import collective_ns, exchange, schedule_of
from ddpkit.simulate.engine.timing import makespan_ns, played
from ddpkit.trace.intervals import Interval

pytestmark = pytest.mark.processes

LINKS: dict[str, Any] = {
    "equal": "1 Gbit/s, 7 us",
    "unequal": {"default": "1 Gbit/s, 7 us", 0: "300 Mbit/s"},
    "hosts": {"hosts of": 2, "inside": "10 Gbit/s, 1 us", "between": "1 Gbit/s, 5 us"},
}
PARTS = {  # name -> function that returns the count of numbers from rank r of n to rank p
    "all to rank 0": lambda n, r, p: 100_000 if p == 0 else 0,
    "only rank 0 sends": lambda n, r, p: 1000 * (p + 1) if r == 0 else 0,
    "one longer": lambda n, r, p: 1001 if (r, p) == (0, n - 1) else 1000,
    "by sender and receiver": lambda n, r, p: 500 * (r + 1) * (p + 2),
    "some nothing": lambda n, r, p: random.Random(f"{r} {p}").choice((0, 7000, 1)),
    "equal": lambda n, r, p: 1000,
    "nothing": lambda n, r, p: 0,
}


def sizes(name: str, n: int) -> list[list[int]]:
    return [[PARTS[name](n, rank, peer) for peer in range(n)] for rank in range(n)]


def by_collective(parts: list[list[int]]) -> Interval:
    """Exchange the parts in a single collective."""
    rank = dist.get_rank()
    sends, takes = parts[rank], [sent[rank] for sent in parts]
    x, coming = torch.full((sum(sends),), float(rank)), torch.empty(sum(takes))
    dist.barrier()
    begin = time.perf_counter_ns()
    dist.all_to_all_single(coming, x, takes, sends)
    end = time.perf_counter_ns()
    assert coming.tolist() == [float(r) for r, many in enumerate(takes) for _ in range(many)]
    return begin, end


def by_messages(parts: list[list[int]]) -> Interval:
    """Exchange the parts in messages, round by round; parts without bytes need no message."""
    rank, n = dist.get_rank(), dist.get_world_size()
    dist.barrier()
    begin, works = time.perf_counter_ns(), []
    for round in range(1, n):
        to, source = (rank + round) % n, (rank - round) % n
        if parts[rank][to]:
            works.append(dist.isend(torch.zeros(parts[rank][to]), to))
        if parts[source][rank]:
            dist.recv(torch.empty(parts[source][rank]), source)
    for work in works:
        work.wait()
    return begin, time.perf_counter_ns()


def durations(run: Any) -> list[int]:
    assert len({begin for begin, _ in run.results}) == 1
    return [end - begin for begin, end in run.results]


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_collective_messages_and_engine_agree(n: int, link: str) -> None:
    links = Links.parse(LINKS[link], n)
    cluster = Cluster(n, link=links, speed=math.inf)

    def all_of_them(every: list[list[list[int]]]) -> list[list[int]]:
        found = []
        for parts in every:
            took = []
            for exchanged in (by_collective, by_messages):
                begin, end = exchanged(parts)
                took.append(end - begin)
                busy("100 ms")  # then the next barrier is posted when all links are free
            found.append(took)
        return found

    every = [sizes(name, n) for name in PARTS]
    results = cluster.run(all_of_them, every).results
    for number, (name, parts) in enumerate(zip(PARTS, every, strict=True)):
        in_bytes = [[4 * part for part in row] for row in parts]
        plan = exchange("all_to_all_single", in_bytes)
        engine = [part.done_ns for part in played(plan, links, 1)]
        assert [result[number] for result in results] == [[ns, ns] for ns in engine], name
        if name in ("equal", "nothing"):
            nbytes = sum(in_bytes[0])
            assert plan == schedule_of("all_to_all_single", nbytes, n)
            assert max(engine) == collective_ns("all_to_all_single", nbytes, links)
            assert makespan_ns(plan, links, 1) == max(engine)


def test_what_all_send_to_one_rank_comes_by_its_link() -> None:
    """Three ranks send 4 MB each over the link of rank 0, which has 1 Gbit/s."""
    cluster = Cluster(4, link="1 Gbit/s, 0 us", speed=math.inf)
    to_rank_0 = [[1_000_000, 0, 0, 0]] * 4
    assert max(durations(cluster.run(by_collective, to_rank_0))) == 96_000_000
    even = [[250_000] * 4] * 4
    assert max(durations(cluster.run(by_collective, even))) == 24_000_000


def with_products(parts: list[list[int]]) -> None:
    """Exchange beside a matrix product, among ranks of unequal speed, in two groups."""
    rank, n = dist.get_rank(), dist.get_world_size()
    sends, takes = parts[rank], [sent[rank] for sent in parts]
    x, coming = torch.ones(sum(sends)), torch.empty(sum(takes))
    side = torch.ones(64 * (rank + 1), 64)
    work = dist.all_to_all_single(coming, x, takes, sends, async_op=True)
    _ = side @ side.mT
    work.wait()
    dist.all_to_all_single(torch.empty(4 * n), torch.ones(4 * n))


@pytest.mark.parametrize("name", ["all to rank 0", "by sender and receiver", "some nothing"])
def test_the_program_of_the_ranks_takes_as_long(name: str) -> None:
    machine, link, parts = "1 GFLOP/s, 10 GB/s", "1 Gbit/s, 20 us", sizes(name, 3)
    did = call(with_products, parts, world_size=3, machine=machine, link=link)
    windows = [did.trace.window_of(rank) for rank in range(3)]
    took = max(end for _, end in windows) - windows[0][0]
    assert program_ns(did.programs, machine, link) == took > 0
    handed_in = [[span.bytes for span in did.trace.of(rank) if span.is_comm] for rank in range(3)]
    assert handed_in == [[4 * sum(parts[rank]), 48] for rank in range(3)]


@pytest.mark.parametrize(
    ("forged", "says"),
    [
        (["exchange", 1, "all_reduce", [1, 1], [1, 1], "", [0, 1], 1], "needs a known kind"),
        (["exchange", 1, "all_to_all", [1], [1, 1], "", [0, 1], 1], "one part for each member"),
        (["exchange", 1, "all_to_all", [1, -1], [1, 1], "", [0, 1], 1], "below 0"),
        (
            ["exchange", 1, "all_to_all", [1] * 3, [1, 1], "", [0, 1], 1],
            "at most one number for each rank",
        ),
        (["exchange", 1, "all_to_all", 7, [1, 1], "", [0, 1], 1], "must be a list"),
        (["exchange", 1, "all_to_all", [1], [1], "", [1], 1], "to which the rank does not belong"),
        (["exchange", 1, "all_to_all", [0, 0], [0, 9], "", [0, 1], 1], "block forever"),
    ],
)
def test_what_is_no_exchange_earns_nothing(forged: list[Any], says: str) -> None:
    other = ["exchange", 1, "all_to_all", [0, 0], [0, 0], "", [0, 1], 1]
    programs = [[forged, ["wait", 1]], [other, ["wait", 1]]]
    with pytest.raises(ValueError, match=says):
        program_ns(programs, "1 TFLOP/s", "1 Gbit/s")
