"""The rules agree: real ranks, the event engine and the closed forms give equal times, to
the ns."""

import math
import time

import pytest
import torch
import torch.distributed as dist

from benchmarks._on_ranks import Moments, align, carry_out
from ddpkit import Cluster
from ddpkit.link import Links
from ddpkit.simulate import cost, schedule
from ddpkit.simulate.engine.operations import OPERATIONS, collective_ns, schedule_of
from ddpkit.simulate.engine.timing import played
from ddpkit.simulate.messages.by_name import ALGORITHMS

pytestmark = pytest.mark.processes

LENGTH = 1200  # elements: n chunks are equal
TOPOLOGIES = {
    "equal": "1 GB/s, 7 us",
    "unequal": {"default": "1 GB/s, 7 us", 1: "300 MB/s", 2: "20 us"},
    "two tiers": {"hosts of": 2, "inside": "10 GB/s, 1 us", "between": "1 GB/s, 5 us"},
    "two tiers, one rank apart": {"hosts of": 3, "inside": "2 GB/s, 1 us", "between": "1 GB/s"},
}


def by_messages(roots: list[int]) -> dict[tuple[str, int], Moments]:
    """Return the times at which this rank began and ended each schedule of messages."""
    rank, n = dist.get_rank(), dist.get_world_size()
    found = {}
    for algorithm in ALGORITHMS:
        for root in roots:
            steps, x = schedule(algorithm, n, LENGTH, root).of(rank), torch.ones(LENGTH)
            align()
            begin = time.perf_counter_ns()
            carry_out(steps, x)
            found[algorithm, root] = begin, time.perf_counter_ns()
    return found


def by_torch(roots: list[int]) -> dict[tuple[str, int], Moments]:
    """Return the times at which this rank began and ended each collective of torch."""
    rank, n = dist.get_rank(), dist.get_world_size()
    x, part = torch.ones(LENGTH), torch.ones(LENGTH // n)
    parts = list(torch.ones(LENGTH).chunk(n))
    found = {}
    for root in roots:
        mine = rank == root
        collectives = {
            "all_reduce": lambda: dist.all_reduce(x),
            "all_gather": lambda: dist.all_gather(parts, part),
            "all_gather_into_tensor": lambda: dist.all_gather_into_tensor(x, part),
            "reduce_scatter": lambda: dist.reduce_scatter(part, parts),
            "reduce_scatter_tensor": lambda: dist.reduce_scatter_tensor(part, x),
            "all_to_all": lambda: dist.all_to_all([torch.empty_like(p) for p in parts], parts),
            "all_to_all_single": lambda: dist.all_to_all_single(torch.empty_like(x), x),
            "broadcast": lambda root=root: dist.broadcast(x, src=root),
            "reduce": lambda root=root: dist.reduce(x, dst=root),
            "scatter": lambda root=root, mine=mine: dist.scatter(
                part, parts if mine else None, src=root
            ),
            "gather": lambda root=root, mine=mine: dist.gather(
                part, parts if mine else None, dst=root
            ),
            "barrier": dist.barrier,
        }
        for name, collective in collectives.items():
            align()
            begin = time.perf_counter_ns()
            collective()
            found[name, root] = begin, time.perf_counter_ns()
    return found


def handed_in(operation: str, n: int) -> int:
    """Return the bytes that one rank hands in to an operation of `by_torch`."""
    if operation == "barrier":
        return 0
    parts = "all_gather", "all_gather_into_tensor", "reduce_scatter", "all_to_all"
    return 4 * LENGTH // (n if operation in (*parts, "scatter", "gather") else 1)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_ranks_event_engine_and_closed_form_agree(n: int, topology: str) -> None:
    spec = (
        {k: v for k, v in TOPOLOGIES[topology].items() if not isinstance(k, int) or k < n}
        if (isinstance(TOPOLOGIES[topology], dict))
        else TOPOLOGIES[topology]
    )
    links, roots = Links.parse(spec, n), sorted({0, n - 1})
    cluster = Cluster(n, link=links, speed=math.inf)
    messages, collectives = cluster.run(by_messages, roots), cluster.run(by_torch, roots)
    assert messages.results[0].keys() == {(name, root) for name in ALGORITHMS for root in roots}
    assert collectives.results[0].keys() == {(name, root) for name in OPERATIONS for root in roots}
    for algorithm, root in messages.results[0]:
        engine = played(schedule(algorithm, n, LENGTH, root), links, 4)
        ranks = took(messages.results, (algorithm, root))
        assert ranks == [part.done_ns for part in engine], (algorithm, root)
        if links.equal:
            assert max(ranks) == cost(algorithm, n, 4 * LENGTH, links.slowest)
    for operation, root in collectives.results[0]:
        nbytes = handed_in(operation, n)
        engine = played(schedule_of(operation, nbytes, n, root), links, 1)
        ranks, ends = took(collectives.results, (operation, root)), [p.done_ns for p in engine]
        if operation == "barrier":
            ends = [max(ends)] * n  # all ranks leave the barrier at one time
        assert ranks == ends, (operation, root)
        if links.equal or root == 0:
            assert max(ranks) == collective_ns(operation, nbytes, links)


def took(results: list[dict[tuple[str, int], Moments]], key: tuple[str, int]) -> list[int]:
    """Return each rank's ns from the common begin to its own end."""
    (begin,) = {result[key][0] for result in results}
    return [result[key][1] - begin for result in results]
