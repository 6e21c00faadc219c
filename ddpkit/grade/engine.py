"""Runs one notebook in one sandbox, and says how far it came and what it claims.

The clock and all limits are outside. A cell that hangs, dies or floods ends the run; the caller
starts another without it.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpkit.grade import levels
from ddpkit.grade.sandbox import Limits, Sandbox, Usage

TICK = 0.2  # seconds between two looks at what is used
PATIENCE = 10  # times the limit, after which a machine is too busy to tell


@dataclass
class SandboxRun:
    """How the run of a notebook in a sandbox ended. Cells count from 0."""

    claims: dict[int, Any] = field(default_factory=dict)  # claims of cells that came to their end
    errors: dict[int, list[str]] = field(default_factory=dict)  # name, message, traceback
    stopped_at: int | None = None  # the cell that ended the run; None: before the first
    why: str = ""  # "": all cells ran; else a key of attempt.WORDS, or infra_error
    log: str = ""  # what pytest said, for the teacher


def run(
    course: Path,
    job: Path,
    limits: Limits,
    cells: int,
    sandbox_for: Callable[[Path, Path, Limits], Sandbox] = levels.sandbox_for,
) -> SandboxRun:
    """Run job/graded.ipynb, a notebook of so many `cells`, in a sandbox with this `course`."""
    box = sandbox_for(course, job, limits)
    reading, writing = os.pipe()
    try:
        try:
            with open(job.parent / "log", "wb") as log:
                box.start(writing, log.fileno())
        finally:
            os.close(writing)
        outcome = _Watch(box.usage, reading, limits, cells).until_it_ends()
    finally:
        box.end()
        os.close(reading)
    with open(job.parent / "log", "rb") as log:
        outcome.log = log.read(4000).decode(errors="replace")
    return outcome


class _Watch:
    """Reads the record of a running sandbox, and ends the reading when a limit is reached."""

    def __init__(
        self, usage: Callable[[], Usage], reading: int, limits: Limits, cells: int
    ) -> None:
        self.usage, self.reading, self.limits, self.cells = usage, reading, limits, cells
        self.outcome = SandboxRun()
        self.current: int | None = None  # the cell that runs, or ran last
        self.ended: set[int] = set()
        self.begun, self.before = time.monotonic(), Usage()
        self.allowed = limits.start_s
        self.read, self.rest = 0, b""

    def until_it_ends(self) -> SandboxRun:
        """Read and look until the run is over; returns how it ended."""
        why: str | None = None
        looked = 0.0
        while why is None:
            if select.select([self.reading], [], [], TICK)[0]:
                why = self._read()
            if why is None and time.monotonic() - looked > TICK:
                looked = time.monotonic()
                why = self._limit()
        self.outcome.why = why
        self.outcome.stopped_at = self.current if why else None
        return self.outcome

    def _read(self) -> str | None:
        data = os.read(self.reading, 1 << 20)
        if not data:
            return "exited" if self.current is not None else "infra_error"
        self.read += len(data)
        if self.read > self.limits.output:
            return "flood"
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            if (why := self._read_line(line)) is not None:
                return why
        return None

    def _read_line(self, line: bytes) -> str | None:
        """Read one line of the record, in which anything may stand; returns what ends the run."""
        try:
            entry = json.loads(line)
            if "begins" in entry:
                self._begin(int(entry["begins"]))
            elif "ends" in entry:
                cell = int(entry["ends"])
                if cell != self.current or cell in self.ended:
                    return "exited"
                self.ended.add(cell)
                self.outcome.claims.update((cell, claim) for claim in entry["claims"])
                for name, message, traceback in entry["errors"]:
                    self.outcome.errors[cell] = [str(name), str(message), str(traceback)]
                self._restart_clock(self.limits.cell_s)
            elif "died" in entry:
                return "exited" if self.current is not None else "infra_error"
            elif entry.get("done"):
                return ""
            else:
                return "infra_error"
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return "exited"
        return None

    def _begin(self, cell: int) -> None:
        """Start the clock anew: once for each cell, or a forged record could go on for ever."""
        if not (-1 if self.current is None else self.current) < cell < self.cells:
            raise ValueError("no cell that could begin")
        self.current = cell
        self._restart_clock(self.limits.start_s if cell == 0 else self.limits.cell_s)

    def _restart_clock(self, allowed: float) -> None:
        self.begun, self.allowed = time.monotonic(), allowed
        self.before = self.usage()

    def _limit(self) -> str | None:
        now, elapsed = self.usage(), time.monotonic() - self.begun
        if now.processes > self.limits.processes:
            return "processes"
        if now.memory > self.limits.memory:
            return "memory"
        if now.disk > self.limits.disk:
            return "disk"
        if elapsed * _served(self.before, now) > self.allowed:
            return "timeout" if self.current is not None else "infra_error"
        return "infra_error" if elapsed > PATIENCE * self.allowed else None


def _served(before: Usage, now: Usage) -> float:
    """The share of the processor time asked for that was given: a busy machine slows the clock.

    A sleeping process waits for no core, so its clock runs as usual.
    """
    computed = max(0.0, now.computed_s - before.computed_s)
    waited = max(0.0, now.waited_s - before.waited_s)
    return (computed + 0.5) / (computed + waited + 0.5)
