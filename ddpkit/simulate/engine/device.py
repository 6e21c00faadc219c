"""The places of a device: compute, and the copy engines. A place does one item at a time.

An item is ready when its host has launched it and all items that it follows have ended. A place
starts the item that was ready first; among items that were ready at one time, the item that was
launched first. An item of a stream of higher priority interrupts the running item, which continues
afterwards with its remaining work.

It would be simpler to run items in the order of the launches. But a host launches far ahead, and an
item that waits for the network would then hold up kernels of other streams that could run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from ddpkit.simulate.engine.posted import UNKNOWN

# the places: for kernels, for copies to the device, for copies to the host
COMPUTE, UP, DOWN = "compute", "copy up", "copy down"


@dataclass(slots=True, eq=False)
class Item:
    """A kernel or a copy on a device. Its times are in ns, and `UNKNOWN` until they are known.

    turn      the number of the item's launch, counted on its rank
    priority  the priority of the item's stream: the item with the lowest number runs first
    """

    rank: int
    ns: int
    turn: int
    priority: int = 0
    ready_ns: int = UNKNOWN
    start_ns: int = UNKNOWN
    done_ns: int = UNKNOWN
    then: Callable[[Item], None] | None = None  # called once `done_ns` is known
    rest_ns: int = field(init=False)  # work that remains at a start or a continuation
    until_ns: int = UNKNOWN  # the end, unless the item is interrupted
    runs: int = 0  # number of starts and continuations

    def __post_init__(self) -> None:
        self.rest_ns = self.ns

    def finish(self, ns: int) -> None:
        """Record that the item ended at `ns`."""
        self.done_ns = ns
        if self.then is not None:
            self.then(self)


@dataclass(slots=True, eq=False)
class DevicePlace:
    """A place of a rank's device: the running item, and the items that are ready."""

    running: Item | None = None
    ready: list[tuple[int, int, int, Item]] = field(default_factory=list)  # a heap of ready items
    looks_ns: int = UNKNOWN  # when the place will choose its next item

    def add(self, item: Item) -> None:
        """Add an item to the place's items that are ready to run."""
        heappush(self.ready, (item.priority, item.ready_ns, item.turn, item))

    def next_item(self, now: int) -> Item | None:
        """Return the item that starts or resumes at `now`; None if the running item goes on."""
        before = self.running
        if not self.ready or (before is not None and self.ready[0][0] >= before.priority):
            return None
        if before is not None:
            before.rest_ns = before.until_ns - now
            self.add(before)
        item = self.running = heappop(self.ready)[3]
        if item.start_ns == UNKNOWN:
            item.start_ns = now
        item.until_ns, item.runs = now + item.rest_ns, item.runs + 1
        return item
