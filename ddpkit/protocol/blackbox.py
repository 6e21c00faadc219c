"""A flight recorder: the last calls and the status of a rank, readable after the rank was killed.

Each rank owns one small file mapped into memory. The file holds the rank's *status* (the line of
code that the rank executes, and the call in which it waits), rewritten a few times a second. The
file also holds a ring of the last calls into torch.distributed, each written when the call is
posted. A write costs a memory copy and no system call, and wakes no process; the file survives its
writer. A pipe would need a system call for each write, and a shared memory object would need a
tracker process.

A call is stored as a text (JSON) and a number. A training loop repeats calls that differ only by
their number. So each text is made once, stored once and read once. A further call takes 16 bytes:
its own number and the number of its text.

A call is written before the backend gets it, because a backend may hang in the call, or end the
process. A backend may also refuse a call with an exception, which the program catches; then the
call has never been made. So a call is first marked as `MAKING`, and a moment later as made or as
`REFUSED`. A reader waits for the second mark, at most `HELD` seconds.

One thread writes calls, one thread writes statuses, and any number of processes may read. A reader
that reads during a write gets text that does not parse, and treats the text as "nothing new". A
call or text that may have been overwritten during the reading counts as lost.
"""

from __future__ import annotations

import json
import struct
import time
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from ddpkit.protocol.call import Call
from ddpkit.protocol.mapped import MappedFile
from ddpkit.protocol.status import RankStatus

SLOTS = 4096  # number of kept calls
TEXTS, SLOT = 1024, 1024  # number of kept texts, and bytes of each text
MAKING, REFUSED = 1 << 63, 1 << 62  # bits of a call's number
HELD = 0.1  # seconds for which a reader waits for a call that the backend has not taken yet
STATUS = 8192  # bytes of a status; two are kept, and written in turn
# The file begins with numbers of 8 bytes: three counts, of written calls, statuses and texts, then
# for each call its number and the number of its text. Each count has its own writing thread.
CALLS_WRITTEN, STATUSES_WRITTEN, TEXTS_WRITTEN, AT_CALL = range(4)
AT_STATUS = 8 * (AT_CALL + 2 * SLOTS)
AT_TEXT = AT_STATUS + 2 * STATUS
SIZE = AT_TEXT + SLOT * TEXTS
LENGTH = struct.Struct("<I")  # length in bytes, before each status and text
TORN = (ValueError, TypeError, KeyError)  # errors of reading a half overwritten text

_encoder = json.JSONEncoder(check_circular=False)


def encode(value: Call | RankStatus) -> bytes:
    """Return a call or a status as text. The text of a call does not contain the call's number."""
    return _encoder.encode(value.to_json()).encode()


