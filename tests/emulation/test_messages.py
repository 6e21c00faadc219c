"""The time when a message moves: both sides are there, and groups and hosts share links."""

import math
import time

import pytest
import torch
import torch.distributed as dist

from benchmarks._on_ranks import Moments, align
from ddpkit import Cluster
from ddpkit.simulate import cost

pytestmark = pytest.mark.processes

MS = 1_000_000
LINK = "1 Gbit/s, 200 us"
BYTES = 4_200_000  # 33.6 ms


def late_receiver(nbytes: int, late: float) -> tuple[int, int]:
    """Return the time at which this rank posted its end of a message, and the time from there."""
    x = torch.ones(nbytes // 4)
    if dist.get_rank() == 1:
        time.sleep(late)
    begin = time.perf_counter_ns()
    if dist.get_rank() == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    return begin, time.perf_counter_ns() - begin


def test_bytes_wait_for_the_receive_but_the_latency_does_not():
    sent, received = Cluster(2, link=LINK, speed=math.inf).run(late_receiver, BYTES, 0.2).results
    assert received == (200 * MS, 33_600_000)
    assert sent == (0, 200 * MS - 200_000 + 33_600_000)


def test_both_there_at_once_take_latency_and_bytes():
    sent, received = Cluster(2, link=LINK, speed=math.inf).run(late_receiver, BYTES, 0.0).results
    assert received == (0, 200_000 + 33_600_000)
    assert sent == (0, 33_600_000)


@pytest.mark.parametrize("nbytes", [0, 4, 4000])
def test_a_send_is_not_over_before_its_receive_is_posted(nbytes: int):
    cluster = Cluster(2, link=LINK, speed=math.inf)
    sent, received = cluster.run(late_receiver, nbytes, 0.2).results
    assert sent == (0, 200 * MS)  # the bytes are through: they left 200 us before
    assert received == (200 * MS, nbytes * 8)


def groups_at_once(groups: int, nbytes: int) -> Moments:
    """Post all-reduces of several groups of all ranks at one time."""
    made = [dist.new_group() for _ in range(groups)]
    xs = [torch.ones(nbytes // 4) for _ in made]
    align()
    begin = time.perf_counter_ns()
    works = [dist.all_reduce(x, group=g, async_op=True) for x, g in zip(xs, made, strict=True)]
    for work in works:
        work.wait()
    return begin, time.perf_counter_ns()


@pytest.mark.parametrize("n", [2, 3])
def test_groups_share_one_wire(n: int):
    nbytes, cluster = 3_000_000, Cluster(n, link=LINK, speed=math.inf)
    wires = round(2 * (n - 1) / n * nbytes * 8)  # ns
    alphas = 2 * (n - 1) * 200_000
    for groups in (1, 2, 4):
        ranks = cluster.run(groups_at_once, groups, nbytes).results
        ns = max(end for _, end in ranks) - min(begin for begin, _ in ranks)
        assert groups * wires <= ns <= groups * wires + alphas
        if groups == 1:
            assert ns == cost("ring", n, nbytes, LINK)


def to_the_other_host(senders: int) -> Moments:
    """Send 1 MB from each of the first ranks to a rank of the other host."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    x = torch.ones(250_000)
    align()
    begin = time.perf_counter_ns()
    if rank < senders:
        dist.send(x, rank + half)
    elif half <= rank < half + senders:
        dist.recv(x, rank - half)
    return begin, time.perf_counter_ns()


@pytest.mark.parametrize("senders", [1, 2, 3])
def test_the_ranks_of_a_host_share_its_link(senders: int):
    link = {"hosts of": 3, "inside": "10 GB/s, 1 us", "between": "1 GB/s, 5 us"}
    ranks = Cluster(6, link=link, speed=math.inf).run(to_the_other_host, senders).results
    took = [end - begin for begin, end in ranks]
    assert took[3 : 3 + senders] == [5_000 + MS * (k + 1) for k in range(senders)]


def inside_a_host() -> Moments:
    """Send 1 MB from rank 0 to rank 1 on the same host, and from rank 2 to another host."""
    rank, x = dist.get_rank(), torch.ones(250_000)
    align()
    begin = time.perf_counter_ns()
    peer = {0: 1, 2: 3, 1: 0, 3: 2}[rank]
    if rank in (0, 2):
        dist.send(x, peer)
    else:
        dist.recv(x, peer)
    return begin, time.perf_counter_ns()


def test_inside_a_host_messages_move_by_the_ranks_own_links():
    link = {"hosts of": 3, "inside": "10 GB/s, 1 us", "between": "1 GB/s, 5 us"}
    ranks = Cluster(4, link=link, speed=math.inf).run(inside_a_host).results
    took = [end - begin for begin, end in ranks]
    assert took == [100_000, 101_000, MS, MS + 5_000]
