"""The start and end of a rank's calls and compute, readable after the rank was killed.

A rank keeps its record in its own memory, and sends the record when its function has returned or
raised. A killed rank sends nothing. So a rank also writes finished calls and stretches into a file
mapped into memory, beside its black box: a ring of the times of calls, in the black box's order,
and a ring of stretches of compute. A write costs no system call, and the file survives its writer.

The number of an entry is written last, and the file is read only after the rank's death. So if the
kill interrupts a write, the entry still has its old number, and the reader ignores the entry. A
time that is added later, such as the end of a call, is a single write of 8 bytes. The file holds
only numbers and texts, so its reader executes nothing from it.

Times are in ns of the rank's own clock. A time that is not known yet is left out: a time on a GPU,
or a time on an emulated cluster that depends on an unfinished operation.
"""

from __future__ import annotations

import struct
import threading
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ddpkit.protocol.blackbox import SLOTS
from ddpkit.protocol.mapped import MappedFile

UNKNOWN = -1  # stands for an unknown time
# Each call has 5 numbers: its index in the black box plus 1, and its times.
CALL, POSTED, BLOCKED, DONE, COLLECTED = 5, 1, 2, 3, 4
# Each stretch has 5 numbers: its own number from 1 on, its times, `more`, and its name's number.
STRETCH, START, END, MORE, NAMED = 5, 1, 2, 3, 4
AT_STRETCH = CALL * SLOTS
NUMBERS = AT_STRETCH + STRETCH * SLOTS
NAMES, NAME = 1024, 128  # number of names that are kept, and bytes of one name with its number
NAME_NUMBER = struct.Struct("q")
SIZE = 8 * NUMBERS + NAME * NAMES
WRITERS = 8  # number of threads that may write stretches at the same time


class Times(NamedTuple):
    """The times of a call in ns. A time that the call had not reached is `UNKNOWN`."""

    posted: int
    blocked: int
    done: int
    collected: int


class KeptStretch(NamedTuple):
    """A finished stretch of compute, or a finished step."""

    number: int  # counted from 1, in the order of the ends
    kind: str
    name: str  # a long name is cut
    start: int
    end: int
    # for a step, the number of steps so far; for a backward, the time of its last gradient
    more: int


class Past(MappedFile):
    """The record of one rank; `create` makes an empty file, the constructor opens a file."""

    size = SIZE

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._numbers = memoryview(self._memory)[: 8 * NUMBERS].cast("q")
        self._stretches = count(1)  # several threads may compute, and each takes a number
        self._names: dict[tuple[str, str], int] = {}
        self._names_written = 0
        self._lock = threading.Lock()  # guards the names

    def close(self) -> None:
        self._numbers.release()
        super().close()

    # The rank's side. A moment that is not a number, such as a CUDA event, is not written.

    def posted(self, call: int, moment: object) -> None:
        """Write the time of a call's post; `call` is the result of `BlackBox.write_call`."""
        if type(moment) is int:
            numbers, at = self._numbers, call % SLOTS * CALL
            numbers[at + POSTED] = moment
            numbers[at + DONE] = UNKNOWN
            numbers[at] = call + 1

    def note(self, call: int, blocked: object, done: object, collected: object) -> None:
        """Write the known times of a call; do nothing if a later call has overwritten its place."""
        numbers, at = self._numbers, call % SLOTS * CALL
        if numbers[at] == call + 1:
            numbers[at + BLOCKED] = blocked if type(blocked) is int else UNKNOWN
            numbers[at + DONE] = done if type(done) is int and done else UNKNOWN
            if type(collected) is int:
                numbers[at + COLLECTED] = collected

    def forget(self, call: int) -> None:
        """Remove the times of a call that was refused, or that is stored in another place now."""
        if self._numbers[call % SLOTS * CALL] == call + 1:
            self._numbers[call % SLOTS * CALL] = 0

    def stretch(
        self, kind: str, name: str, start: object, end: object, more: object = UNKNOWN
    ) -> None:
        """Append a finished stretch of compute, or a finished step."""
        if type(start) is not int or type(end) is not int:
            return
        named = self._names.get((kind, name)) or self._write_name(kind, name)
        number = next(self._stretches)
        numbers, at = self._numbers, AT_STRETCH + number % SLOTS * STRETCH
        numbers[at + START] = start
        numbers[at + END] = end
        numbers[at + MORE] = more if type(more) is int else UNKNOWN
        numbers[at + NAMED] = named
        numbers[at] = number

    def _write_name(self, kind: str, name: str) -> int:
        """Append a name, or overwrite the oldest if the file is full; return the name's number."""
        with self._lock:
            number = self._names_written = self._names_written + 1
            if len(self._names) == NAMES - WRITERS:
                del self._names[next(iter(self._names))]
            self._names[kind, name] = number
            at, text = 8 * NUMBERS + number % NAMES * NAME, f"{kind} {name}".encode()
            kept = text[: NAME - NAME_NUMBER.size].ljust(NAME - NAME_NUMBER.size, b"\0")
            self._memory[at : at + NAME] = NAME_NUMBER.pack(number) + kept
            return number

    # The launcher's side, when the rank is dead

    def times(self, call: int) -> Times | None:
        """Return the times of a call; None if they are unknown or overwritten."""
        at = call % SLOTS * CALL
        number, posted, *later = self._numbers[at : at + CALL]
        if number != call + 1:
            return None
        return Times(posted, *(ns if ns >= posted else UNKNOWN for ns in later))

    def stretches(self) -> list[KeptStretch]:
        """Return the stretches that are still in the file, in the order of their ends."""
        found = []
        for at in range(AT_STRETCH, NUMBERS, STRETCH):
            number, start, end, more, named = self._numbers[at : at + STRETCH]
            if number:
                found.append(KeptStretch(number, *self._name(named), start, end, more))
        newest = max((stretch.number for stretch in found), default=0)
        return sorted(each for each in found if each.number > newest - SLOTS + WRITERS)

    def _name(self, number: int) -> tuple[str, str]:
        """Return the kind and the name with this number; ("span", "") for an overwritten name."""
        at = 8 * NUMBERS + number % NAMES * NAME
        if NAME_NUMBER.unpack_from(self._memory, at) != (number,):
            return "span", ""
        text = self._memory[at + NAME_NUMBER.size : at + NAME]
        kind, _, name = text.rstrip(b"\0").decode(errors="ignore").partition(" ")
        return kind, name
