"""The launcher's view of a computing rank: reads the rank's clock, and detects a standstill."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ddpkit.protocol.emulation import ClockPage

# A thread stands still if it has used no CPU time for a number of seconds:
STANDSTILL = 0.5  # in the user's code
STANDSTILL_IN_GLOO = 0.02  # inside gloo, while the thread may wait for a peer's post
STANDSTILL_FOR_BYTES = 60.0  # if gloo has everything it needs: on busy cores, messages take long
STANDSTILL_BUT_AGENT = 5.0  # if only the agent goes on: on busy cores the agent is always ready
LOOKS = 5  # looks in a row: after a long time without a core, a single look proves little
READY = (b"R", b"D", b"T", b"t")  # states of ready threads; a stopped thread may be continued
# gloo's thread of a group looks for bytes every 10 ms, so on busy cores it is nearly always ready.
# It carries nothing if it had TURNS turns on a core, used less than POLLS of the time, and woke
# nobody. One look takes about 10 us, 0.1 % of the time (measured: 0.09 % to 0.15 %).
GLOOS_LOOP = b"gloo_tcp_loop"
TURNS, POLLS = 5, 0.02
TICKS = 3  # ticks of 10 ms; a process at a standstill uses less in `STANDSTILL`
NOTABLE_NS = 100_000  # CPU time that shows a main thread at work


class ThreadState(NamedTuple):
    """The state of a thread, as Linux reports it: ready to run or not, and the CPU time."""

    ready: bool  # True if the thread runs, waits for a core, or is stopped
    ticks: int  # CPU time, in ticks of 10 ms
    looks_for_bytes: bool = False  # gloo's thread of a group


def threads(pid: int) -> dict[int, ThreadState]:
    """Return the threads of a process, by native id; {} if the system is not Linux."""
    folder, found = f"/proc/{pid}/task", {}
    with suppress(OSError):  # the process has ended, or this is not Linux
        for thread in os.listdir(folder):  # `pathlib` would take three times as long
            with suppress(OSError), open(f"{folder}/{thread}/stat", "rb") as stat:
                head, _, rest = stat.read().rpartition(b")")
                fields, name = rest.split(), head.partition(b"(")[2]
                if fields:
                    ticks = sum(map(int, fields[11:13]))  # in user mode, and in the kernel
                    ready = fields[0] in READY
                    found[int(thread)] = ThreadState(ready, ticks, name == GLOOS_LOOP)
    return found


def turns(pid: int, thread: int) -> tuple[int, int]:
    """Return a thread's CPU time in ns, and the number of its turns on a core; (0, 0) if unknown.

    Source: Linux, Documentation/scheduler/sched-stats.rst, "/proc/<pid>/schedstat".
    """
    try:
        found = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()
        return int(found[0]), int(found[2])
    except (OSError, IndexError):
        return 0, 0


def is_ready(pid: int) -> bool:
    """True if a thread of a process runs, waits for a core, or is stopped.

    False if the system is not Linux. All threads count: while the main thread waits for the GIL,
    the holder may wait for a core.
    """
    return _is_any_ready(threads(pid))


def served_ns(pid: int) -> int:
    """Return the CPU time of a process's main thread in ns; 0 if the system does not report it."""
    try:
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_bytes().split()[0])
    except (OSError, IndexError):
        return 0


@dataclass(slots=True)
class Rest:
    """A period in which no thread was found ready to run, and almost no CPU time was used."""

    since: float = field(default_factory=time.monotonic)
    looks: int = 0
    looked: float = 0.0  # the time of the last look
    used: int = 0  # CPU time at the rest's beginning
    # gloo's threads at the rest's first calm look: CPU time in ns, and turns on a core
    turns: dict[int, tuple[int, int]] = field(default_factory=dict)
    turns_since: float = 0.0  # the time of this look

    def look(self, now: float, used: int, notable: int, *, ready: bool) -> None:
        """Add one look at the threads. The period begins again if a thread has worked."""
        if ready or used > self.used + notable:
            self.used, self.since, self.looks = used, now, 0
        else:
            self.looks += now != self.looked  # several callbacks of a rank count as one look
        self.looked = now

    def is_longer_than(self, seconds: float, now: float) -> bool:
        """True if the period is longer than `seconds`, and was checked at least `LOOKS` times."""
        return now - self.since > seconds and self.looks >= LOOKS


