"""`run`: runs one notebook in one sandbox, and watches the sandbox from outside.

The result has the claims, and the last cell that ran. The clock and all limits are outside the
sandbox. A cell that hangs, kills the kernel or prints without end ends the run; the caller then
starts a new run without this cell.
"""

from __future__ import annotations

import json
import math
import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ddpkit.cluster.cores import cores
from ddpkit.grade.sandbox import levels
from ddpkit.grade.sandbox.base import Limits, Sandbox, Usage

TICK = 0.2  # seconds between two looks at the resources in use
SOON = 0.05  # seconds: a cell that begins so soon after a look uses the numbers of that look
PATIENCE = 10  # after PATIENCE times a limit in real time, the machine is too busy to judge a cell
# reasons of a run's end: INFRA blames no cell; BUSY blames the cell only if the sandbox ran alone
INFRA, BUSY = "infra_error", "busy"
FIRST = -15  # niceness of the watching process; processes with a lower number run first
MOST_LOG = 4000  # bytes kept of pytest's output


@dataclass
class SandboxRun:
    """The outcome of one run of a notebook in a sandbox. Cell 0 prepares the kernel."""

    claims: dict[int, str] = field(default_factory=dict)  # cell -> its claim, as JSON
    errors: dict[int, list[str]] = field(default_factory=dict)  # cell -> name, message, traceback
    # the cell that ended the run; None if all cells ran, or if the run ended before the first cell
    stopped_at: int | None = None
    why: str = ""  # "" if all cells ran; otherwise a key of attempt.WORDS, INFRA or BUSY
    log: str = ""  # beginning of pytest's output: tells a teacher why a sandbox does not start


def run(
    course: Path,
    job: Path,
    limits: Limits,
    cells: int,
    sandbox_for: Callable[[Path, Path, Limits], Sandbox] = levels.sandbox_for,
    until: float = math.inf,
) -> SandboxRun:
    """Run job/graded.ipynb, a notebook of `cells` cells, in a sandbox, and return the outcome.

    course  the copy of ddpkit for the sandbox
    until   the value of `time.monotonic` at which the submission's time is over
    """
    box = sandbox_for(course, job, limits)
    reading, writing = os.pipe()
    hearing, saying = os.pipe()  # a pipe, not a file, so that gigabytes of output fill no disk
    try:
        try:
            box.start(writing, saying)
        finally:
            os.close(writing)
            os.close(saying)
        watch = _Watch(box.usage, reading, limits, cells, until)
        watch.hearing = hearing
        outcome = watch.until_it_ends()
    finally:
        box.end()
        os.close(reading)
        os.close(hearing)
    outcome.log = watch.heard.decode(errors="replace")
    return outcome


