"""Schedules as data: what each rank sends to whom, receives and adds up, and in which order.

A schedule knows neither time nor values. `executor` runs it on numbers, `timing` on links, `costs`
states its time in closed form, and a picture draws it; each of them is dumb.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from ddpkit.asked import not_for
from ddpkit.text import count

Part: TypeAlias = tuple[int, int]  # elements [start, stop) of the vector
ANSWERED = (  # exercises answered by a schedule, carried out on ranks
    *("broadcast", "reduce", "scatter", "gather", "all_gather", "reduce_scatter", "barrier"),
    *("all_to_all", "round_robin", "master_worker", "tree", "butterfly", "ring"),
    *("average_by_gather", "average_per_parameter", "average_flat", "ring_all_reduce"),
)


@dataclass(frozen=True, slots=True)
class Send:
    """``rank`` hands ``part`` of its vector to the network, and goes on at once (an isend).

    ``original``: the part is sent as the rank had it before the first step. ``rounds``: the message
    stands for so many rounds in a row (`ddpkit.simulate.engine.folded`).
    """

    rank: int
    peer: int
    part: Part
    round: int
    original: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        """Refuse to be part of an answer."""
        not_for(*ANSWERED)


@dataclass(frozen=True, slots=True)
class Recv:
    """``rank`` waits for the next message from ``peer``, and puts it in ``part``."""

    rank: int
    peer: int
    part: Part
    round: int
    rounds: int = 1


@dataclass(frozen=True, slots=True)
class RecvReduce(Recv):
    """A `Recv` whose message is added to what is in ``part``."""


Step: TypeAlias = Send | Recv
Steps: TypeAlias = Iterator[Step]


@dataclass(frozen=True, repr=False)
class Schedule:
    """The steps of one collective on a vector of ``length`` elements per rank.

    A rank takes its own steps in their order. Only a `Recv` makes a rank wait for another. Messages
    from one rank to another arrive in the order they were sent.
    """

    name: str  # "ring"
    operation: str  # torch.distributed's name: "all_reduce"
    world_size: int
    length: int
    steps: tuple[Step, ...]

    def of(self, rank: int) -> tuple[Step, ...]:
        """The steps of one rank: its program."""
        return self._programs.get(rank, ())

    @property
    def rounds(self) -> int:
        """How many rounds the plan says; in one, a message waits for no other of the round.

        The messages of a run do not say their round; `ddpkit.trace.rounds` counts those by their
        order.
        """
        return 1 + max((step.round for step in self.steps), default=-1)

    def messages(self, rank: int | None = None) -> int:
        """How many messages the rank sends; without a rank, all ranks together."""
        return sum(1 for _ in self._sends(rank))

    def sent(self, rank: int | None = None) -> int:
        """How many elements the rank sends; without a rank, all ranks together."""
        return sum(elements(send.part) for send in self._sends(rank))

    def received(self, rank: int) -> int:
        """How many elements are sent to the rank."""
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
    """How many elements a part has."""
    return part[1] - part[0]


def chunk(length: int, world_size: int, rank: int) -> Part:
    """The rank's chunk when a vector is cut as `torch.tensor_split` does.

    The first ``length % world_size`` chunks have one element more; with fewer elements than ranks
    the last ones are empty.
    """
    least, longer = divmod(length, world_size)
    start = rank * least + min(rank, longer)
    return start, start + least + (rank < longer)


def doublings(world_size: int) -> int:
    """⌈log2 n⌉: after so many rounds of doubling, n ranks know what one knew."""
    return (world_size - 1).bit_length()
