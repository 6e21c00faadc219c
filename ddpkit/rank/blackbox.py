"""A flight recorder: what a rank was doing, readable even after the rank has been killed.

Each rank owns one small file mapped into memory. It holds the rank's *status* (where it is, what it
waits for), rewritten a few times a second, and a ring of the last calls into torch.distributed,
each written as it is posted. Writing costs a memory copy and no system call, wakes nobody, and
survives the writer; a pipe would do neither, and shared memory objects need a tracker process.

There is one writer of calls, one of statuses, and any number of readers. A reader that comes in the
middle of a write gets text that does not parse, and takes it as "nothing new".
"""

from __future__ import annotations

import json
import mmap
import struct
from pathlib import Path
from typing import Any

SLOT, SLOTS = 512, 2048  # bytes of one call, calls kept
STATUS = 8192  # bytes of a status; two are kept, and written in turn
HEADER = struct.Struct("<QQ")  # calls written so far, statuses written so far
COUNT = struct.Struct("<Q")  # one of them: written by itself, as each has a thread of its own
SIZE = HEADER.size + 2 * STATUS + SLOT * SLOTS


_encode = json.JSONEncoder(check_circular=False).encode


class BlackBox:
    """The file of one rank; `create` makes it empty, the constructor opens one that exists."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), SIZE)
        self._calls, self._statuses = HEADER.unpack_from(self._memory)
        self._read = 0

    @classmethod
    def create(cls, path: Path) -> BlackBox:
        with path.open("xb") as file:
            file.truncate(SIZE)
        return cls(path)

    def close(self) -> None:
        self._memory.close()

    # The rank's side

    def write_call(self, call: dict[str, Any]) -> None:
        """Append a call; beyond `SLOTS` the oldest is overwritten."""
        start = HEADER.size + 2 * STATUS + (self._calls % SLOTS) * SLOT
        self._put(start, SLOT, call)
        self._calls += 1
        COUNT.pack_into(self._memory, 0, self._calls)

    def write_status(self, status: dict[str, Any]) -> None:
        self._put(HEADER.size + (self._statuses % 2) * STATUS, STATUS, status)
        self._statuses += 1
        COUNT.pack_into(self._memory, COUNT.size, self._statuses)

    def _put(self, start: int, room: int, value: dict[str, Any]) -> None:
        text = _encode(value).encode()[: room - 4]
        self._memory[start : start + 4 + len(text)] = struct.pack("<I", len(text)) + text

    # The launcher's side

    def status(self) -> dict[str, Any] | None:
        """The newest status; None before the first."""
        _, written = HEADER.unpack_from(self._memory)
        if not written:
            return None
        return self._get(HEADER.size + ((written - 1) % 2) * STATUS)

    def new_calls(self) -> tuple[list[dict[str, Any]], int]:
        """Calls since the last time this was asked, and how many were overwritten unread."""
        written, _ = HEADER.unpack_from(self._memory)
        first = max(self._read, written - SLOTS + 1)
        lost = first - self._read
        calls = []
        for index in range(first, written):
            call = self._get(HEADER.size + 2 * STATUS + (index % SLOTS) * SLOT)
            if call is None:
                lost += 1
            else:
                calls.append(call)
        self._read = written
        return calls, lost

    def _get(self, start: int) -> dict[str, Any] | None:
        (length,) = struct.unpack_from("<I", self._memory, start)
        try:
            value: dict[str, Any] = json.loads(self._memory[start + 4 : start + 4 + length])
        except ValueError:
            return None
        return value