class _Watch:
    """Reads the record that a running sandbox writes, until the run ends or exceeds a limit."""

    def __init__(
        self,
        usage: Callable[[], Usage],
        reading: int,
        limits: Limits,
        cells: int,
        until: float = math.inf,
    ) -> None:
        self.usage, self.reading, self.limits, self.cells = usage, reading, limits, cells
        self.until = until
        self.outcome = SandboxRun()
        self.current: int | None = None  # the running cell, or the last one that ran
        self.ended: set[int] = set()
        self.begun, self.before, self.seen = time.monotonic(), Usage(), -math.inf
        self.allowed = limits.start_s
        self.read, self.rest = 0, bytearray()
        self.hearing, self.heard = -1, b""

    def until_it_ends(self) -> SandboxRun:
        """Read the record and check the limits until the run is over; return the outcome."""
        with _first_served():
            return self._until_it_ends()

    def _until_it_ends(self) -> SandboxRun:
        why: str | None = None
        looked = 0.0
        while why is None:
            ready = select.select([self.reading, *self._ear()], [], [], TICK)[0]
            if self.hearing in ready:
                self._hear()
            if self.reading in ready:
                why = self._read()
            if why is None and time.monotonic() - looked > TICK:
                looked = time.monotonic()
                why = self._limit()
        self.outcome.why = why
        self.outcome.stopped_at = self.current if why else None
        while self._ear() and select.select(self._ear(), [], [], 0)[0]:
            self._hear()
        return self.outcome

    def _ear(self) -> list[int]:
        return [self.hearing] if self.hearing >= 0 else []

    def _hear(self) -> None:
        data = os.read(self.hearing, 1 << 16)
        self.heard = (self.heard + data)[:MOST_LOG]
        if not data:
            self.hearing = -1

    def _read(self) -> str | None:
        data = os.read(self.reading, 1 << 20)
        if not data:
            return self._ended()
        self.read += len(data)
        *lines, last = data.split(b"\n")
        for line in lines:
            self.rest += line
            if (why := self._too_much() or self._read_line(bytes(self.rest))) is not None:
                return why
            self.rest.clear()
        self.rest += last
        return self._too_much()

    def _too_much(self) -> str | None:
        """Return "flood" if the record is too long, otherwise None.

        Python needs twenty times the bytes of the record to parse it.
        """
        much = self.read > self.limits.output or len(self.rest) > self.limits.line
        return "flood" if much else None

    def _ended(self) -> str:
        """Return "exited", the reason for an end that the record does not explain.

        Before the student's first cell, return INFRA instead.
        """
        return "exited" if self.current else INFRA

    def _read_line(self, line: bytes) -> str | None:
        """Read a line of the record, perhaps a forged one; return a reason if the run must end."""
        try:
            entry = json.loads(line)
            if "begins" in entry:
                self._begin(int(entry["begins"]))
            elif "ends" in entry:
                cell = int(entry["ends"])
                if cell != self.current or cell in self.ended:
                    return "exited"
                self.ended.add(cell)
                self.outcome.claims.update((cell, json.dumps(each)) for each in entry["claims"])
                for name, message, traceback in entry["errors"]:
                    self.outcome.errors[cell] = [str(name), str(message), str(traceback)]
                self._restart_clock(self.limits.cell_s)
            elif entry.get("done") is True:
                return ""
            else:  # the plugin reports an early end of pytest or of the kernel
                return self._ended()
        except Exception:  # such a line is forged: the plugin did not write it
            return "exited"
        return None

    def _begin(self, cell: int) -> None:
        """Start the clock of a cell.

        Raises ValueError if the cell cannot begin now. Otherwise a forged record could begin cells
        without end.
        """
        if not (-1 if self.current is None else self.current) < cell < self.cells:
            raise ValueError("this cell cannot begin now")
        self.current = cell
        self._restart_clock(self.limits.start_s if cell == 0 else self.limits.cell_s)

    def _restart_clock(self, allowed: float) -> None:
        self.begun, self.allowed = time.monotonic(), allowed
        if self.begun - self.seen > SOON:  # a look takes longer than most cells
            self.before, self.seen = self.usage(), self.begun

    def _limit(self) -> str | None:
        now, elapsed = self.usage(), time.monotonic() - self.begun
        for name in ("processes", "threads", "files", "terminals", "memory", "disk"):
            if getattr(now, name) > getattr(self.limits, name):
                return name
        if elapsed * _served(self.before, now, elapsed) > self.allowed:
            return "timeout" if self.current else INFRA
        if time.monotonic() > self.until:
            return "too long" if self.current else INFRA
        if elapsed > PATIENCE * self.allowed:
            return BUSY if self.current else INFRA
        return None


@contextmanager
def _first_served() -> Iterator[None]:
    """Give this process priority over the sandbox, which may have a thousand busy processes.

    Without root's rights, the priority does not change.
    """
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    with suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, FIRST)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, usual)


def _served(before: Usage, now: Usage, elapsed: float) -> float:
    """Return the share of processor time that the sandbox received of the time that it needed.

    A limit counts elapsed time multiplied by this share, so the clock of a limit runs slower on a
    busy machine. A sleeping process needs no core, so sleep counts in full. If the sandbox's own
    processes need more than all cores, they wait for each other, and this wait counts in full too.
    """
    computed = max(0.0, now.computed_s - before.computed_s)
    waited = max(0.0, now.waited_s - before.waited_s)
    asked = min(computed + waited, max(computed, cores() * elapsed))
    return (computed + 0.5) / (asked + 0.5)
