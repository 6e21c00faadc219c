"""All-reduces computed with arrays, a round of all ranks at a time, by the rules of `ddpkit.link`.

`engine.network` moves one message after another, which is exact for every schedule and takes
minutes for a ring of 4,096 ranks. Here a round is a few operations on arrays with one element for
each rank. The result is exact, to the nanosecond, if no two messages of a round share a side of a
link: in a ring, also on hosts, and in recursive doubling if the ranks have separate links.

If all clocks are later by a constant when a round starts, they are later by the same constant when
the round ends. So as soon as all clocks have grown by the same constant over some rounds, the
remaining rounds need not be played.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpkit.asked import not_for
from ddpkit.link import Links
from ddpkit.simulate.messages.schedules import doublings

LOOKS = 8  # rounds between two looks at the clocks

if TYPE_CHECKING:
    import numpy as np

    Times: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]  # times in ns, one for each rank


def ring_ends(nbytes: int, links: Links, starts: Sequence[int] | None = None) -> list[int]:
    """Return the time at which each rank ends a ring all_reduce of ``nbytes`` bytes, in ns.

    ``starts`` has the time at which each rank begins, in ns; by default, all ranks begin at 0.
    """

    n = len(links)
    at = _starts(n, starts)
    if n == 1:
        return [int(at[0])]
    least, longer = divmod(nbytes, n)
    shown = n  # number of ranks that are computed
    if starts is None and not longer and links.hosts and not n % links.hosts.size:
        hosts = [links.each[i : i + links.hosts.size] for i in range(0, n, links.hosts.size)]
        shown = links.hosts.size if len(set(hosts)) == 1 else n  # one host stands for equal hosts
    rounds, at = 2 * (n - 1), at[:shown]
    edges = _Edges(links, [(rank, (rank + 1) % n) for rank in range(shown)])
    if longer:
        ends = _unequal_rounds(edges, at, rounds, least, longer)
    else:
        ends = _equal_rounds(edges, at, rounds, least, shown if shown < n else 1)
    return [int(end) for end in ends] * (n // shown)


def _unequal_rounds(edges: _Edges, at: Times, rounds: int, least: int, longer: int) -> Times:
    """Return the time at which each rank ends the rounds of a ring with unequal chunks.

    The first ``longer`` chunks have ``least`` + 1 bytes, the other chunks ``least`` bytes.
    """
    import numpy as np

    n = len(at)
    ranks, ends = np.arange(n), at
    for number in range(rounds):
        # Reduce-scatter begins with the chunk before the rank's own, all-gather with the own chunk.
        chunk = (ranks - number - 1) % n if number < n - 1 else (ranks - (number - n + 1)) % n
        got, sent = edges.move(at, np.roll(at, -1), least + (chunk < longer))
        at = np.roll(got, 1)
        ends = np.maximum(at, sent)
    return ends


def _equal_rounds(edges: _Edges, at: Times, rounds: int, nbytes: int, period: int) -> Times:
    """Return the time at which each rank ends the rounds of a ring with equal chunks.

    The rules are those of `_Edges.move`, but the loop makes no new arrays. Every few rounds, the
    clocks are compared with the clocks of ``period`` rounds before.
    """
    import numpy as np

    out, into = edges.wire_ns(nbytes)
    latency, behind = edges.latency, edges.latency + np.maximum(0, out - into)
    at, awaited, leaves = (np.array(at) for _ in range(3))
    out_free, in_free = edges.out_free, edges.in_free
    kept: tuple[int, Times] | None = None  # number of a round, and the clocks after it
    number = 0
    while number < rounds:
        awaited[:-1], awaited[-1] = at[1:], at[0]
        np.subtract(awaited, latency, out=leaves)
        np.maximum(leaves, at, out=leaves)
        np.maximum(leaves, out_free, out=leaves)
        np.add(leaves, out, out=out_free)
        np.add(leaves, behind, out=leaves)
        np.maximum(in_free, leaves, out=in_free)
        np.add(in_free, into, out=in_free)
        at[1:], at[0] = in_free[:-1], in_free[-1]
        number += 1
        if kept is not None and number == kept[0] + period:
            clocks = np.concatenate((at, out_free, in_free))
            later = clocks - kept[1]
            kept = None
            if (later == later[0]).all():  # now each period adds the same time to all clocks
                times = (rounds - number) // period
                number += times * period
                for clock in (at, awaited, out_free, in_free):
                    clock += times * int(later[0])
        elif kept is None and number % LOOKS == 0:
            kept = number, np.concatenate((at, out_free, in_free))
    return np.maximum(at, np.maximum(out_free, awaited))


def butterfly_ends(nbytes: int, links: Links, starts: Sequence[int] | None = None) -> list[int]:
    """Return the time at which each rank ends recursive doubling of ``nbytes`` bytes, in ns.

    If the number of ranks is not a power of two, the ranks beyond the largest power of two send
    only in the first round, and receive only in the last round. Raises ValueError for ranks that
    share hosts, because their messages share the links of the hosts.
    """
    import numpy as np

    if links.host_count > 1:
        raise ValueError(
            "recursive doubling on hosts cannot be computed round by round, because messages of "
            "several ranks share a host's link: give links without hosts"
        )
    n = len(links)
    began = _starts(n, starts)
    doubled = 2 ** (n.bit_length() - 1)
    beyond, low = n - doubled, np.arange(doubled)
    size = np.asarray(nbytes)
    free = _Free(links)
    at, ends = began[:doubled].copy(), began.copy()
    if beyond:
        folded = free.edges([(doubled + rank, rank) for rank in range(beyond)])
        at[:beyond], ends[doubled:] = folded.move(began[doubled:], at[:beyond], size)
    for k in range(doublings(doubled)):
        pairs = free.edges([(int(rank), int(rank) ^ 2**k) for rank in low])
        got, sent = pairs.move(at, at[low ^ 2**k], size)
        at = got[low ^ 2**k]
        ends[:doubled] = np.maximum(at, sent)
    if beyond:
        handed = free.edges([(rank, doubled + rank) for rank in range(beyond)])
        got, sent = handed.move(at[:beyond], began[doubled:], size)
        ends[:beyond] = np.maximum(ends[:beyond], sent)
        ends[doubled:] = np.maximum(ends[doubled:], got)
    return [int(end) for end in ends]


class _Edges:
    """The messages of one round. No two of them use the same side of a link."""

    def __init__(self, links: Links, pairs: Sequence[tuple[int, int]]) -> None:
        import numpy as np

        if links.host_count == 1:
            src, dst = np.array(pairs).T
            latencies, rates = _of_links(links)
            self.latency = np.maximum(latencies[src], latencies[dst])
            self.out_rate, self.in_rate = rates[src], rates[dst]
        else:
            routes = [links.route(*pair) for pair in pairs]
            self.latency = np.array([max(r.out.latency_ns, r.into.latency_ns) for r in routes])
            self.out_rate = np.array([route.out.bytes_per_s for route in routes])
            self.in_rate = np.array([route.into.bytes_per_s for route in routes])
        self.out_free, self.in_free = np.zeros((2, len(pairs)), dtype=np.int64)

    def wire_ns(self, nbytes: Any) -> tuple[Times, Times]:
        """Return how long messages take on the senders' and on the receivers' sides, in ns."""
        import numpy as np

        rates = np.broadcast_arrays(self.out_rate, self.in_rate)
        out, into = (np.rint(nbytes / rate * 1e9).astype(np.int64) for rate in rates)
        return out, into

    def move(self, sent: Times, awaited: Times, nbytes: Any) -> tuple[Times, Times]:
        """Return when each message is received, and when its sender is free again, in ns."""
        import numpy as np

        out, into = self.wire_ns(nbytes)
        leaves = np.maximum(np.maximum(sent, awaited - self.latency), self.out_free)
        self.out_free = leaves + out
        arrives = leaves + self.latency + np.maximum(0, out - into)
        self.in_free = np.maximum(arrives, self.in_free) + into
        return self.in_free, np.maximum(self.out_free, awaited)


class _Free:
    """The times at which the two sides of each rank's link are free again after a round."""

    def __init__(self, links: Links) -> None:
        import numpy as np

        self.links = links
        self.out, self.into = np.zeros((2, len(links)), dtype=np.int64)

    def edges(self, pairs: Sequence[tuple[int, int]]) -> _Edges:
        """Return the messages of a round between `pairs` (sender, receiver).

        The result's method `move` stores in this object when the sides are free again.
        """
        return _OwnSides(self, pairs)


class _OwnSides(_Edges):
    def __init__(self, free: _Free, pairs: Sequence[tuple[int, int]]) -> None:
        import numpy as np

        super().__init__(free.links, pairs)
        self.free = free
        self.src, self.dst = np.array(pairs).T
        self.out_free, self.in_free = free.out[self.src], free.into[self.dst]

    def move(self, sent: Times, awaited: Times, nbytes: Any) -> tuple[Times, Times]:
        moved = super().move(sent, awaited, nbytes)
        self.free.out[self.src], self.free.into[self.dst] = self.out_free, self.in_free
        return moved


@lru_cache(4)
def _of_links(links: Links) -> tuple[Any, Any]:
    """Return the latency in ns and the bytes per second of each rank's link."""
    import numpy as np

    return (
        np.array([link.latency_ns for link in links.each]),
        np.array([link.bytes_per_s for link in links.each]),
    )


def _starts(n: int, starts: Sequence[int] | None) -> Times:
    not_for("predict")
    import numpy as np

    if starts is not None and len(starts) != n:
        raise ValueError(
            f"starts= has {len(starts)} times for {n} ranks: give one time for each rank"
        )
    return np.zeros(n, dtype=np.int64) if starts is None else np.array(starts, dtype=np.int64)
