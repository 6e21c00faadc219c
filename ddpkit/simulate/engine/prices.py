"""Prices: the time of one all_reduce by an algorithm on any links, even with 4,096 ranks.

A `Price` is a function from bytes to ns. `replay` accepts any price: for example of a ring, of the
fastest algorithm for each bucket (NCCL chooses in this way), of half as many bytes, or from a
measured table.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeAlias

from ddpkit.asked import not_for
from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.engine.rounds import butterfly_ends, ring_ends
from ddpkit.simulate.engine.timing import makespan_ns
from ddpkit.simulate.messages.by_name import ALL_REDUCE, schedule
from ddpkit.simulate.messages.costs import cost

Price: TypeAlias = Callable[[int], int]  # bytes of an all_reduce -> ns

CHEAPEST = "cheapest"  # the cheaper of the two `CHOICES`, for each number of bytes
CHOICES = ("ring", "butterfly")
MOST_EVENTS = 64  # ranks; with more ranks, messages are not moved one by one
MANY = 256  # ranks; with more ranks, all chunks of a ring count as equally long


def price_of(algorithm: str, world_size: int, link: LinkSpec) -> Price:
    """Return the price of an all_reduce: a function from bytes to ns, with a cache.

    ``algorithm`` is a name in ALL_REDUCE, or "cheapest": the faster of ring and butterfly for each
    number of bytes. Raises ValueError for any other name, and for a bad link.
    """
    if algorithm not in (CHEAPEST, *ALL_REDUCE):
        raise ValueError(
            f"no all_reduce is called {algorithm!r}: choose {', '.join(ALL_REDUCE)} or {CHEAPEST!r}"
        )
    return lru_cache(None)(partial(all_reduce_ns, algorithm, links=Links.parse(link, world_size)))


def all_reduce_ns(algorithm: str, nbytes: int, links: Links) -> int:
    """Return the time of an all_reduce from the common start to the last rank's end, in ns.

    On equal links the algorithm's closed form gives the time. A ring on unequal links is played
    round by round, and every other case event by event. These three results are exact.

    Exact results for many ranks would take long to compute, so three cases use an approximation. In
    a ring of more than 256 ranks on unequal links, all chunks have one length, which is at most a
    byte too long. In recursive doubling with more than 64 ranks on hosts, all messages of a host in
    a round wait for each other. Other algorithms with more than 64 ranks use the slowest link for
    all ranks. In the last two cases the result is never below the exact time.
    """
    not_for("predict")
    n = len(links)
    if algorithm == CHEAPEST:
        return min(all_reduce_ns(each, nbytes, links) for each in CHOICES)
    if links.equal:
        return cost(algorithm, n, nbytes, links.slowest)
    if algorithm == "ring":
        return max(ring_ends(-(-nbytes // n) * n if n > MANY else nbytes, links))
    if algorithm == "butterfly" and links.host_count == 1:
        return max(butterfly_ends(nbytes, links))
    if n <= MOST_EVENTS:
        return makespan_ns(schedule(algorithm, n, nbytes), links, 1)
    if algorithm == "butterfly" and links.hosts is not None and len(set(links.each)) == 1:
        return _butterfly_on_hosts(nbytes, links, links.hosts.size)
    return cost(algorithm, n, nbytes, links.slowest)


def _butterfly_on_hosts(nbytes: int, links: Links, size: int) -> int:
    """Return the time of recursive doubling on hosts of ``size`` ranks, in ns.

    The first rounds stay inside the hosts. In all further rounds, the ranks of a host share the
    host's link. If the number of ranks is not a power of two, there are two more rounds between
    hosts.
    """
    assert links.hosts is not None
    n, inside, between = len(links), links.each[0], links.hosts.between
    doubled = n.bit_length() - 1
    near = min(doubled, size.bit_length() - 1) if size.bit_count() == 1 else 0
    far = doubled - near + 2 * (n.bit_count() > 1)
    near_ns = inside.latency_ns + inside.wire_ns(nbytes)
    return near * near_ns + far * (between.latency_ns + size * between.wire_ns(nbytes))
