"""Prices: the time of one all_reduce by an algorithm on any links, even with 4,096 ranks.

A `Price` is a function, bytes -> ns. `replay` takes any price: of a ring, of the cheapest algorithm
for each bucket (NCCL chooses in this way), of half as many bytes, or from a measured table.
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
    """Return the price of an all_reduce: a function, bytes -> ns, which remembers its answers.

    ``algorithm`` is one of ALL_REDUCE, or "cheapest": the faster of ring and butterfly for each
    number of bytes. Raises ValueError for another name or a bad link.
    """
    if algorithm not in (CHEAPEST, *ALL_REDUCE):
        raise ValueError(
            f"no all_reduce is called {algorithm!r}: choose {', '.join(ALL_REDUCE)} or {CHEAPEST!r}"
        )
    return lru_cache(None)(partial(all_reduce_ns, algorithm, links=Links.parse(link, world_size)))


def all_reduce_ns(algorithm: str, nbytes: int, links: Links) -> int:
    """Return the time of an all_reduce from the common start to the last rank's end, in ns.

    Equal links use the closed form of the algorithm; a ring on unequal links is played round by
    round, and every other case event by event: all three are exact. For many ranks they would take
    long. Therefore a ring of more than 256 ranks on unequal links has chunks of one length, which
    are at most a byte too long. With more than 64 ranks, recursive doubling on hosts lets all
    messages of a host's round wait for each other, and other algorithms take the slowest link for
    all ranks: these two results are at least the true time.
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
    host's link. If the number of ranks is no power of two, there are two more of these rounds.
    """
    assert links.hosts is not None
    n, inside, between = len(links), links.each[0], links.hosts.between
    doubled = n.bit_length() - 1
    near = min(doubled, size.bit_length() - 1) if size.bit_count() == 1 else 0
    far = doubled - near + 2 * (n.bit_count() > 1)
    near_ns = inside.latency_ns + inside.wire_ns(nbytes)
    return near * near_ns + far * (between.latency_ns + size * between.wire_ns(nbytes))
