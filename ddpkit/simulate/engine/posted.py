"""Messages and parts of collectives that ranks have posted, and the sides of links they use."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TypeAlias

from ddpkit.link import LinkSide
from ddpkit.simulate.messages.schedules import Schedule, Step

UNKNOWN = -1  # stands for an unknown time or peer
Number: TypeAlias = tuple[int, int]  # number of a post, and of a step inside a collective's part
Order: TypeAlias = tuple[int, int, Number]  # time of sending, sending rank, number


@dataclass(slots=True, eq=False)
class End:
    """One end of a message, posted by a rank: the send or the receive.

    Times are in ns, and `UNKNOWN` until they are known.
    """

    rank: int
    posted_ns: int
    nbytes: int = 0
    round: int = 0
    number: Number = (0, 0)
    peer: int = UNKNOWN  # the peer; for a receive from any rank, unknown until a send matches
    done_ns: int = UNKNOWN  # a send: its side is free again; a receive: the last byte is in
    then: Callable[[End], None] | None = None  # called once `done_ns` is known
    # for a receive from any rank, called once `peer` is known
    found: Callable[[End], None] | None = None
    withdrawn: bool = False  # True if the rank took the post back before the message moved
    rounds: int = 1  # number of equal rounds in a row that this message stands for

    def find(self, peer: int) -> None:
        """Record the sender of the message that a receive from any rank takes."""
        self.peer = peer
        if self.found is not None:
            self.found(self)

    def finish(self, done_ns: int) -> None:
        """Record the time at which this send or receive is done."""
        self.done_ns = done_ns
        if self.then is not None:
            self.then(self)


@dataclass(slots=True, eq=False)
class Sender(LinkSide):
    """The outgoing side of a link. It carries messages in the order of their sends.

    A message is carried only when its receive is posted. A message that was sent first still goes
    first if its receive is posted at most `patience_ns` after the message could have left. The
    patience is at most the latency, because a receive that is late by less delays nothing. The
    patience is at most the message's own time on the wire, because the send might then be over.

    Messages wait in groups of equal patience. In a group the message that was sent first is also
    the first to be due, so only the first messages of the groups have to be compared.
    """

    looks_ns: int = UNKNOWN  # the time of the next look for messages to carry
    # patience in ns -> a heap of the messages with this patience
    _groups: dict[int, list[tuple[Order, Matched]]] = field(default_factory=dict)
    _patiences: list[int] = field(default_factory=list)  # the keys of `_groups`, sorted
    _soonest: Matched | None = None  # the message with the smallest `due`

    def add(self, message: Matched) -> None:
        """Add a message with its send and its receive posted."""
        if message.patience_ns not in self._groups:
            self._groups[message.patience_ns] = []
            insort(self._patiences, message.patience_ns)
        heappush(self._groups[message.patience_ns], (message.order, message))
        if self._soonest is None or message.due < self._soonest.due:
            self._soonest = message

    def soonest(self) -> Matched | None:
        """Return the message with the earliest due time; None if no message waits."""
        return self._soonest

    def take_due(self, now: int) -> Matched | None:
        """Remove and return the message that was sent first among those that are due.

        The caller lets the side carry the message, then calls `find_soonest`.
        """
        if self._soonest is None or self._soonest.due_ns > now:
            return None
        heads = self._heads(now - self.free_ns)
        _, message = min(head for head in heads if head[1].due_ns <= now)
        group = self._groups[message.patience_ns]
        heappop(group)
        if not group:
            del self._groups[message.patience_ns]
            self._patiences.remove(message.patience_ns)
        return message

    def find_soonest(self) -> None:
        """Find the message with the earliest due time again, after a change of `free_ns`."""
        self._soonest = None
        for patience in self._patiences:
            message = self._groups[patience][0][1]
            if self._soonest is not None and self.free_ns + patience > self._soonest.due_ns:
                break  # messages of this group and of later groups are due later
            if self._soonest is None or message.due < self._soonest.due:
                self._soonest = message

    def _heads(self, most: int) -> Iterator[tuple[Order, Matched]]:
        """Yield the first message of each group with a patience of at most `most` ns."""
        for patience in self._patiences:
            if patience > most:
                return
            yield self._groups[patience][0]


@dataclass(slots=True, eq=False)
class Matched:
    """A message with its send and its receive posted, before it moves."""

    send: End
    receive: End
    out: Sender
    into: LinkSide
    latency_ns: int
    patience_ns: int

    order: Order = field(init=False)  # a side carries the message with the smallest order first

    def __post_init__(self) -> None:
        self.order = self.send.posted_ns, self.send.rank, self.send.number

    @property
    def due_ns(self) -> int:
        """The time at which the side carries the message, unless an earlier send is due by then."""
        return max(self.send.posted_ns, self.out.free_ns) + self.patience_ns

    @property
    def due(self) -> tuple[int, Order]:
        """The key for comparing messages: the message with the smallest key is due first."""
        return self.due_ns, self.order


@dataclass(slots=True, eq=False)
class Channel:
    """The messages from one rank to another with only a send or only a receive posted."""

    sends: deque[End] = field(default_factory=deque)
    receives: deque[End] = field(default_factory=deque)


@dataclass(slots=True, eq=False)
class Part:
    """One rank's part in a collective: its steps, and the time at which it ends."""

    rank: int
    posted_ns: int
    number: Number
    steps: tuple[Step, ...]
    play: Play
    place: int = 0  # the rank's number in the group
    taken: int = 0  # number of steps taken
    open: int = 1  # sends without a known end, plus 1 until all steps are taken
    until_ns: int = 0  # the latest end of a step so far
    done_ns: int = UNKNOWN
    ends: list[tuple[Step, End]] = field(default_factory=list)  # kept for a trace
    then: Callable[[Part], None] | None = None  # called once `done_ns` is known
    before: Part | None = None  # the previous part in the same stream; None once this part begins
    following: Part | None = None
    withdrawn: bool = False  # True if the rank took the post back before the part began
    ended: Callable[[Part], None] | None = None  # the network's function, called when `open` is 0

    def closes(self, end: End) -> None:
        """Count the end of a send, as `close` does."""
        self.close(end.done_ns)

    def close(self, ns: int) -> None:
        """Count the end of a send, or the end of all steps. The last of these ends the part."""
        self.until_ns = max(self.until_ns, ns)
        self.open -= 1
        if not self.open and self.ended is not None:
            self.ended(self)


@dataclass(slots=True, eq=False)
class Play:
    """A collective under way: its members, and the messages in it."""

    key: tuple[Hashable, Hashable]  # the stream, and the collective's key in the stream
    members: tuple[int, ...]
    schedule: Schedule
    itemsize: int
    present: int  # the number of played members; each further member is a copy
    together: bool = False  # True if all ranks are done at one time
    after_all: bool = False  # True if no rank is done before all ranks have posted
    channels: dict[tuple[int, int], Channel] = field(default_factory=dict)
    posted: int = 0  # number of posted parts
    last_ns: int = 0  # time of the last post
    done: list[Part] = field(default_factory=list)

    def channel(self, src: int, dst: int) -> Channel:
        """Return the channel from one member to another, by the members' numbers in the group."""
        found = self.channels.get((src, dst))
        if found is None:
            found = self.channels[src, dst] = Channel()
        return found
