"""A file of fixed size, mapped into memory.

Other processes can read the file, even after the end of the process that wrote it.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import ClassVar, Self


class MappedFile:
    """A mapped file; `create` makes a new file of zeros, the constructor opens an existing file."""

    size: ClassVar[int]  # size of the file in bytes

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
