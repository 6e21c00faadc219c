"""torch's caching allocator of CUDA memory: the segments that it reserves for allocated bytes.

The rules are those of torch 2.13's c10/cuda/CUDACachingAllocator.cpp. A request is rounded up to
512 bytes. Requests of at most 1 MiB come from segments of 2 MiB, requests below 10 MiB from
segments of 20 MiB, and larger requests get a segment of their own, rounded up to 2 MiB. A free
block that is the smallest one large enough is taken and, if enough remains, split; a freed block
joins free neighbours of its segment. Each stream has blocks of its own. Segments stay reserved
until `empty_cache`, or until a request fits no other way.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TypedDict

BLOCK = 512
SMALL = 1 << 20  # bytes of the largest request from a small segment
SMALL_SEGMENT, LARGE_SEGMENT, OWN_SEGMENT, ROUND = 2 << 20, 20 << 20, 10 << 20, 2 << 20
FIRST_ADDRESS = 0x7F0000000000


class BlockState(TypedDict):
    """A block in a snapshot, as torch.cuda.memory._snapshot() has it."""

    address: int
    size: int
    requested_size: int
    state: str
    frames: list[object]


class SegmentState(TypedDict):
    """A segment in a snapshot, as torch.cuda.memory._snapshot() has it."""

    device: int
    address: int
    total_size: int
    allocated_size: int
    active_size: int
    requested_size: int
    stream: int
    segment_type: str
    is_expandable: bool
    frames: list[object]
    blocks: list[BlockState]


@dataclass(eq=False)
class SegmentBlock:
    """A part of a segment, between its neighbours `before` and `after`."""

    stream: int
    small: bool
    size: int
    address: int
    requested: int = 0  # 0: free
    before: SegmentBlock | None = None
    after: SegmentBlock | None = None

    @property
    def key(self) -> tuple[int, int, int]:
        """The order of free blocks: by stream, then by size, then by address."""
        return self.stream, self.size, self.address


class NoRoom(Exception):
    """Raised if a request needs a segment beyond the limit; `needed` is the size of the segment."""

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


@dataclass
class CachingAllocator:
    """The segments of one device, with at most `limit` bytes (None: no limit).

    reserved  bytes of all segments
    active    bytes of all allocated blocks
    """

    limit: int | None = None
    reserved: int = 0
    active: int = 0
    most_reserved: int = 0
    retries: int = 0  # requests before which cached segments were released
    _next: int = FIRST_ADDRESS
    _free: dict[bool, list[tuple[int, int, int]]] = field(
        default_factory=lambda: {False: [], True: []}
    )
    _blocks: dict[int, SegmentBlock] = field(default_factory=dict)  # address -> block
    _segments: dict[int, int] = field(default_factory=dict)  # address -> size

    def malloc(self, nbytes: int, stream: int = 0) -> SegmentBlock:
        """Return an allocated block for `nbytes` bytes. Raises NoRoom."""
        size = max(BLOCK, -(-nbytes // BLOCK) * BLOCK)
        small = size <= SMALL
        block = self._fitting(size, small, stream) or self._segment(size, small, stream)
        rest = block.size - size
        if rest >= BLOCK if small else rest > SMALL:
            self._split(block, size)
        block.requested = nbytes
        self.active += block.size
        return block

    def free(self, block: SegmentBlock) -> None:
        """Free a block, and join the block and its free neighbours."""
        self.active -= block.size
        block.requested = 0
        for other in (block.before, block.after):
            if other is not None and not other.requested:
                self._take(other)
                block = self._joined(block, other)
        insort(self._free[block.small], block.key)

    def empty_cache(self) -> None:
        """Release each segment that is one free block."""
        for small, free in self._free.items():
            kept: list[tuple[int, int, int]] = []
            for key in free:
                block = self._blocks[key[2]]
                if block.before is not None or block.after is not None:
                    kept.append(key)
                    continue
                del self._blocks[block.address]
                self.reserved -= self._segments.pop(block.address)
            self._free[small] = kept

    def snapshot(self) -> list[SegmentState]:
        """Return the segments in the form of torch.cuda.memory_snapshot()."""
        found: list[SegmentState] = []
        for address, size in sorted(self._segments.items()):
            block: SegmentBlock | None = self._blocks[address]
            assert block is not None
            segment = SegmentState(
                device=0,
                address=address,
                total_size=size,
                allocated_size=0,
                active_size=0,
                requested_size=0,
                stream=block.stream,
                segment_type="small" if block.small else "large",
                is_expandable=False,
                frames=[],
                blocks=[],
            )
            while block is not None:
                in_use = block.size if block.requested else 0
                segment["allocated_size"] += in_use
                segment["active_size"] += in_use
                segment["requested_size"] += block.requested
                segment["blocks"].append(
                    BlockState(
                        address=block.address,
                        size=block.size,
                        requested_size=block.requested,
                        state="active_allocated" if in_use else "inactive",
                        frames=[],
                    )
                )
                block = block.after
            found.append(segment)
        return found

    def _fitting(self, size: int, small: bool, stream: int) -> SegmentBlock | None:
        free = self._free[small]
        place = bisect_left(free, (stream, size, 0))
        if place == len(free) or free[place][0] != stream:
            return None
        return self._blocks[free.pop(place)[2]]

    def _segment(self, size: int, small: bool, stream: int) -> SegmentBlock:
        """Return a new segment for a request, as one block."""
        if small:
            needed = SMALL_SEGMENT
        elif size < OWN_SEGMENT:
            needed = LARGE_SEGMENT
        else:
            needed = -(-size // ROUND) * ROUND
        if self.limit is not None and self.reserved + needed > self.limit:
            self.retries += 1
            self.empty_cache()
            if self.reserved + needed > self.limit:
                raise NoRoom(needed)
        block = self._blocks[self._next] = SegmentBlock(stream, small, needed, self._next)
        self._segments[self._next] = needed
        self._next += needed
        self.reserved += needed
        self.most_reserved = max(self.most_reserved, self.reserved)
        return block

    def _split(self, block: SegmentBlock, size: int) -> None:
        rest = SegmentBlock(block.stream, block.small, block.size - size, block.address + size)
        rest.before, rest.after, block.size, block.after = block, block.after, size, rest
        if rest.after is not None:
            rest.after.before = rest
        self._blocks[rest.address] = rest
        insort(self._free[rest.small], rest.key)

    def _joined(self, block: SegmentBlock, other: SegmentBlock) -> SegmentBlock:
        first, second = (other, block) if other is block.before else (block, other)
        first.size += second.size
        first.after = second.after
        if first.after is not None:
            first.after.before = first
        del self._blocks[second.address]
        return first

    def _take(self, block: SegmentBlock) -> None:
        free = self._free[block.small]
        free.pop(bisect_left(free, block.key))
