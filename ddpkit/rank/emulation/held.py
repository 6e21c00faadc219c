"""Live storages, and the memories that they fill: the device's and the host's."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice

import torch

from ddpkit import torch_private
from ddpkit.protocol.raised import MemoryFull
from ddpkit.rank.emulation.allocator import CachingAllocator, NoRoom, SegmentBlock
from ddpkit.text import size
from ddpkit.trace import MemoryLevel

DEVICE, HOST, PINNED, UNDECIDED = "device", "host", "pinned", ""  # places of a storage


@dataclass(slots=True, eq=False)
class Held:
    """A live storage: its bytes, its kind (such as gradients) and its place (device or host)."""

    nbytes: int
    kind: str = "activations"
    ref: object = None
    collected_ns: int | None = None  # the end of the wait for an operation that carried the storage
    place: str = UNDECIDED  # on a machine with a device; may be decided after the first use
    stream: int = 0  # the current stream when the storage was made
    block: SegmentBlock | None = None  # in torch's allocator, as far as `Reserved` has followed
    followed: int = 0  # bytes, likewise


@dataclass(slots=True)
class BytesInUse:
    """One memory: the bytes in use, their maximum, and the first request that did not fit."""

    limit: int | None
    live: int = 0
    most: int = 0
    full_by: int = 0  # bytes of the first request beyond the limit
    full_with: int = 0  # bytes in use with that request; gloo may free some of them afterwards

    def change(self, by: int) -> None:
        """Allocate `by` bytes, or free bytes if `by` is negative."""
        self.live += by
        self.most = max(self.most, self.live)
        full = self.limit is not None and self.live > self.limit
        if by > 0 and full and not self.full_by:
            self.full_by, self.full_with = by, self.live


def levels(changes: Iterable[tuple[int, Held, int]], parts: dict[str, int]) -> list[MemoryLevel]:
    """Return the bytes by kind after each ns with changes; `parts` has the bytes before.

    If the bytes change several times at one ns, the list has the highest and then the last level.
    """
    found = list[MemoryLevel]()
    for ns, of_moment in groupby(changes, key=lambda change: change[0]):
        highest: MemoryLevel | None = None
        for _, held, by in of_moment:
            parts[held.kind] += by
            last = MemoryLevel(ns, tuple(parts.values()))
            if by > 0 and (highest is None or last.total > highest.total):
                highest = last
        if highest is not None and highest.total > last.total:
            found.append(highest)
        found.append(last)
    return found


class Reserved:
    """torch's caching allocator of a rank, which follows the changes of the rank's storages.

    The allocator follows only when somebody asks, because most programs never ask.
    """

    def __init__(self, limit: int | None) -> None:
        self.allocator = CachingAllocator(limit)
        self._done = 0  # changes that the allocator has followed

    def follow(self, changes: Sequence[tuple[object, Held, int]]) -> None:
        """Make the requests of further changes; `changes` begins with the changes known so far."""
        allocator = self.allocator
        for _, held, by in islice(changes, self._done, None):
            if held.place in (HOST, PINNED):
                continue
            if held.block is not None:
                allocator.free(held.block)
                held.block = None
            held.followed += by
            if held.followed > 0:
                held.block = self._malloc(held)
        self._done = len(changes)

    def _malloc(self, held: Held) -> SegmentBlock:
        try:
            return self.allocator.malloc(held.followed, held.stream)
        except NoRoom:  # the run goes on, as long as the requested bytes fit
            self.allocator.limit = None
            return self.allocator.malloc(held.followed, held.stream)

    def forget(self, count: int) -> None:
        """Record that the first `count` changes are not kept any more."""
        self._done -= count


def full_text(full: MemoryFull, *, of_host: bool) -> str:
    """Return the text of the error for a full memory."""
    alive = ", ".join(f"{kind} {size(nbytes)}" for kind, nbytes in full.alive.items())
    if of_host:
        return (
            f"the host beside the machine {full.machine} of rank {full.rank} has "
            f"{size(full.limit)} of memory: {size(full.used)} are in use, and {size(full.asked)} "
            f"more do not fit. The memory would hold: {alive}. Load the data in parts, or move "
            "tensors to the device."
        )
    return (
        f"the machine {full.machine} of rank {full.rank} has {size(full.limit)} of memory: "
        f"{size(full.used)} are in use, and {size(full.asked)} more do not fit. The memory would "
        f"hold: {alive}. A smaller batch or checkpointing holds fewer activations; sharding "
        "divides parameters, gradients and optimizer state among ranks."
    )


def living_parameters() -> list[torch.Tensor]:
    """Return all parameters of this process, also those that no module has at the moment.

    FSDP2 keeps the shards of a module apart while the module has the gathered parameters.
    """
    return [
        each
        for each in gc.get_objects()
        if issubclass(type(each), torch.Tensor) and isinstance(each, torch.nn.Parameter)
    ]


def dense_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return a dense tensor, or the indices and values of a sparse one."""
    if tensor.layout is torch.sparse_coo:
        return torch_private.sparse_parts(tensor)
    return (tensor,) if tensor.layout is torch.strided else ()


def dense_tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    """Yield the dense tensors among values, and those in lists among values."""
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout is torch.strided:
            yield value
        elif isinstance(value, list | tuple):
            yield from dense_tensors(value)
