"""Schedules as data: each rank's sends, receives and sums, with their peers and their order.

A schedule has neither times nor values. `executor` runs a schedule on numbers, `timing` plays it on
links, `costs` has its time as a formula, and `ddpkit.view` draws it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ddpkit.asked import not_for
from ddpkit.text import count

Part: TypeAlias = tuple[int, int]  # elements [start, stop) of the vector
ANSWERED = (  # exercises for which a schedule, carried out on ranks, would be an answer
    *("broadcast", "reduce", "scatter", "gather", "all_gather", "reduce_scatter", "barrier"),
    *("all_to_all", "round_robin", "master_worker", "tree", "butterfly", "ring"),
    *("average_by_gather", "average_per_parameter", "average_flat", "ring_all_reduce"),
)


@dataclass(frozen=True, slots=True)
class Send:
    """A step in which ``rank`` sends ``part`` of its vector to ``peer`` and goes on at once.

    ``original``: send the part as the rank had it before the first step. ``rounds``: the message
    stands for this number of rounds in a row (`ddpkit.simulate.engine.folded`).
    """

    rank: int
    peer: int
    part: Part
    round: int
    original: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        """Raise an error inside an exercise for which a schedule would be the answer."""
        not_for(*ANSWERED)


@dataclass(frozen=True, slots=True)
class Recv:
    """A step in which ``rank`` waits for a message from ``peer``, and writes it to ``part``."""

    rank: int
    peer: int
    part: Part
    round: int
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class RecvReduce(Recv):
    """A step like `Recv`, which adds the message to ``part``."""


Step: TypeAlias = Send | Recv
Steps: TypeAlias = Iterator[Step]


@dataclass(frozen=True, repr=False)
class Schedule:
    """The steps of one collective on a vector of ``length`` elements per rank.

    A rank does its own steps in order. Only a `Recv` makes a rank wait for another rank. Messages
    from one rank to another arrive in the order of their sends.
    """

    name: str  # "ring"
    operation: str  # torch.distributed's name: "all_reduce"
    world_size: int
    length: int
    steps: tuple[Step, ...]

    def of(self, rank: int) -> tuple[Step, ...]:
        """Return the steps of one rank, in order."""
        return self._programs.get(rank, ())

    @property
    def rounds(self) -> int:
        """The number of rounds in the schedule; messages of one round do not wait for each other.

        The messages of a recorded run have no number of their round, so `ddpkit.trace.rounds`
        counts rounds from the order of messages.
        """
        return 1 + max((step.round for step in self.steps), default=-1)

    def messages(self, rank: int | None = None) -> int:
        """Return the number of messages sent by the rank, or by all ranks if `rank` is None."""
        return sum(1 for _ in self._sends(rank))

    def sent(self, rank: int | None = None) -> int:
        """Return the number of elements sent by the rank, or by all ranks if `rank` is None."""
        return sum(elements(send.part) for send in self._sends(rank))

    def received(self, rank: int) -> int:
        """Return the number of elements sent to the rank."""
        return sum(elements(send.part) for send in self._sends(None) if send.peer == rank)

    def __repr__(self) -> str:
        return (
            f"<Schedule {self.name} ({self.operation}) of "
            f"{count(self.world_size, 'rank')}, {count(self.length, 'element')}: "
            f"{count(self.rounds, 'round')}, {count(self.messages(), 'message')}>"
        )

    def _sends(self, rank: int | None) -> Iterator[Send]:
        steps: Iterable[Step] = self.steps if rank is None else self.of(rank)
        return (step for step in steps if isinstance(step, Send))

    @cached_property
    def _programs(self) -> dict[int, tuple[Step, ...]]:
        programs: dict[int, list[Step]] = defaultdict(list)
        for step in self.steps:
            programs[step.rank].append(step)
        return {rank: tuple(steps) for rank, steps in programs.items()}


def elements(part: Part) -> int:
    """Return the number of elements of a part."""
    return part[1] - part[0]


def chunk(length: int, world_size: int, rank: int) -> Part:
    """Return the rank's chunk of a vector; the chunks are those of `torch.tensor_split`.

    The first ``length % world_size`` chunks have one more element; with fewer elements than ranks
    the last chunks are empty.
    """
    least, longer = divmod(length, world_size)
    start = rank * least + min(rank, longer)
    return start, start + least + (rank < longer)


def doublings(world_size: int) -> int:
    """Return ⌈log2 n⌉: one rank's data reaches n ranks in this number of doubling rounds."""
    return (world_size - 1).bit_length()
