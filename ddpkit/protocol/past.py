"""When a rank's calls and its compute began and ended, readable after the rank has been killed.

A rank keeps its record in its own memory and sends it when its function has returned or raised. One
that is killed sends nothing. So it also writes what ends into a file mapped into memory, beside its
black box: a ring of the times of calls, in the order in which the black box has the calls, and a
ring of stretches of compute. Writing costs no system call, and survives the writer.

An entry's own number is written last, and nobody reads before the rank is dead: so an entry that
the kill has cut in two still bears a number that nobody asks for. A time that comes later, as a
call's end, is one store of 8 bytes. The file holds numbers and texts, nothing that is executed as
it is read.

Times are in ns of the rank's own clock. What is known in another way, as a moment on a GPU, or on
an emulated cluster one that follows what is not done yet, is left out.
"""

from __future__ import annotations

import struct
import threading
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from ddpkit.protocol.blackbox import SLOTS
from ddpkit.protocol.mapped import MappedFile

UNKNOWN = -1  # a time
# Of each call: its number in the black box, from 1 on, and its times.
CALL, POSTED, BLOCKED, DONE, COLLECTED = 5, 1, 2, 3, 4
# Of each stretch: its number, from 1 on, its times, what it adds, and its name's number.
STRETCH, START, END, MORE, NAMED = 5, 1, 2, 3, 4
AT_STRETCH = CALL * SLOTS
NUMBERS = AT_STRETCH + STRETCH * SLOTS
NAMES, NAME = 1024, 128  # names kept, and bytes of each, with its number
NAME_NUMBER = struct.Struct("q")
SIZE = 8 * NUMBERS + NAME * NAMES
WRITERS = 8  # threads that may be writing stretches at once


class Times(NamedTuple):
    """The times of a call; `UNKNOWN` is what had not come yet."""

    posted: int
    blocked: int
    done: int
    collected: int


class KeptStretch(NamedTuple):
    """A stretch of compute, or a step, that has ended."""

    number: int  # from 1 on, in the order in which they ended
    kind: str
    name: str  # its first letters, if it is long
    start: int
    end: int
    more: int  # of a step: how many there were with it; of a backward: when a gradient came last


class Past(MappedFile):
    """The file of one rank; `create` makes it empty, the constructor opens one that exists."""

    size = SIZE

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._numbers = memoryview(self._memory)[: 8 * NUMBERS].cast("q")
        self._stretches = count(1)  # several threads may compute, and each takes a number
        self._names: dict[tuple[str, str], int] = {}
        self._names_written = 0
        self._lock = threading.Lock()  # of names

    def close(self) -> None:
        self._numbers.release()
        super().close()

    # The rank's side. Moments that are no numbers are left out.

    def posted(self, call: int, moment: Any) -> None:
        """Note when a call was posted; `call` is what `BlackBox.write_call` gave for it."""
        if type(moment) is int:
            numbers, at = self._numbers, call % SLOTS * CALL
            numbers[at + POSTED] = moment
            numbers[at + DONE] = UNKNOWN
            numbers[at] = call + 1

    def note(self, call: int, blocked: Any, done: Any, collected: Any) -> None:
        """Note what is known of a call by now; nothing if its place is another's already."""
        numbers, at = self._numbers, call % SLOTS * CALL
        if numbers[at] == call + 1:
            numbers[at + BLOCKED] = blocked if type(blocked) is int else UNKNOWN
            numbers[at + DONE] = done if type(done) is int and done else UNKNOWN
            if type(collected) is int:
                numbers[at + COLLECTED] = collected

    def forget(self, call: int) -> None:
        """Note that a call stands in another place now, or was refused."""
        if self._numbers[call % SLOTS * CALL] == call + 1:
            self._numbers[call % SLOTS * CALL] = 0

    def stretch(self, kind: str, name: str, start: Any, end: Any, more: Any = UNKNOWN) -> None:
        """Append a stretch that has ended."""
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
        """Append a name, in the place of the oldest if all are taken; its number, from 1 on."""
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
        """The times of a call; None if they are not known, or overwritten."""
        at = call % SLOTS * CALL
        number, posted, *later = self._numbers[at : at + CALL]
        if number != call + 1:
            return None
        return Times(posted, *(ns if ns >= posted else UNKNOWN for ns in later))

    def stretches(self) -> list[KeptStretch]:
        """The stretches that are kept, in the order in which they ended."""
        found = []
        for at in range(AT_STRETCH, NUMBERS, STRETCH):
            number, start, end, more, named = self._numbers[at : at + STRETCH]
            if number:
                found.append(KeptStretch(number, *self._name(named), start, end, more))
        newest = max((stretch.number for stretch in found), default=0)
        return sorted(each for each in found if each.number > newest - SLOTS + WRITERS)

    def _name(self, number: int) -> tuple[str, str]:
        """The kind and the name of a number; of one that is overwritten, that it is a span."""
        at = 8 * NUMBERS + number % NAMES * NAME
        if NAME_NUMBER.unpack_from(self._memory, at) != (number,):
            return "span", ""
        text = self._memory[at + NAME_NUMBER.size : at + NAME]
        kind, _, name = text.rstrip(b"\0").decode(errors="ignore").partition(" ")
        return kind, name