class BlackBox(MappedFile):
    """The black box of one rank; `create` makes an empty file, the constructor opens a file."""

    size = SIZE

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._numbers = memoryview(self._memory)[:AT_STATUS].cast("Q")  # twice as fast as struct
        self._calls, self._statuses, self._texts = self._numbers[:AT_CALL]
        self._known_texts: dict[bytes, int] = {}  # text -> its number, for all texts in the file
        self._read = self._refused = 0
        self._held = -1, 0.0  # index of a call marked `MAKING`, and the start of the reader's wait

    def close(self) -> None:
        self._numbers.release()
        super().close()

    # The rank's side

    @property
    def calls_written(self) -> int:
        """The number of calls that were written so far, without refused calls."""
        return int(self._calls) - self._refused

    def write_call(self, text: bytes, number: int) -> int:
        """Append a call, or overwrite the oldest if `SLOTS` calls are stored; return its index.

        ``text`` is the call's text from `encode`.

        The index is the number of all calls written before this call. If `number` contains
        `MAKING`, the caller must call `made` or `refused` next.
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

    def made(self, index: int, number: int) -> None:
        """Record that a backend has accepted a call; `index` is the result of `write_call`."""
        if self._calls - index < SLOTS:  # a later call has not overwritten the place
            self._numbers[AT_CALL + 2 * (index % SLOTS)] = number

    def refused(self, index: int) -> None:
        """Record that a backend has refused a call, so that no reader gets the call."""
        self._refused += 1
        self.made(index, REFUSED)

    def _write_text(self, text: bytes) -> int:
        """Append a text, or overwrite the oldest if the file is full; return the text's number."""
        if len(self._known_texts) == TEXTS - 1:  # the file will soon overwrite the oldest text
            del self._known_texts[next(iter(self._known_texts))]
        place: int = self._texts
        self._known_texts[text] = place
        self._write(AT_TEXT + place % TEXTS * SLOT, text[: SLOT - LENGTH.size])
        self._texts += 1
        self._numbers[TEXTS_WRITTEN] = self._texts
        return place

    def write_status(self, status: RankStatus) -> None:
        """Write a status in the place of the older of the file's two statuses."""
        text = encode(status)[: STATUS - LENGTH.size]
        self._write(AT_STATUS + self._statuses % 2 * STATUS, text)
        self._statuses += 1
        self._numbers[STATUSES_WRITTEN] = self._statuses

    def _write(self, start: int, text: bytes) -> None:
        self._memory[start : start + LENGTH.size + len(text)] = LENGTH.pack(len(text)) + text

    # The launcher's side

    def status(self) -> RankStatus | None:
        """Return the newest status; None before the first status, and during a write."""
        written = self._numbers[STATUSES_WRITTEN]
        text = self._text(AT_STATUS + (written - 1) % 2 * STATUS)
        try:
            return RankStatus.from_json(json.loads(text)) if written else None
        except TORN:
            return None

    def new_calls(self) -> tuple[list[Call], int]:
        """Return the calls since the last `new_calls`, and the number of calls that were lost."""
        written = self._numbers[CALLS_WRITTEN]
        first = max(self._read, written - SLOTS + 1)
        read = []
        for index in range(first, written):
            kept = self._call(index)
            if kept.number & MAKING and self._is_worth_waiting_for(index):
                written = index
                break
            read.append(kept)
        by_now, texts = self._numbers[CALLS_WRITTEN], self._numbers[TEXTS_WRITTEN]
        # number of calls overwritten during the reading
        overwritten = max(0, by_now - SLOTS + 1 - first)
        left = read[overwritten:]
        calls = [each.call for each in left if each.call and each.text > texts - TEXTS]
        refused = sum(each.number == REFUSED for each in left)
        lost = written - self._read - len(calls) - refused
        self._read = written
        return calls, lost

    def _is_worth_waiting_for(self, index: int) -> bool:
        """True while the reader has waited less than `HELD` for a call marked as `MAKING`."""
        if self._held[0] != index:
            self._held = index, time.monotonic()
        return time.monotonic() - self._held[1] < HELD

    def last_calls(self) -> dict[int, Call]:
        """Return all calls that are still in the file, by index, read before or not."""
        written, texts = self._numbers[CALLS_WRITTEN], self._numbers[TEXTS_WRITTEN]
        kept = {n: self._call(n) for n in range(max(0, written - SLOTS + 1), written)}
        return {n: one.call for n, one in kept.items() if one.call and one.text > texts - TEXTS}

    def _call(self, index: int) -> _KeptCall:
        at = AT_CALL + 2 * (index % SLOTS)
        number, place = self._numbers[at : at + 2]
        call = None
        if number != REFUSED:
            call = _decode(self._text(AT_TEXT + place % TEXTS * SLOT))
        return _KeptCall(number, call and call._replace(seq=number & ~MAKING), place)

    def _text(self, start: int) -> bytes:
        (length,) = LENGTH.unpack_from(self._memory, start)
        return self._memory[start + LENGTH.size : start + LENGTH.size + length]


class _KeptCall(NamedTuple):
    """A call in the form in which the file stores it."""

    number: int  # may contain `MAKING` or be `REFUSED`
    call: Call | None  # None for a refused call, or for a torn text
    text: int  # the number of the text


@lru_cache(TEXTS)
def _decode(text: bytes) -> Call | None:
    try:
        return Call.from_json(json.loads(text))
    except TORN:
        return None
