"""Detects a run in which no process works, whatever the processes wait for.

The monitor knows only waits for communication. A rank may also wait for a lock, a queue, a
subprocess, a worker of a data loader or a remote procedure call, and no library reports such waits.
So this module looks at the ranks from outside, together with their children: a process that waits
uses no processor, and reads and writes nothing.

A rank that sleeps, or waits for a person, looks the same. So ddpkit does not end a stalled run, but
prints once the lines of code in which its ranks are. Only Linux reports the work of processes; on
other systems a stall is not detected.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ddpkit.cluster.local.watched import GLOOS_LOOP

PATIENCE = 30.0  # seconds without work
LOOKS = 20  # number of looks during the patience
BUSY = 0.02  # CPU seconds per second; a rank's agent uses a tenth of this
POLLS = b"TP_"  # beginning of the names of TensorPipe's threads, which poll for remote calls
LOOPS_SHARE = 0.002  # CPU seconds per second of such a thread at rest (measured: 0.0009 to 0.0015)
SOME = 1 << 16  # bytes; a rank's agent and an idle worker move fewer
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class WorkSoFar(NamedTuple):
    """The work of a process so far: its CPU time, and the bytes that it has read and written."""

    ticks: int  # CPU time, in the system's ticks
    bytes: int  # bytes read and written, in files, pipes and sockets
    loops: int = 0  # gloo's polling threads


class Stall:
    """Watches the processes of a run, and detects a stall."""

    def __init__(self, patience: float | None = None) -> None:
        self.patience = PATIENCE if patience is None else patience
        self._since = self._looked = time.monotonic()
        self._base: dict[int, WorkSoFar] = {}
        self._printed, self._happened = False, 0

    def is_new(self, pids: Iterable[int], happened: int = 0) -> bool:
        """Return True once, when the processes and their descendants have done nothing for long.

        happened  the number of past events of an emulated network, for which ranks may wait
        """
        now = time.monotonic()
        if self._printed or now - self._looked < self.patience / LOOKS:
            return False
        self._looked, work = now, work_of(pids)
        if happened != self._happened or self._has_moved(work, now - self._since):
            self._base, self._since, self._happened = work, now, happened
            return False
        self._printed = bool(work) and now - self._since >= self.patience
        return self._printed

    def _has_moved(self, work: dict[int, WorkSoFar], seconds: float) -> bool:
        if work.keys() != self._base.keys():
            return True
        ticks = seconds * TICKS_PER_SECOND
        return any(
            new.ticks - self._base[pid].ticks > int((BUSY + LOOPS_SHARE * new.loops) * ticks) + 2
            or new.bytes - self._base[pid].bytes > SOME
            for pid, new in work.items()
        )


def work_of(pids: Iterable[int]) -> dict[int, WorkSoFar]:
    """Return the work of processes and their descendants, by process id; only on Linux, else {}."""
    found: dict[int, WorkSoFar] = {}
    left = list(pids)
    while left:
        pid = left.pop()
        with suppress(OSError, ValueError, IndexError):  # the process has ended
            home = Path(f"/proc/{pid}")
            _, ticks = _name_and_ticks(home / "stat")
            polling, loops = _polling(home)
            found[pid] = WorkSoFar(ticks - polling, _moved(home), loops)
            for listed in home.glob("task/*/children"):
                left += map(int, listed.read_bytes().split())
    return found


def _name_and_ticks(stat: Path) -> tuple[bytes, int]:
    """Return the name of a process or a thread, and its CPU time in ticks."""
    name, _, rest = stat.read_bytes().partition(b"(")[2].rpartition(b")")
    fields = rest.split()
    return name, int(fields[11]) + int(fields[12])


def _polling(home: Path) -> tuple[int, int]:
    """Return the CPU time, in ticks, of threads that only poll, and the number of gloo's loops."""
    each = [_name_and_ticks(stat) for stat in home.glob("task/*/stat")]
    loops = sum(name == GLOOS_LOOP for name, _ in each)
    return sum(ticks for name, ticks in each if name.startswith(POLLS)), loops


def _moved(home: Path) -> int:
    """Return the number of bytes that a process has read and written; 0 if unknown."""
    with suppress(OSError):
        lines = (home / "io").read_bytes().splitlines()
        return sum(int(line.split()[1]) for line in lines if line[1:5] == b"char")
    return 0