@dataclass(slots=True, eq=False)
class Watched:
    """The main thread of a rank, as the launcher sees the thread from outside."""

    page: ClockPage
    pid: int
    speed: float
    main: Rest = field(default_factory=Rest)  # judged by the main thread's CPU time
    main_but_agent: Rest = field(default_factory=Rest)  # like `main`, but the agent may be ready
    process: Rest = field(default_factory=Rest)  # judged by the CPU time of all threads
    process_but_agent: Rest = field(default_factory=Rest)  # like `process`, but without the agent
    files: dict[str, int] = field(default_factory=dict)  # path in /proc -> open file

    def go_on(self) -> None:
        """Record that the rank does not stand still."""
        for rest in (self.main, self.main_but_agent, self.process, self.process_but_agent):
            rest.since, rest.looks = time.monotonic(), 0

    def ns(self) -> int:
        """Return a lower bound of the rank's clock, in ns; 0 if unknown."""
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
        """Return the CPU time of the thread in ns; None if the system does not report it."""
        text = self._tells(f"/proc/{self.pid}/task/{self.pid}/schedstat")
        return int(text.split(b" ", 1)[0]) if text else None

    def _tells(self, path: str) -> bytes:
        """Return the present content of a file in /proc; b"" if the file is missing."""
        if not sys.platform.startswith("linux"):
            return b""
        try:
            if path not in self.files:
                self.files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self.files[path], 1024, 0)
        except OSError:  # the process has ended
            return b""

    def close(self) -> None:
        """Close the files that were opened to watch the rank."""
        for descriptor in self.files.values():
            os.close(descriptor)
        self.files.clear()
        self.page.close()

    def stands_still(self, now: float, *, unmet: bool) -> bool:
        """True if the thread has used no CPU time for so long that the timekeeper should not wait.

        ``unmet`` is True if the rank has posted an operation which a peer has not posted yet. Only
        then may the rank wait in gloo for an event of emulated time. Otherwise the rank waits for
        bytes that gloo is moving.
        """
        used = self.used_ns() or 0
        main, others = self.main, self.main_but_agent
        works = used > max(main.used, others.used) + NOTABLE_NS
        found = {} if works else threads(self.pid)  # a look at all threads costs 0.3 ms
        self._look(main, now, used, NOTABLE_NS, found)
        self._look(others, now, used, NOTABLE_NS, self._without_agent(found))
        limit = STANDSTILL_FOR_BYTES
        if self.page.in_users_code or (unmet and self.page.may_wait_for_gloo):
            limit = STANDSTILL
        elif unmet and self.page.waits_for_gloo:
            limit = STANDSTILL_IN_GLOO
        longer = max(limit, STANDSTILL_BUT_AGENT)
        return self._is_over(main, limit, now) or self._is_over(others, longer, now)

    def process_stands_still(self, now: float) -> bool:
        """True if the threads of the process have used almost no CPU time for a while."""
        found = threads(self.pid)
        others = self._without_agent(found)
        self._look(self.process, now, _ticks(found), TICKS, found)
        self._look(self.process_but_agent, now, _ticks(others), TICKS, others)
        rests = (self.process, STANDSTILL), (self.process_but_agent, STANDSTILL_BUT_AGENT)
        return any(self._is_over(rest, limit, now) for rest, limit in rests)

    def _look(
        self, rest: Rest, now: float, used: int, notable: int, found: Mapping[int, ThreadState]
    ) -> None:
        """Add a look at the threads `found`; gloo's threads are judged at the end of the rest."""
        ready = any(state.ready and not state.looks_for_bytes for state in found.values())
        rest.look(now, used, notable, ready=ready)
        if rest.looks == 1:
            loops = [thread for thread, state in found.items() if state.looks_for_bytes]
            rest.turns = {thread: turns(self.pid, thread) for thread in loops}
            rest.turns_since = now

    def _is_over(self, rest: Rest, seconds: float, now: float) -> bool:
        """True if a period is longer than `seconds`, and gloo's threads had nothing to carry."""
        if not rest.is_longer_than(seconds, now):
            return False
        most = 1e9 * POLLS * (now - rest.turns_since)
        for thread, (used_ns, had) in rest.turns.items():
            used_now_ns, has = turns(self.pid, thread)
            if has and (has - had < TURNS or used_now_ns - used_ns > most):
                return False
        return True

    def _without_agent(self, found: Mapping[int, ThreadState]) -> dict[int, ThreadState]:
        return {thread: state for thread, state in found.items() if thread != self.page.agent}


def _is_any_ready(found: Mapping[int, ThreadState]) -> bool:
    return any(state.ready for state in found.values())


def _ticks(found: Mapping[int, ThreadState]) -> int:
    return sum(state.ticks for state in found.values() if not state.looks_for_bytes)
