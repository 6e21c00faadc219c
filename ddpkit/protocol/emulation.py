"""The messages between ranks and the timekeeper of an emulated cluster.

A rank posts operations, and asks when operations are done. Each of these messages has the rank's
own emulated time. The rank's clock also moves between messages. So the rank writes its `ClockPage`
whenever it returns to the user's code, and the timekeeper reads this page. Times are in ns from the
start of the run.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

from ddpkit.protocol.mapped import MappedFile

STOPPED, GOING, WAITING, MAY_WAIT = range(4)  # states of a clock
MEETING = "meeting"  # the operation of ranks that make a group; no byte moves
TURN, CHANGE = 1, 2  # requests of an actor at a store
MAIN = 0  # the actor number of the main thread; an actor is a thread or callback with a clock

# A moment: the latest of several times. Each time is the end of an operation of the rank, plus a
# delay; a pair holds the operation's number and the delay in ns.
After: TypeAlias = tuple[tuple[int, int], ...]


# A launched item: number, time of the launch in ns, place, work in ns, priority of the stream, the
# operations before the item, and the number of the stream, where 0 is the default stream.
Launch: TypeAlias = tuple[int, int, str, int, int, After, int]
EVENT = ""  # in a `Launch`, stands for the place: an event takes no place on the device


class Launched(NamedTuple):
    """A message: items that a host has launched on its device, in the order of the launches."""

    items: tuple[Launch, ...]


# Starts and ends of a rank's finished events, messages and collectives, by number, in ns.
TimesOf: TypeAlias = dict[int, tuple[int, int]]


class SideStretch(NamedTuple):
    """A stretch of time in which kernels run on a stream other than the default stream."""

    stream: int
    start_ns: int
    end_ns: int
    kernels: int


class Starved(NamedTuple):
    """A stretch of time in which each kernel starts at its launch: the device waits for the host.

    waited_ns the part of this time in which the device computes nothing
    """

    start_ns: int
    end_ns: int
    launches: int
    waited_ns: int


class AskTimes(NamedTuple):
    """A message: the rank asks for the times of its operations since the last answer."""

    question: int


class DeviceTimes(NamedTuple):
    """The answer to an `AskTimes`."""

    question: int
    times: TimesOf
    busy: tuple[tuple[int, int], ...] = ()  # all stretches of the device's compute
    streams: tuple[SideStretch, ...] = ()
    starved: tuple[Starved, ...] = ()


class PostedSend(NamedTuple):
    """A message: a rank has posted a receive if ``receives`` is True, otherwise a send.

    ``peer`` is None for a receive from any rank.
    """

    number: int  # the operation's number on the rank
    ns: int
    group: str
    peer: int | None
    nbytes: int
    tag: int
    receives: bool
    after: After = ()  # operations that must end first


class PostedCollective(NamedTuple):
    """A message: a rank has posted its part in a collective."""

    number: int
    ns: int
    group: str
    seq: int  # equal on all members
    operation: str  # torch.distributed's name
    nbytes: int  # the bytes of one rank's input
    members: tuple[int, ...]
    root: int | None
    after: After = ()  # operations that must end first
    # for an all-to-all with unequal parts, the bytes to each member and from each member
    sends: tuple[int, ...] = ()
    takes: tuple[int, ...] = ()


class Withdrawn(NamedTuple):
    """A message: a post does not count, because gloo has refused the operation.

    The rank sends this message before its clock moves on.
    """

    post: PostedSend | PostedCollective


class Ask(NamedTuple):
    """A message: an ``actor`` of the rank asks when the operations ``after`` end, and waits.

    An actor is a thread of the rank, or a callback. The actor waits for the answer, at most until
    ``limit_ns``. With ``posted``, the actor asks for the time at which all members had posted the
    operations, not for the time at which the operations end. With ``store``, the actor asks for a
    `TURN` at a store, or for a `CHANGE` of a store, and ``after`` is empty.

    ``question`` is the number of the question on the rank. A signal's handler may end a wait before
    the answer comes. The number tells the rank that such a late answer belongs to an old question.
    """

    actor: int
    after: After
    ns: int
    limit_ns: int | None
    question: int = 0
    store: int = 0
    posted: bool = False


class StoreUsed(NamedTuple):
    """A message: an actor has used a store, so the actor's turn is over."""

    actor: int
    ns: int | None  # None while the actor's time is unknown
    changed: bool  # True if a waiting actor may find a key now


