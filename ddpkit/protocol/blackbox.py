"""A flight recorder: what a rank was doing, readable even after the rank has been killed.

Each rank owns one small file mapped into memory. It holds the rank's *status* (where it is, what it
waits for), rewritten a few times a second, and a ring of the last calls into torch.distributed,
each written as it is posted. Writing costs a memory copy and no system call, wakes nobody, and
survives the writer; a pipe would do neither, and shared memory objects need a tracker process.

A call is a text, JSON, and a number. A training loop makes the same calls again and again, which
differ by their number alone: so a text is made once, lies there once, and is read once; a call is
16 bytes, its number and its text's.

There is one writer of calls, one of statuses, and any number of readers. A reader that comes in the
middle of a write gets text that does not parse, and takes it as "nothing new"; a call that may have
been overwritten while it was read, or its text, counts as lost.
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from pathlib import Path

from ddpkit.protocol.call import Call
from ddpkit.protocol.mapped import MappedFile
from ddpkit.protocol.status import RankStatus

SLOTS = 4096  # calls kept
TEXTS, SLOT = 1024, 1024  # texts kept, bytes of each
STATUS = 8192  # bytes of a status; two are kept, and written in turn
# The file begins with numbers of 8 bytes: how many calls, statuses and texts have been written so
# far, each by a thread of its own, and of each call its number and its text's.
CALLS_WRITTEN, STATUSES_WRITTEN, TEXTS_WRITTEN, AT_CALL = range(4)
AT_STATUS = 8 * (AT_CALL + 2 * SLOTS)
AT_TEXT = AT_STATUS + 2 * STATUS
SIZE = AT_TEXT + SLOT * TEXTS
LENGTH = struct.Struct("<I")  # before each status and text
TORN = (ValueError, TypeError, KeyError)  # what reading a text raises that is half overwritten

_encoder = json.JSONEncoder(check_circular=False)


def encode(value: Call | RankStatus) -> bytes:
    """A call or a status as text. A call's number is written beside the text, not in it."""
    return _encoder.encode(value.to_json()).encode()


class BlackBox(MappedFile):
    """The file of one rank; `create` makes it empty, the constructor opens one that exists."""

    size = SIZE

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._numbers = memoryview(self._memory)[:AT_STATUS].cast("Q")  # half the price of struct
        self._calls, self._statuses, self._texts = self._numbers[:AT_CALL]
        self._known_texts: dict[bytes, int] = {}  # the numbers of the texts written so far
        self._read = 0

    def close(self) -> None:
        self._numbers.release()
        super().close()

    # The rank's side

    @property
    def calls_written(self) -> int:
        """How many calls have been written so far."""
        return int(self._calls)

    def write_call(self, text: bytes, number: int) -> int:
        """Append a call (`encode`); beyond `SLOTS` the oldest is overwritten.

        Returns how many there were before it.
        """
        place = self._known_texts.get(text)
        if place is None:
            place = self._write_text(text)
        index: int = self._calls
        numbers, at = self._numbers, AT_CALL + 2 * (index % SLOTS)
        numbers[at] = number
        numbers[at + 1] = place
        self._calls = index + 1
        numbers[CALLS_WRITTEN] = index + 1
        return index

    def _write_text(self, text: bytes) -> int:
        """Append a text, in the place of the oldest if all are taken; return its number."""
        if (
            len(self._known_texts) == TEXTS - 1
        ):  # of the oldest, a reader could not be sure any more
            del self._known_texts[next(iter(self._known_texts))]
        place: int = self._texts
        self._known_texts[text] = place
        self._write(AT_TEXT + place % TEXTS * SLOT, text[: SLOT - LENGTH.size])
        self._texts += 1
        self._numbers[TEXTS_WRITTEN] = self._texts
        return place

    def write_status(self, status: RankStatus) -> None:
        """Write a status in the place of the one before the last."""
        text = encode(status)[: STATUS - LENGTH.size]
        self._write(AT_STATUS + self._statuses % 2 * STATUS, text)
        self._statuses += 1
        self._numbers[STATUSES_WRITTEN] = self._statuses

    def _write(self, start: int, text: bytes) -> None:
        self._memory[start : start + LENGTH.size + len(text)] = LENGTH.pack(len(text)) + text

    # The launcher's side

    def status(self) -> RankStatus | None:
        """The newest status; None before the first, and while one is torn."""
        written = self._numbers[STATUSES_WRITTEN]
        text = self._text(AT_STATUS + (written - 1) % 2 * STATUS)
        try:
            return RankStatus.from_json(json.loads(text)) if written else None
        except TORN:
            return None

    def new_calls(self) -> tuple[list[Call], int]:
        """Calls since the last time this was asked, and how many were overwritten unread."""
        written = self._numbers[CALLS_WRITTEN]
        first = max(self._read, written - SLOTS + 1)
        read = [self._call(index) for index in range(first, written)]
        by_now, texts = self._numbers[CALLS_WRITTEN], self._numbers[TEXTS_WRITTEN]
        overwritten = max(0, by_now - SLOTS + 1 - first)  # while they were read
        calls = [
            call for call, place in read[overwritten:] if call is not None and place > texts - TEXTS
        ]
        lost = written - self._read - len(calls)
        self._read = written
        return calls, lost

    def last_calls(self) -> dict[int, Call]:
        """The calls that are kept, whether they were read or not, by how many were before each."""
        written, texts = self._numbers[CALLS_WRITTEN], self._numbers[TEXTS_WRITTEN]
        kept = {n: self._call(n) for n in range(max(0, written - SLOTS + 1), written)}
        return {n: call for n, (call, place) in kept.items() if call and place > texts - TEXTS}

    def _call(self, index: int) -> tuple[Call | None, int]:
        """A call, and the number of its text; None for one whose text is torn."""
        at = AT_CALL + 2 * (index % SLOTS)
        number, place = self._numbers[at : at + 2]
        call = _decode(self._text(AT_TEXT + place % TEXTS * SLOT))
        return call and call._replace(seq=number), place

    def _text(self, start: int) -> bytes:
        (length,) = LENGTH.unpack_from(self._memory, start)
        return self._memory[start + LENGTH.size : start + LENGTH.size + length]


@lru_cache(TEXTS)
def _decode(text: bytes) -> Call | None:
    try:
        return Call.from_json(json.loads(text))
    except TORN:
        return None
