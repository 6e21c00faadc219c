"""The devices of a run's ranks, as the timekeeper plays them.

A host's clock does not tell when an item of its device starts or ends. So the timekeeper keeps both
times of each item, until a rank hears of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ddpkit.cluster.local.kept import Operations
from ddpkit.protocol.emulation import EVENT, Launch, TimesOf
from ddpkit.simulate.engine.device import COMPUTE, Item
from ddpkit.simulate.engine.network import Network
from ddpkit.trace.intervals import union


class Devices:
    """The devices of some ranks; false if no rank has a device."""

    def __init__(self, ranks: Iterable[int], network: Network, operations: Operations) -> None:
        self._network, self._operations = network, operations
        self._times: dict[int, TimesOf] = {rank: {} for rank in ranks}  # start and end, by number
        self._busy: dict[int, list[tuple[int, int]]] = {rank: [] for rank in self._times}

    def __contains__(self, rank: int) -> bool:
        return rank in self._times

    def __bool__(self) -> bool:
        return bool(self._times)

    def launch(self, rank: int, item: Launch) -> None:
        """Take an item of a rank's device, and launch the item once its predecessors are done."""
        number, launched_ns, place, work_ns, priority, after = item
        operation = self._operations.posted(rank, number)

        def ready(after_ns: int) -> None:
            ns = max(launched_ns, after_ns)
            if place == EVENT:
                self.note_times(rank, number, ns, ns)
                operation.finish_at(ns)
            else:
                launched = self._network.launch(ns, rank, place, work_ns, number, priority)
                launched.then = operation.finish
                if place == COMPUTE:
                    operation.then.append(partial(self._note_busy, rank, launched))

        self._operations.when_all_are_done(rank, after, ready)

    def note_times(self, rank: int, number: int, start_ns: int, done_ns: int) -> None:
        """Keep the times of an operation."""
        self._times[rank][number] = start_ns, done_ns

    def new_times(self, rank: int) -> TimesOf:
        """Return the times of a rank's device since the last call."""
        times = self._times.get(rank, {})
        if times:
            self._times[rank] = {}
        return times

    def busy(self, rank: int) -> tuple[tuple[int, int], ...]:
        """Return the stretches in which a rank's device computes."""
        return tuple(union(self._busy.get(rank, ())))

    def _note_busy(self, rank: int, item: Item, done_ns: int) -> None:
        """Note a stretch of compute; adjacent kernels are joined."""
        busy = self._busy[rank]
        if busy and busy[-1][0] <= item.start_ns <= busy[-1][1]:
            busy[-1] = busy[-1][0], done_ns
        elif done_ns > item.start_ns:
            busy.append((item.start_ns, done_ns))