class Found(NamedTuple):
    """A message: an actor that waits for a change of a store has found the key by itself."""

    actor: int
    question: int


class Follow(NamedTuple):
    """A message: a new actor begins when an operation ends. `Left` reports the actor's end."""

    actor: int
    number: int


class Left(NamedTuple):
    """A message: an actor is finished. For the main thread, the rank's function has returned."""

    actor: int


class Due(NamedTuple):
    """The answer to an `Ask`: the time at which the operations end.

    ``done_ns`` is None if the operations do not end before the limit. If the timekeeper already
    knows a time later than the limit, ``done_ns`` is this time. If the rank stood still and its
    clock is behind, ``now_ns`` is the cluster's time.
    """

    actor: int
    question: int
    done_ns: int | None
    now_ns: int = 0
    source: int = -1  # if the first operation is a receive: the sending rank
    times: TimesOf | None = None  # new times, for a rank with a device


class Source(NamedTuple):
    """An answer: the sender of the message that a receive from any rank takes.

    The timekeeper gives this answer as soon as the sender is known.
    """

    number: int  # the receive's number on the rank
    rank: int


Request: TypeAlias = (
    PostedSend
    | PostedCollective
    | Withdrawn
    | Launched
    | Ask
    | AskTimes
    | StoreUsed
    | Found
    | Follow
    | Left
)


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A reading of a `ClockPage`: the clock's time, and its thread's CPU time at that moment."""

    ns: int
    cpu_ns: int


class ClockPage(MappedFile):
    """The state of the clock of a rank's main thread, in a file that the timekeeper maps too."""

    _LAYOUT = struct.Struct("<qqqq")  # version; `STOPPED` … `MAY_WAIT`; time; CPU time
    _AGENT = struct.Struct("<q")  # the agent's native id, stored after `_LAYOUT`
    size = _LAYOUT.size + _AGENT.size

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._version = 0

    @property
    def agent(self) -> int:
        """The native id of the rank's agent, a thread that runs while the rank stands still."""
        agent: int = self._AGENT.unpack_from(self._memory, self._LAYOUT.size)[0]
        return agent

    @agent.setter
    def agent(self, native_id: int) -> None:
        self._AGENT.pack_into(self._memory, self._LAYOUT.size, native_id)

    def stop(self) -> None:
        """Write that the clock stands still: the thread's CPU time from now on does not count."""
        self._memory[8] = STOPPED

    def wait(self) -> None:
        """Write that the thread waits for gloo, until the clock goes on."""
        self._memory[8] = WAITING

    def go(self, ns: int, cpu_ns: int, how: int = GOING) -> None:
        """Write that the clock goes on from the time `ns`.

        ``how``: `MAY_WAIT` if the thread may soon wait for gloo in C++, where it cannot report the
        wait; `WAITING` if the thread waits already.
        """
        self._version += 1
        # Write the times before the state. The thread may lose its core between the two writes: a
        # reader must not see a running clock with the CPU time of an earlier start.
        self._LAYOUT.pack_into(self._memory, 0, self._version, self._memory[8], ns, cpu_ns)
        self._memory[8] = how

    @property
    def in_users_code(self) -> bool:
        """True if the thread runs the user's code, and so does not wait for gloo."""
        return self._memory[8] == GOING

    @property
    def waits_for_gloo(self) -> bool:
        """True if the thread waits for gloo, and does nothing else before the wait ends."""
        return self._memory[8] == WAITING

    @property
    def may_wait_for_gloo(self) -> bool:
        """True if the thread may soon wait for gloo in C++, where it cannot report the wait."""
        return self._memory[8] == MAY_WAIT

    def read(self) -> ClockReading | None:
        """Return the time and the CPU time at which the clock last started.

        Returns None for a clock that stands still, and during a write.
        """
        before = bytes(self._memory[: self._LAYOUT.size])
        _, how, ns, cpu_ns = self._LAYOUT.unpack(before)
        again = bytes(self._memory[: self._LAYOUT.size])
        return ClockReading(ns, cpu_ns) if how != STOPPED and before == again else None
