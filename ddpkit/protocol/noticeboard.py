"""Times that ranks leave for each other, in memory that they share."""

from __future__ import annotations

import mmap
import struct
import zlib
from pathlib import Path

NOTICE = struct.Struct("<Qq")  # key, time in ns
SLOTS = 1024


class Noticeboard:
    """Times that ranks leave for each other, in a file of the run's folder, mapped by all.

    A notice is found by its key. It is written before the bytes are sent that it is about, and
    read after they have come. There is a row for each pair of ranks, and `SLOTS` notices in a row:
    an old one is overwritten, and then `read` finds none.
    """

    def __init__(self, path: Path, world_size: int) -> None:
        self._world_size = world_size
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @staticmethod
    def create(path: Path, world_size: int) -> None:
        """Make the file, with no notice in it."""
        with path.open("xb") as file:
            file.truncate(world_size * world_size * SLOTS * NOTICE.size)

    def write(self, src: int, dst: int, key: tuple[object, ...], time_ns: int) -> None:
        """Leave a time for `dst`; a rank's notice to itself is for all to read."""
        place, digest = self._find(src, dst, key)
        struct.pack_into("<q", self._memory, place + 8, time_ns)
        struct.pack_into("<Q", self._memory, place, digest)  # last: it makes the notice valid

    def read(self, src: int, dst: int, key: tuple[object, ...]) -> int | None:
        """The time that `src` has left for `dst`; None if it has not, or it was overwritten."""
        place, digest = self._find(src, dst, key)
        written, time_ns = NOTICE.unpack_from(self._memory, place)
        return time_ns if written == digest else None

    def _find(self, src: int, dst: int, key: tuple[object, ...]) -> tuple[int, int]:
        digest = zlib.crc32(repr(key).encode()) + 1  # 0 is an empty slot
        row = src * self._world_size + dst
        return (row * SLOTS + digest % SLOTS) * NOTICE.size, digest
