"""Programs: the work and messages of every rank, in order, on one lane or on several.

A `Schedule` has the messages between ranks. A `Program` also has work and lanes: a rank does the
steps of a lane one after another, and runs its lanes at the same time. A schedule is a program in
which each rank has one lane without work. A step of data parallelism, a pipeline, servers with
their workers and sharded parameters are programs (`step_program`, `pipeline_program`,
`server_program`, `shard_program`). `simulate.engine` plays any of these programs on any links.

    Work             compute: the lane is busy for a time
    MessageEnd       one end of a message, named as in torch: "isend", "irecv"; "send" and "recv"
                     hold the lane until they are done
    CollectivePart   the rank's part in a collective; with async_op the lane goes on at once
    After            the lane waits for the steps with these handles, in any lane of its rank
    Launch           an item for a place of the rank's device; the lane goes on at once

On a rank with a device, a lane is the work of the device's host. The host launches messages and
collectives too: with ``follows``, they are posted when the device has done the steps before them
(`queues` gives the items that each item follows).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from ddpkit.simulate.engine.device import COMPUTE
from ddpkit.simulate.messages.schedules import Schedule
from ddpkit.trace import Scalar

BLOCKING = ("send", "recv")
MESSAGES = (*BLOCKING, "isend", "irecv")


@dataclass(frozen=True, slots=True)
class Work:
    """A step that keeps the lane busy for ``ns``; ``kind`` is the kind of the span, see `Span`.

    Without a name the step makes no span: the lane only lets time pass.
    """

    ns: int
    name: str = "work"
    kind: str = "span"
    bytes: int = 0
    handle: Hashable = None
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """A step that posts a send or a receive.

    ``op`` is one of MESSAGES. A receive with the peer None takes a message from any rank. The step
    is posted when the steps that it ``follows`` are done.
    """

    op: str
    peer: int | None
    nbytes: int
    tag: int = 0
    group: str = ""
    handle: Hashable = None
    follows: tuple[Hashable, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CollectivePart:
    """A step that posts the rank's part in collective ``number`` of a group.

    A group runs one collective at a time. ``schedule`` has as many ranks as ``members``, and
    elements of ``itemsize`` bytes; ``nbytes`` is the rank's input. ``together``: the collective
    ends for all members at one time, as a barrier does. ``after_all``: the collective ends for no
    member before all members have posted their parts, as a reduce does. The part is posted when the
    steps that it ``follows`` are done.
    """

    schedule: Schedule
    members: tuple[int, ...]
    number: int
    nbytes: int = 0
    group: str = ""
    itemsize: int = 1
    together: bool = False
    after_all: bool = False
    async_op: bool = False
    handle: Hashable = None
    follows: tuple[Hashable, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class After:
    """A step that makes the lane wait for the steps with these handles, even if not posted yet."""

    handles: tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """A step that launches an item of ``ns`` on a ``place`` of the rank's device.

    `simulate.engine.device` describes places. The item is ready when the lane has come to this step
    and the steps that it ``follows`` are done. The launch itself takes no time of the lane: put a
    `Work` before it. Among the items that are ready, the item with the lowest ``priority`` runs
    first.
    """

    ns: int
    name: str = "kernel"
    place: str = COMPUTE
    follows: tuple[Hashable, ...] = ()
    handle: Hashable = None
    priority: int = 0
    kind: str = "span"
    facts: Mapping[str, Scalar] = field(default_factory=dict)


class Resumed(NamedTuple):
    """The data that a generator lane gets when it resumes: the time in ns, a message's sender."""

    ns: int
    peer: int | None = None


Posted: TypeAlias = MessageEnd | CollectivePart
Action: TypeAlias = Work | Posted | Launch | After
# a function that yields steps, and may decide by the answers
Deciding: TypeAlias = Callable[[], Generator[Action, Resumed, None]]
Lane: TypeAlias = Sequence[Action] | Deciding


@dataclass(frozen=True, repr=False)
class Program:
    """The steps of every rank: ``ranks[rank]`` has the rank's lanes by name.

    A lane is a list of steps, or a function that yields steps and gets a `Resumed` for each step. A
    server that answers any worker, for example, is such a function.
    """

    name: str
    ranks: tuple[Mapping[str, Lane], ...]
    facts: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return len(self.ranks)

    @classmethod
    def of_lanes(cls, name: str, lanes: Iterable[Lane]) -> Program:
        """Return the program of ranks with one lane each."""
        return cls(name, tuple({"main": lane} for lane in lanes))

    @classmethod
    def of_schedule(
        cls, schedule: Schedule, itemsize: int = 1, starts: Mapping[int, int] | None = None
    ) -> Program:
        """Return the program of a schedule. Each rank begins at ``starts[rank]`` ns, or at 0."""
        everybody, begin = tuple(range(schedule.world_size)), starts or {}
        part = CollectivePart(schedule, everybody, 0, schedule.length * itemsize, itemsize=itemsize)
        lanes: list[Lane] = [[Work(begin.get(rank, 0), ""), part] for rank in everybody]
        return cls.of_lanes(schedule.name, lanes)

    def __repr__(self) -> str:
        lanes = max((len(each) for each in self.ranks), default=0)
        return f"<Program {self.name}: {self.world_size} ranks, up to {lanes} lanes>"
