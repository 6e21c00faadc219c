"""A file of a fixed size in memory, which outlives its writer and is read by another process."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import ClassVar, Self


class MappedFile:
    """Such a file; `create` makes it, full of zeros, and the constructor opens one that exists."""

    size: ClassVar[int]  # in bytes

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), self.size)

    @classmethod
    def create(cls, path: Path) -> Self:
        """Make the file; raises FileExistsError if there is one."""
        with path.open("xb") as file:
            file.truncate(cls.size)
        return cls(path)

    def close(self) -> None:
        """Let go of the file. It stays where it is."""
        self._memory.close()
