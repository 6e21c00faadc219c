"""A file of a fixed size in memory, which outlives its writer; another process reads the file."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import ClassVar, Self


class MappedFile:
    """A mapped file; `create` makes one, full of zeros, the constructor opens an existing one."""

    size: ClassVar[int]  # in bytes

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self.size)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the file. Raises FileExistsError if the file exists."""
        with path.open("xb") as file:
            file.truncate(cls.size)
        return cls(path)

    def close(self) -> None:
        """Close the file, without removing it."""
        self._memory.close()
