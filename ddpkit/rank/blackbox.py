"""A flight recorder: what a rank was doing, readable even after the rank has been killed.

Each rank owns one small file mapped into memory. It holds the rank's *status* (where it is, what it
waits for), rewritten a few times a second, and a ring of the last calls into torch.distributed,
each written as it is posted. Writing costs a memory copy and no system call, wakes nobody, and
survives the writer; a pipe would do neither, and shared memory objects need a tracker process.

A call is a text, JSON, and a number. A training loop makes the same calls again and again, which
differ by their number alone: so the text is made once, and read once.

There is one writer of calls, one of statuses, and any number of readers. A reader that comes in the
middle of a write gets text that does not parse, and takes it as "nothing new"; a call that may have
been overwritten while it was read counts as lost.
"""

from __future__ import annotations

import json
import mmap
import struct
from functools import lru_cache
from pathlib import Path
from typing import Any

SLOT, SLOTS = 512, 2048  # bytes of one call, calls kept
STATUS = 8192  # bytes of a status; two are kept, and written in turn
HEADER = struct.Struct("<QQ")  # calls written so far, statuses written so far
COUNT = struct.Struct("<Q")  # one of them: written by itself, as each has a thread of its own
CALL = struct.Struct(f"<QI{SLOT - 12}s")  # of a call: its number, its text's length, its text
LENGTH = struct.Struct("<I")
CALLS = HEADER.size + 2 * STATUS  # where the ring begins
SIZE = CALLS + SLOT * SLOTS

_encoder = json.JSONEncoder(check_circular=False)


def encode(value: dict[str, Any]) -> bytes:
    """A call or a status as text."""
    return _encoder.encode(value).encode()


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

    def write_call(self, text: bytes, number: int) -> None:
        """Append a call (`encode`); beyond `SLOTS` the oldest is overwritten."""
        start = CALLS + (self._calls % SLOTS) * SLOT
        CALL.pack_into(self._memory, start, number, len(text), text)
        self._calls += 1
        COUNT.pack_into(self._memory, 0, self._calls)

    def write_status(self, status: dict[str, Any]) -> None:
        start = HEADER.size + (self._statuses % 2) * STATUS
        text = encode(status)[: STATUS - LENGTH.size]
        self._memory[start : start + LENGTH.size + len(text)] = LENGTH.pack(len(text)) + text
        self._statuses += 1
        COUNT.pack_into(self._memory, COUNT.size, self._statuses)

    # The launcher's side

    def status(self) -> dict[str, Any] | None:
        """The newest status; None before the first."""
        _, written = HEADER.unpack_from(self._memory)
        if not written:
            return None
        start = HEADER.size + ((written - 1) % 2) * STATUS
        (length,) = LENGTH.unpack_from(self._memory, start)
        return _decode(self._memory[start + LENGTH.size : start + LENGTH.size + length])

    def new_calls(self) -> tuple[list[dict[str, Any]], int]:
        """Calls since the last time this was asked, and how many were overwritten unread.

        A call is what was encoded, and its number as "seq".
        """
        written, _ = HEADER.unpack_from(self._memory)
        first = max(self._read, written - SLOTS + 1)
        read = [self._call(index) for index in range(first, written)]
        by_now, _ = HEADER.unpack_from(self._memory)
        overwritten = max(0, by_now - SLOTS + 1 - first)  # while they were read
        calls = [call for call in read[overwritten:] if call is not None]
        lost = written - self._read - len(calls)
        self._read = written
        return calls, lost

    def _call(self, index: int) -> dict[str, Any] | None:
        number, length, text = CALL.unpack_from(self._memory, CALLS + (index % SLOTS) * SLOT)
        call = _known(text[:length])
        return None if call is None else call | {"seq": number}


def _decode(text: bytes) -> dict[str, Any] | None:
    try:
        value: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return value


_known = lru_cache(_decode)
