"""The messages between ranks and the timekeeper of an emulated cluster.

A rank posts operations, and asks when operations are done. Posts and questions hold the rank's own
emulated time. A clock also moves between messages: whenever a rank goes back to the user's code,
the rank writes the `ClockPage`, and the timekeeper reads the page. Times are in ns from the start
of the run.
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
EVENT = ""  # the place of an event, with no work


class Launched(NamedTuple):
    """Items that a host has launched on the device, in the order of the launches."""

    items: tuple[Launch, ...]


# Starts and ends of a rank's finished events, messages and collectives, by number, in ns.
TimesOf: TypeAlias = dict[int, tuple[int, int]]


class SideStretch(NamedTuple):
    """A stretch in which kernels of a stream other than the default stream run."""

    stream: int
    start_ns: int
    end_ns: int
    kernels: int


class Starved(NamedTuple):
    """A stretch in which kernel after kernel starts at its launch: the device waits for the host.

    waited_ns  the time within it in which the device computes nothing
    """

    start_ns: int
    end_ns: int
    launches: int
    waited_ns: int


class AskTimes(NamedTuple):
    """A question for the times of the rank's operations since the last answer."""

    question: int


class DeviceTimes(NamedTuple):
    """The answer to an `AskTimes`."""

    question: int
    times: TimesOf
    busy: tuple[tuple[int, int], ...] = ()  # all stretches of the device's compute
    streams: tuple[SideStretch, ...] = ()
    starved: tuple[Starved, ...] = ()


class PostedSend(NamedTuple):
    """A message, or a receive if ``receives``; ``peer`` is None for a receive from any rank."""

    number: int  # the operation's number on the rank
    ns: int
    group: str
    peer: int | None
    nbytes: int
    tag: int
    receives: bool
    after: After = ()  # operations that must end first


class PostedCollective(NamedTuple):
    """A rank's part in a collective."""

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
    """Say that a post does not count, because gloo has refused the operation.

    The rank sends this before its clock goes on.
    """

    post: PostedSend | PostedCollective


class Ask(NamedTuple):
    """Ask for the moment ``after``; the ``actor`` waits for this moment, or until ``limit_ns``.

    With ``posted`` the actor asks when all members had posted the operations, not when the
    operations end. With ``store`` the actor asks for a `TURN` at a store, or for a `CHANGE` of a
    store, and ``after`` is empty. ``question`` numbers the questions of the rank, so that the rank
    can tell late answers from current answers: a signal's handler may end a wait before the answer
    comes.
    """

    actor: int
    after: After
    ns: int
    limit_ns: int | None
    question: int = 0
    store: int = 0
    posted: bool = False


class StoreUsed(NamedTuple):
    """Tell that an actor has used a store, so that the actor's turn is over."""

    actor: int
    ns: int | None  # None while the actor's time is unknown
    changed: bool  # True if a waiting actor may find a key now


class Found(NamedTuple):
    """Tell that an actor that waits for a change of a store has itself found the key."""

    actor: int
    question: int


class Follow(NamedTuple):
    """An actor that begins when an operation ends; `Left` reports the actor's own end."""

    actor: int
    number: int


class Left(NamedTuple):
    """An actor does nothing more; for the main thread, the rank's function has returned."""

    actor: int


class Due(NamedTuple):
    """The answer to an `Ask`: the end of its operations.

    ``done_ns`` is None if the operations are not done at the limit; it may be later than the limit,
    if already known. ``now_ns`` is the cluster's time, for a rank that stood still and is behind
    it.
    """

    actor: int
    question: int
    done_ns: int | None
    now_ns: int = 0
    source: int = -1  # if the first operation is a receive: the sending rank
    times: TimesOf | None = None  # new times, for a rank with a device


class Source(NamedTuple):
    """The sender of the message for a receive from any rank, as soon as the sender is known."""

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
    """The content of a page: a clock's time, and the CPU time of its thread at that moment."""

    ns: int
    cpu_ns: int


class ClockPage(MappedFile):
    """The clock of a rank's main thread, in a file that the timekeeper maps too."""

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
        """Write that the clock stands: the thread's CPU time from now on does not count."""
        self._memory[8] = STOPPED

    def wait(self) -> None:
        """Say that the thread waits for gloo, until the clock goes on."""
        self._memory[8] = WAITING

    def go(self, ns: int, cpu_ns: int, how: int = GOING) -> None:
        """Write that the clock goes on from a time.

        ``how``: `MAY_WAIT` if the thread may soon wait for gloo in C++, where it cannot report the
        wait; `WAITING` if the thread waits already.
        """
        self._version += 1
        # Times first: a reader that looks while the thread has lost its core must not see a running
        # clock together with the CPU time of its previous start.
        self._LAYOUT.pack_into(self._memory, 0, self._version, self._memory[8], ns, cpu_ns)
        self._memory[8] = how

    @property
    def in_users_code(self) -> bool:
        """True if only the user's code can make the thread wait."""
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
        """Return the clock's last start; None for a stopped clock, or during a write."""
        before = bytes(self._memory[: self._LAYOUT.size])
        _, how, ns, cpu_ns = self._LAYOUT.unpack(before)
        again = bytes(self._memory[: self._LAYOUT.size])
        return ClockReading(ns, cpu_ns) if how != STOPPED and before == again else None
