"""Stores, for the timekeeper, the operations that ranks have posted, with their ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from ddpkit.protocol.emulation import After
from ddpkit.simulate.engine.device import Item
from ddpkit.simulate.engine.posted import UNKNOWN, End, Part

KEPT = 16384  # operations of a rank; the ends of older operations are forgotten


@dataclass(slots=True, eq=False)
class Pending:
    """An operation that a rank has posted, or that will begin at the end of other operations."""

    end: End | Part | None = None  # None after the operation's end
    stand_ins: list[Part] = field(default_factory=list)  # the parts of absent ranks
    source: int = UNKNOWN  # the sender of a finished receive
    done_ns: int = UNKNOWN
    then: list[Callable[[int], None]] = field(default_factory=list)  # called with `done_ns`
    withdrawn: bool = False  # True if gloo has refused the operation
    met_ns: int = UNKNOWN  # when the last member posted, by that member's clock
    then_met: list[Callable[[int], None]] = field(default_factory=list)  # called with `met_ns`

    def meet(self, ns: int) -> None:
        """Record the time at which the last member has posted."""
        self.met_ns = ns
        waiting, self.then_met = self.then_met, []
        for tell in waiting:
            tell(ns)

    def finish(self, end: End | Part | Item) -> None:
        """Record the end of the operation."""
        self.source = _source(end)
        self.finish_at(end.done_ns)

    def finish_at(self, ns: int) -> None:
        """Record the time at which the operation is done."""
        self.done_ns, self.end = ns, None
        waiting, self.then = self.then, []
        for tell in waiting:
            tell(self.done_ns)


class Operations:
    """The operations of all ranks, by rank and number. Old finished operations are dropped."""

    def __init__(self, ranks: int) -> None:
        self._all: dict[tuple[int, int], Pending] = {}  # (rank, number) -> operation
        self._newest = [0] * ranks

    def posted(self, rank: int, number: int) -> Pending:
        """Return the operation that a rank has just posted."""
        self._newest[rank] = max(self._newest[rank], number)
        old = rank, number - KEPT
        if old in self._all and self._all[old].done_ns != UNKNOWN:
            del self._all[old]
        return self._all.setdefault((rank, number), Pending())

    def withdraw(self, rank: int, number: int) -> Pending:
        """Remove an operation that a rank has posted, and return the operation."""
        operation = self._all.pop((rank, number))
        operation.withdrawn = True
        return operation

    def source(self, rank: int, after: After) -> int:
        """Return the sender of the message that `after`'s first operation receives, or UNKNOWN."""
        operation = self._all.get((rank, after[0][0])) if after else None
        if operation is None:
            return UNKNOWN
        return operation.source if operation.end is None else _source(operation.end)

    def when_all_are_done(
        self, rank: int, after: After, tell: Callable[[int], None], latest: int = 0
    ) -> None:
        """Call `tell` with the latest time of `after`, once all its operations' ends are known."""
        oldest = self._newest[rank] - KEPT
        for place, (number, later) in enumerate(after):
            operation = self._all.get((rank, number))
            if operation is None:
                if number <= oldest:
                    continue  # the operation ended long ago, and has been forgotten
                # A thread's question may arrive before the post of a second thread's operation.
                operation = self._all[rank, number] = Pending()
            if operation.done_ns == UNKNOWN:
                operation.then.append(partial(self._look_again, rank, after[place:], tell, latest))
                return
            latest = max(latest, operation.done_ns + later)
        tell(latest)

    def meet(self, posts: Mapping[int, tuple[int, int]]) -> None:
        """Record that all members have posted an operation.

        `posts` has the operation's number and time on each rank.
        """
        last_ns = max(ns for _, ns in posts.values())
        for rank, (number, _) in posts.items():
            self.posted(rank, number).meet(last_ns)

    def when_posted(self, rank: int, after: After, tell: Callable[[int], None]) -> None:
        """Call `tell` with the time at which all members had posted an operation, once known."""
        ((number, _),) = after
        if self.is_forgotten(rank, after):
            tell(0)
            return
        operation = self._all.setdefault((rank, number), Pending())
        if operation.met_ns == UNKNOWN:
            operation.then_met.append(tell)
        else:
            tell(operation.met_ns)

    def _look_again(
        self, rank: int, after: After, tell: Callable[[int], None], latest: int, _: int
    ) -> None:
        self.when_all_are_done(rank, after, tell, latest)

    def is_forgotten(self, rank: int, after: After) -> bool:
        """True if an operation of `after` ended so long ago that its end is no longer stored."""
        oldest = self._newest[rank] - KEPT
        return any(n <= oldest and (rank, n) not in self._all for n, _ in after)


def _source(end: End | Part | Item) -> int:
    return end.peer if isinstance(end, End) else UNKNOWN
