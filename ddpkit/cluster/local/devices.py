"""Simulates the devices of a run's ranks, for the timekeeper.

A host's clock does not show when an item of its device starts or ends. So the timekeeper stores
both times of each item until the times are sent to the rank.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from ddpkit.cluster.local.kept import Operations
from ddpkit.protocol.emulation import (
    EVENT,
    DeviceTimes,
    Launch,
    SideStretch,
    Starved,
    TimesOf,
)
from ddpkit.simulate.engine.device import COMPUTE, Item
from ddpkit.simulate.engine.network import Network

LONG = 10  # a starved stretch ends at a kernel or a wait of more than this number of mean waits
# the least number of launches and the least share of waits in a starved stretch
LEAST_LAUNCHES, LEAST_SHARE = 10, 0.2


@dataclass(slots=True)
class Busy:
    """A stretch of kernels that follow each other without a gap."""

    start_ns: int
    end_ns: int
    kernels: int
    at_launch: bool  # True if the first kernel starts at its launch

    def take(self, later: Busy) -> bool:
        """Extend this stretch by a later one; return False if there is a gap between the two."""
        if not self.start_ns <= later.start_ns <= self.end_ns:
            return False
        self.end_ns = max(self.end_ns, later.end_ns)
        self.kernels += later.kernels
        return True


@dataclass(slots=True)
class Computed:
    """The stretches of a device's compute, for all streams together and for each side stream."""

    all: list[Busy] = field(default_factory=list)
    of: dict[int, list[Busy]] = field(default_factory=dict)


class Devices:
    """The devices of the ranks that have one; as a bool, False if no rank has a device."""

    def __init__(self, ranks: Iterable[int], network: Network, operations: Operations) -> None:
        self._network, self._operations = network, operations
        self._times: dict[int, TimesOf] = {rank: {} for rank in ranks}  # times by operation
        self._computed: dict[int, Computed] = {rank: Computed() for rank in self._times}

    def __contains__(self, rank: int) -> bool:
        return rank in self._times

    def __bool__(self) -> bool:
        return bool(self._times)

    def launch(self, rank: int, item: Launch) -> None:
        """Add an item to a rank's device, and launch the item once its predecessors are done."""
        number, launched_ns, place, work_ns, priority, after, stream = item
        operation = self._operations.posted(rank, number)

        def ready(after_ns: int) -> None:
            ns = max(launched_ns, after_ns)
            if place == EVENT:
                self.note_times(rank, number, ns, ns)
                operation.finish_at(ns)
                return
            launched = self._network.launch(ns, rank, place, work_ns, number, priority)
            launched.then = operation.finish
            if place == COMPUTE:
                note = partial(self._note_kernel, rank, launched, launched_ns, stream)
                operation.then.append(note)
            else:
                operation.then.append(partial(self._note_copy, rank, launched))

        self._operations.when_all_are_done(rank, after, ready)

    def note_times(self, rank: int, number: int, start_ns: int, done_ns: int) -> None:
        """Store the start and the end of an operation."""
        self._times[rank][number] = start_ns, done_ns

    def new_times(self, rank: int) -> TimesOf:
        """Return the times of a rank's device since the previous `new_times`."""
        times = self._times.get(rank, {})
        if times:
            self._times[rank] = {}
        return times

    def all_times(self, rank: int, question: int) -> DeviceTimes:
        """Return the new times of a rank's device, and all stretches of its compute."""
        computed = self._computed.get(rank, Computed())
        joined = _joined(computed.all)
        return DeviceTimes(
            question,
            self.new_times(rank),
            tuple((each.start_ns, each.end_ns) for each in joined),
            tuple(
                SideStretch(stream, each.start_ns, each.end_ns, each.kernels)
                for stream, stretches in computed.of.items()
                for each in _joined(stretches)
            ),
            tuple(starved(joined)),
        )

    def _note_copy(self, rank: int, item: Item, done_ns: int) -> None:
        self.note_times(rank, item.turn, item.start_ns, done_ns)

    def _note_kernel(
        self, rank: int, item: Item, launched_ns: int, stream: int, done_ns: int
    ) -> None:
        """Record a kernel, and join it with an adjacent kernel."""
        if done_ns == item.start_ns:
            return
        start_ns, computed = item.start_ns, self._computed[rank]
        _add(computed.all, Busy(start_ns, done_ns, 1, start_ns == launched_ns))
        if stream:
            stretch = Busy(start_ns, done_ns, 1, False)
            _add(computed.of.setdefault(stream, []), stretch)


def _add(stretches: list[Busy], stretch: Busy) -> None:
    if not stretches or not stretches[-1].take(stretch):
        stretches.append(stretch)


def _joined(stretches: Iterable[Busy]) -> list[Busy]:
    """Return stretches in the order of time, joined if they touch or overlap."""
    found: list[Busy] = []
    for each in sorted(stretches, key=lambda each: (each.start_ns, -each.end_ns)):
        _add(found, Busy(each.start_ns, each.end_ns, each.kernels, each.at_launch))
    return found


@dataclass(slots=True)
class _Waits:
    """A stretch of kernels that start at their launches, each after a gap."""

    start_ns: int
    end_ns: int = 0
    gaps: int = 0
    waited_ns: int = 0
    kernels: int = 0

    def add(self, gap_ns: int, stretch: Busy) -> None:
        self.end_ns, self.gaps = stretch.end_ns, self.gaps + 1
        self.waited_ns += gap_ns
        self.kernels += stretch.kernels

    def is_usual(self, gap_ns: int) -> bool:
        """True if a gap is not far longer than the mean gap."""
        return not self.gaps or gap_ns <= LONG * self.waited_ns / self.gaps

    def kept(self) -> Iterable[Starved]:
        """Yield the stretch if it has many launches, and if waits take much of its time."""
        much = self.waited_ns >= LEAST_SHARE * (self.end_ns - self.start_ns)
        if self.kernels >= LEAST_LAUNCHES and much:
            yield Starved(self.start_ns, self.end_ns, self.kernels, self.waited_ns)


def starved(stretches: Iterable[Busy]) -> Iterable[Starved]:
    """Yield the stretches in which the device waits for one launch after another.

    If a kernel starts at its launch, after a gap, the device has waited for the host during the
    gap. Such kernels form one stretch until a kernel or a gap is far longer than the mean gap.
    """
    waits: _Waits | None = None
    for before, each in pairwise(stretches):
        gap = each.start_ns - before.end_ns
        if waits is not None and not (each.at_launch and waits.is_usual(gap)):
            yield from waits.kept()
            waits = None
        if each.at_launch:
            waits = waits or _Waits(before.end_ns)
            mean = (waits.waited_ns + gap) / (waits.gaps + 1)
            if each.end_ns - each.start_ns > LONG * mean:
                yield from waits.kept()
                waits = None
            else:
                waits.add(gap, each)
    if waits is not None:
        yield from waits.kept()
