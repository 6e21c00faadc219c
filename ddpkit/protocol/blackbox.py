"""A flight recorder: what a rank was doing, readable even after the rank has been killed.

Each rank owns one small file mapped into memory. It holds the rank's *status* (where it is, what it
waits for), rewritten a few times a second, and a ring of the last calls into torch.distributed,
each written as it is posted. Writing costs a memory copy and no system call, wakes nobody, and
survives the writer; a pipe would do neither, and shared memory objects need a tracker process.

A call is a text, JSON, and a number. A training loop makes the same calls again and again, which
differ by their number alone: so a text is made once, lies there once, and is read once; a call is
16 bytes, its number and its text's.

A call is written before the backend has it: a backend may hang over it, or end the process. A
backend may also refuse it with an exception, which the program catches, and then the call has never
been made. So a call is written as `MAKING`, and a moment later once more: as made, or as `REFUSED`.
A reader waits for that moment, `HELD` seconds at most.

There is one writer of calls, one of statuses, and any number of readers. A reader that comes in the
middle of a write gets text that does not parse, and takes it as "nothing new"; a call that may have
been overwritten while it was read, or its text, counts as lost.
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

SLOTS = 4096  # calls kept
TEXTS, SLOT = 1024, 1024  # texts kept, bytes of each
MAKING, REFUSED = 1 << 63, 1 << 62  # bits of a call's number
HELD = 0.1  # seconds for which a reader waits for a call that the backend has not taken yet
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
        self._read = self._refused = 0
        self._held = -1, 0.0  # a call that is being made, and since when it is waited for

    def close(self) -> None:
        self._numbers.release()
        super().close()

    # The rank's side

    @property
    def calls_written(self) -> int:
        """The number of calls written so far, without those that a backend has refused."""
        return int(self._calls) - self._refused

    def write_call(self, text: bytes, number: int) -> int:
        """Append a call (`encode`); beyond `SLOTS` the oldest is overwritten.

        Returns how many there were before it. With `MAKING` in its number, `made` or `refused`
        must follow.
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
        """Note that a backend has taken a call; `index` is what `write_call` gave for it."""
        if self._calls - index < SLOTS:  # else its place is another call's by now
            self._numbers[AT_CALL + 2 * (index % SLOTS)] = number

    def refused(self, index: int) -> None:
        """Note that a backend has refused a call, so that nobody reads it any more."""
        self._refused += 1
        self.made(index, REFUSED)

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
        read = []
        for index in range(first, written):
            kept = self._call(index)
            if kept.number & MAKING and self._is_worth_waiting_for(index):
                written = index
                break
            read.append(kept)
        by_now, texts = self._numbers[CALLS_WRITTEN], self._numbers[TEXTS_WRITTEN]
        overwritten = max(0, by_now - SLOTS + 1 - first)  # while they were read
        left = read[overwritten:]
        calls = [each.call for each in left if each.call and each.text > texts - TEXTS]
        refused = sum(each.number == REFUSED for each in left)
        lost = written - self._read - len(calls) - refused
        self._read = written
        return calls, lost

    def _is_worth_waiting_for(self, index: int) -> bool:
        """True while a call that is being made has not been waited for long."""
        if self._held[0] != index:
            self._held = index, time.monotonic()
        return time.monotonic() - self._held[1] < HELD

    def last_calls(self) -> dict[int, Call]:
        """The calls that are kept, whether they were read or not, by how many were before each."""
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
    """A call as its place in the file has it."""

    number: int  # with `MAKING`, or `REFUSED`
    call: Call | None  # None if it was refused, or if its text is torn
    text: int  # the number of its text


@lru_cache(TEXTS)
def _decode(text: bytes) -> Call | None:
    try:
        return Call.from_json(json.loads(text))
    except TORN:
        return None
