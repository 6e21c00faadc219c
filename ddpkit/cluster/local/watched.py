"""The clock of a rank that computes, as the launcher sees it from outside."""

from __future__ import annotations

import math
import os
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ddpkit.protocol.emulation import ClockPage

STANDSTILL = 0.5  # seconds in the user's code
STANDSTILL_IN_GLOO = 0.02  # where the thread may wait for a peer's post
STANDSTILL_FOR_BYTES = 60.0  # where gloo has all that it needs: on busy cores, messages take long
LOOKS = 5  # looks in a row: after a long time without a core, a single look proves little
READY = ([b"R"], [b"D"], [b"T"], [b"t"])  # a stopped one goes on when somebody lets it
TICKS = 3  # of 10 ms: a process that stands still uses less in `STANDSTILL`


def is_ready(pid: int) -> bool:
    """Whether a thread of a process runs, would if it had a core, or is stopped; False off Linux.

    Not the main one alone: it may wait for the GIL, whose holder waits for a core.
    """
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # the thread has ended
            if stat.read_bytes().rpartition(b")")[2].split()[:1] in READY:
                return True
    return False


def served_ns(pid: int) -> int:
    """The CPU time that a process's main thread has had; 0 where the system does not tell."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_bytes().split()[0])
    except (OSError, IndexError):
        return 0


@dataclass(slots=True, eq=False)
class Watched:
    """The main thread of a rank that computes, as seen from outside."""

    page: ClockPage
    pid: int
    speed: float
    cpu_ns: int = 0
    since: float = field(default_factory=time.monotonic)  # when its CPU time was seen to have grown
    ticks: int = 0
    ticks_since: float = field(default_factory=time.monotonic)  # so of the process
    looks: int = 0  # since it was last seen to go on
    looked: float = 0.0  # when
    files: dict[str, int] = field(default_factory=dict)  # of the system's, that tell of it

    def go_on(self) -> None:
        """Note that it does not stand still."""
        self.since, self.looks = time.monotonic(), 0

    def ns(self) -> int:
        """A time that the rank's clock has reached; 0 if that cannot be told."""
        reading = self.page.read()
        if reading is None:
            return 0
        if math.isinf(self.speed):
            return reading.ns
        used = self.used_ns()
        if used is None or self.page.read() != reading:
            return reading.ns
        return reading.ns + int(max(0, used - reading.cpu_ns) / self.speed)

    def used_ns(self) -> int | None:
        """The CPU time of the thread; None where the system does not tell."""
        text = self._tells(f"/proc/{self.pid}/task/{self.pid}/schedstat")
        return int(text.split(b" ", 1)[0]) if text else None

    def _tells(self, path: str) -> bytes:
        """What a file of the system's says now; nothing where there is none."""
        if not sys.platform.startswith("linux"):
            return b""
        try:
            if path not in self.files:
                self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self.files[path], 1024, 0)
        except OSError:  # the process has ended
            return b""

    def close(self) -> None:
        """Close what has been opened to watch it."""
        for descriptor in self.files.values():
            os.close(descriptor)
        self.files.clear()
        self.page.close()

    def stands_still(self, now: float, *, unmet: bool) -> bool:
        """Whether the thread has slept, and used no CPU time, for so long that nobody waits for it.

        ``unmet``: a peer has not posted its part of something that the rank has posted. Only then
        may it wait in gloo for what time has to bring; else for bytes that are on their way.
        """
        used = self.used_ns()
        if used is not None and (used > self.cpu_ns + 100_000 or is_ready(self.pid)):
            self.cpu_ns, self.since, self.looks = used, now, 0
        else:
            self._look(now)
        limit = STANDSTILL_FOR_BYTES
        if self.page.in_users_code or (unmet and self.page.may_wait_for_gloo):
            limit = STANDSTILL
        elif unmet and self.page.waits_for_gloo:
            limit = STANDSTILL_IN_GLOO
        return now - self.since > limit and self.looks >= LOOKS

    def _look(self, now: float) -> None:
        """Count a look that found it at rest: one, for however many of the rank's threads."""
        self.looks += now != self.looked
        self.looked = now

    def process_stands_still(self, now: float) -> bool:
        """Whether no thread of the process has used CPU time to speak of for a while."""
        fields = self._tells(f"/proc/{self.pid}/stat").rpartition(b")")[2].split()
        ticks = sum(map(int, fields[11:13]))  # the user's, and the system's
        if ticks > self.ticks + TICKS or is_ready(self.pid):
            self.ticks, self.ticks_since, self.looks = ticks, now, 0
        else:
            self._look(now)
        return now - max(self.since, self.ticks_since) > STANDSTILL and self.looks >= LOOKS
