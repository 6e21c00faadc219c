"""The actors of a run, and the earliest time at which each actor can post its next operation."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddpkit.cluster.local.watched import Watched
from ddpkit.protocol.emulation import CHANGE, MAIN, TURN, Ask, Found

Place: TypeAlias = tuple[int, int]  # an actor's rank, and the actor's number on the rank


@dataclass(slots=True, eq=False)
class Actor:
    """A thread or callback that can post operations.

    An actor computes from the time `ns` on, or waits.
    """

    rank: int
    number: int
    ns: int = 0
    asks: Ask | None = None
    absent: bool = False  # True if the timekeeper does not wait for the actor, which stands still
    stood_still: bool = False  # True if the actor stood still in the user's code, until an answer
    found: bool = False  # True if the actor found its key before a rank reported the change


class Actors:
    """The actors of all ranks: main threads, other threads with questions, and callbacks."""

    def __init__(self, ranks: int) -> None:
        self._all = {(rank, MAIN): Actor(rank, MAIN) for rank in range(ranks)}
        self._watched: dict[int, Watched] = {}
        self._to_come: set[Place] = set()  # actors that begin at the end of an unfinished operation
        self._gone: set[Place] = set()  # actors that left before the timekeeper knew about them
        self._at_stores: set[Place] = set()  # actors during their turn at a store
        # the start of a standstill: real time in s, emulated time in ns; None without a standstill
        self._stands_since: tuple[float, int] | None = None
        self.standstills = 0  # number of standstills of actors in the user's code

    def watch(self, rank: int, watched: Watched) -> None:
        """Watch the main thread of a rank that has been started."""
        self._watched[rank] = watched

    def close(self) -> None:
        """Close the files that watch the ranks."""
        for watched in self._watched.values():
            watched.close()

    # Messages of ranks

    def heard(self, rank: int) -> None:
        """Record a message from a rank, which shows that the rank does not stand still."""
        self._watched[rank].go_on()

    def ask(self, rank: int, ask: Ask) -> Actor:
        """Record that an actor waits for the answer to a question; return the actor."""
        place = rank, ask.actor
        actor = self._all.setdefault(place, Actor(*place))
        actor.ns, actor.asks, actor.absent, actor.found = ask.ns, ask, False, False
        return actor

    def answer(self, actor: Actor, done_ns: int | None, present_ns: int) -> int:
        """End an actor's wait; return the present time for an actor that stood still, otherwise 0.

        ``done_ns`` is the latest end among the operations for which the actor waits; None if the
        wait's limit comes first.
        """
        asks = actor.asks
        assert asks is not None
        actor.asks = None
        limits = [ns for ns in (done_ns, asks.limit_ns) if ns is not None]
        now_ns = present_ns if actor.stood_still else 0
        actor.stood_still = False
        actor.ns = max(actor.ns, min(limits), now_ns)
        if asks.store == TURN:
            self._at_stores.add((actor.rank, actor.number))
        self.heard(actor.rank)
        return now_ns

    def will_come(self, place: Place) -> bool:
        """Record an actor that begins after an unfinished operation.

        Return False if the actor has left already.
        """
        if place in self._gone:
            self._gone.remove(place)
            return False
        self._to_come.add(place)
        return True

    def comes(self, place: Place, ns: int) -> bool:
        """Start, at `ns`, an actor that waited for an operation; False if the actor has left."""
        if place not in self._to_come:
            return False
        self._to_come.remove(place)
        self._all[place] = Actor(*place, ns)
        return True

    def left(self, place: Place) -> None:
        """Remove an actor after its last post."""
        if place in self._to_come:
            self._to_come.remove(place)
        elif self._all.pop(place, None) is None:
            self._gone.add(place)  # the actor's `Follow` arrives later, by another connection

    def unreachable(self, actor: Actor) -> None:
        """Remove an actor, because its process can receive no more messages."""
        self._all.pop((actor.rank, actor.number), None)

    def ended(self, rank: int) -> None:
        """Remove the actors of a rank that has ended."""
        for place in [place for place in self._all if place[0] == rank]:
            del self._all[place]
        self._at_stores = {place for place in self._at_stores if place[0] != rank}

    # Actors at stores

    def leaves_store(self, place: Place) -> None:
        """Record the end of an actor's turn at a store."""
        self._at_stores.discard(place)

    def has_found(self, rank: int, found: Found) -> None:
        """Record that an actor has found its key, if the actor still waits for the key."""
        actor = self._all.get((rank, found.actor))
        if actor is not None and actor.asks is not None:
            actor.found = actor.asks.store == CHANGE and actor.asks.question == found.question

    def wait_for_a_change(self) -> list[Actor]:
        """Return the actors that wait for a change in a store."""
        return [
            actor
            for actor in self._all.values()
            if actor.asks is not None and actor.asks.store == CHANGE
        ]

    def found_unseen(self) -> list[Actor]:
        """Return the waiting actors that found their key although no rank reported a change.

        During an actor's turn the list is empty, because the actor may report the change next.
        """
        if self._at_stores:
            return []
        return [actor for actor in self.wait_for_a_change() if actor.found]

    # The earliest times of posts

    def first_that_computes(self) -> float:
        """Return the earliest time at which a computing rank can post, in ns."""
        clocks = (a.ns for a in self._all.values() if a.asks is None and not a.absent)
        return min(clocks, default=math.inf)

    def first_with_a_limit(self) -> tuple[int, Actor] | None:
        """Return the earliest limit of all waits, and its actor; None if no wait has a limit."""
        asking = [
            (actor.asks.limit_ns, actor.rank, actor.number, actor)
            for actor in self._all.values()
            if actor.asks is not None and actor.asks.limit_ns is not None
        ]
        if not asking:
            return None
        limit, _, _, actor = min(asking, key=lambda found: found[:3])
        return limit, actor

    def present_ns(self, network_ns: int) -> int:
        """Return the emulated time for a change of a store at an unknown time.

        The change gets the earliest clock of a computing rank, but no time before
        ``network_ns``. ``network_ns`` is the time up to which the network has moved messages.
        """
        computing = self.first_that_computes()
        return network_ns if computing == math.inf else max(network_ns, int(computing))

    @property
    def held_up(self) -> bool:
        """True if an actor waits for an answer, which a computing rank may delay."""
        return any(actor.asks is not None for actor in self._all.values())

    @property
    def all_ask(self) -> bool:
        """True if there are actors, and all of them wait without a limit."""
        return bool(self._all) and all(
            actor.asks is not None and actor.asks.limit_ns is None for actor in self._all.values()
        )

    def clocks(self) -> dict[int, int]:
        """Return lower bounds of the clocks of computing ranks, by rank."""
        return {
            rank: self._watched[rank].ns()
            for (rank, number), actor in self._all.items()
            if number == MAIN and actor.asks is None and not actor.absent
        }

    def have_reached(self, clocks: dict[int, int]) -> None:
        """Record times from `clocks`: all posts before these times have arrived by now."""
        for rank, ns in clocks.items():
            actor = self._all.get((rank, MAIN))
            if actor is not None and actor.asks is None:
                actor.ns = max(actor.ns, ns)

    # Actors at a standstill

    def leave_out_who_stands_still(self, now: float, unmet: Sequence[bool]) -> None:
        """Stop waiting for actors that stand still at `now`, a time of `time.monotonic`.

        ``unmet`` is True for a rank that has posted an operation which a peer has not posted yet.
        """
        for (rank, number), actor in self._all.items():
            if actor.asks is not None or actor.absent:
                continue
            watched = self._watched[rank]
            if number != MAIN and watched.process_stands_still(now):  # the actor is a callback
                actor.absent = True
                self.standstills += 1
            elif number == MAIN and watched.stands_still(now, unmet=unmet[rank]):
                actor.absent = True
                actor.stood_still = watched.page.in_users_code
                self.standstills += actor.stood_still

    def may_go_on(self, rank: int) -> None:
        """Wait again for a rank that was left out during its wait in gloo, and can now continue.

        The rank continues as soon as a core is free, and may then post at its clock's time or
        later.
        """
        actor = self._all.get((rank, MAIN))
        if actor is not None and actor.absent and not actor.stood_still:
            actor.absent = False
            self.heard(rank)

    def as_far_as_real_time(self, present_ns: int) -> float:
        """Return the emulated time in ns up to which polls may advance while a rank stands still.

        During a standstill, polls let emulated time pass, but no faster than real time.
        """
        asking = {actor.rank for actor in self._all.values() if actor.asks is not None}
        if not any(
            actor.absent and actor.stood_still and actor.rank not in asking
            for actor in self._all.values()
        ):
            self._stands_since = None
            return math.inf
        if self._stands_since is None:
            clocks = [present_ns, *(actor.ns for actor in self._all.values())]
            self._stands_since = time.monotonic(), max(clocks)
        real, ns = self._stands_since
        return ns + 1e9 * (time.monotonic() - real)
