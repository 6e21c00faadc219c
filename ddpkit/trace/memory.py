"""`MemoryLevel`: the bytes that a rank holds in memory from a moment on, by purpose."""

from collections.abc import Sequence
from typing import NamedTuple

# The purposes. "activations" are all bytes of no other purpose: inputs and temporaries too.
MEMORY_KINDS = ("parameters", "gradients", "optimizer", "buckets", "activations")


class MemoryLevel(NamedTuple):
    """The bytes of a rank's live storages from time ``ns`` on, in the order of `MEMORY_KINDS`."""

    ns: int
    nbytes: tuple[int, ...]

    @property
    def total(self) -> int:
        """The sum of the bytes of all purposes."""
        return sum(self.nbytes)

    def of(self, kind: str) -> int:
        """Return the bytes that are held for one purpose, a name in `MEMORY_KINDS`."""
        return self.nbytes[MEMORY_KINDS.index(kind)]


def inside(levels: Sequence[MemoryLevel], start_ns: int, end_ns: int) -> list[MemoryLevel]:
    """Return the memory levels of a window: the level at its start, and all changes inside it."""
    before = [level for level in levels if level.ns <= start_ns][-1:]
    return before + [level for level in levels if start_ns < level.ns < end_ns]
