"""`UseMeter`: measures the resources that a sandbox's processes use, from outside."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ddpkit.grade.sandbox import process
from ddpkit.grade.sandbox.base import Limits, Usage

# Beginnings of the names of files in memory without a path: memfd_create, mmap, shmget.
NAMELESS = ("/memfd:", "/dev/zero (deleted)", "/SYSV")
BLOCK = 512  # bytes of a block in st_blocks
COUNT_AGAIN = 1.0  # seconds; a look that lasts longer counts the processes again


@dataclass
class UseMeter:
    """Counts the resources that processes use. Processor time of ended processes stays counted."""

    limits: Limits
    computed_s: float = 0.0
    waited_s: float = 0.0
    # (process, thread) -> nanoseconds computed and waited
    times: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    def look(self, find: Callable[[], Collection[int]]) -> Usage:
        """Return the resources that the living processes use, and all processor time so far.

        find  returns the ids of the processes; a long measurement calls `find` again, because on a
              busy machine each file of /proc may take half a second, and meanwhile processes start

        If there are more processes than the limit, only their number is counted.

        The processor time includes that of ended processes.
        """
        pids = find()
        total = Usage(processes=len(pids), computed_s=self.computed_s, waited_s=self.waited_s)
        living: dict[int, str] = {}  # process -> folder in /proc
        counted = time.monotonic()
        for pid in pids:
            if time.monotonic() - counted > COUNT_AGAIN:
                total.processes, counted = len(find()), time.monotonic()
            if total.processes > self.limits.processes:
                return Usage(total.processes, computed_s=self.computed_s, waited_s=self.waited_s)
            with suppress(OSError, ValueError, KeyError):
                if (folder := process.living(pid)) is None:
                    continue
                facts = _table(f"{folder}/status")
                living[pid] = folder
                total.memory += sum(_kilobytes(facts, name) for name in ("RssAnon", "VmSwap"))
                total.threads += int(facts["Threads"])
                total.files += _open_files(folder)
        total.processes = len(living)
        if total.files > self.limits.terminals:
            total.terminals = sum(map(_open_terminals, living.values()))
        # forked processes share unchanged pages: count each page only once
        if total.memory > self.limits.memory:
            total.memory = sum(map(_own_memory, living.values()))
        # much shared memory on the machine: find out how much belongs to these processes
        if _shared_memory() > self.limits.memory // 4:
            total.memory += _nameless_memory(living.values())
        if total.threads <= self.limits.threads:
            self._add_times(living)
        total.computed_s, total.waited_s = self.computed_s, self.waited_s
        return total

    def _add_times(self, pids: Iterable[int]) -> None:
        now = {}
        for pid in pids:
            with suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with suppress(OSError, ValueError):
                        text = process.text_of(f"/proc/{pid}/task/{task}/schedstat")
                        computed, waited = map(int, text.split()[:2])
                        now[pid, int(task)] = computed, waited
        for thread, (computed, waited) in now.items():
            before = self.times.get(thread, (0, 0))
            self.computed_s += max(0, computed - before[0]) / 1e9
            self.waited_s += max(0, waited - before[1]) / 1e9
        self.times = now


def tree(root: int) -> set[int]:
    """Return the ids of process `root` and of all its descendants."""
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError, ValueError):
                parents[int(entry)] = process.stat_of(f"/proc/{entry}/stat").parent
    found = {root}
    fresh = {root}
    while fresh := {pid for pid, parent in parents.items() if parent in fresh} - found:
        found |= fresh
    return found


def _table(path: str) -> dict[str, str]:
    """Return the lines "name: value" of a file in /proc as a dict."""
    lines = process.text_of(path).splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _kilobytes(facts: dict[str, str], name: str) -> int:
    """Return, in bytes, a value that the kernel gives in kB; 0 if the value is missing."""
    return int(facts.get(name, "0").split()[0]) << 10


def _open_files(folder: str) -> int:
    path = f"{folder}/fd"
    # before Linux 6.2 this folder has no size
    return os.stat(path).st_size or len(os.listdir(path))


def _open_terminals(folder: str) -> int:
    """Return the number of a process's open pseudo-terminals; a machine has a limited number."""
    names = []
    with suppress(OSError):
        for name in os.listdir(f"{folder}/fd"):
            with suppress(OSError):
                names.append(os.readlink(f"{folder}/fd/{name}"))
    return sum(name.endswith("/ptmx") for name in names)


def _own_memory(folder: str) -> int:
    """Return the memory of a process in bytes; a page shared by n processes counts as 1/n."""
    try:
        pid = folder.split("/")[2]
        facts = _table(f"/proc/{pid}/smaps_rollup")
        return sum(_kilobytes(facts, name) for name in ("Pss_Anon", "SwapPss"))
    except OSError:
        return 0  # the process has ended


def _shared_memory() -> int:
    """Return the bytes of all files that this machine holds in memory."""
    return _kilobytes(_table("/proc/meminfo"), "Shmem")


def _nameless_memory(folders: Iterable[str]) -> int:
    """Return the bytes of unnamed shared memory that these processes have open or mapped."""
    held: dict[tuple[int, int], int] = {}
    for folder in folders:
        with suppress(OSError):
            held.update(_held_by(folder))
    return sum(held.values())


def _held_by(folder: str) -> Iterator[tuple[tuple[int, int], int]]:
    """Yield (device, inode) and the bytes of each unnamed memory file that a process has open."""
    for name in os.listdir(f"{folder}/fd"):
        path = f"{folder}/fd/{name}"
        with suppress(OSError):
            if os.readlink(path).startswith(NAMELESS):
                facts = os.stat(path)
                yield (facts.st_dev, facts.st_ino), facts.st_blocks * BLOCK
    pid = folder.split("/")[2]
    for line in Path(f"{folder}/maps").read_text(errors="replace").splitlines():
        where, rights, offset, device, inode, *path_or_none = line.split(maxsplit=5)
        if rights.endswith("s") and path_or_none and path_or_none[0].startswith(NAMELESS):
            try:
                facts = os.stat(f"/proc/{pid}/map_files/{where}")
                yield (facts.st_dev, facts.st_ino), facts.st_blocks * BLOCK
            except OSError:  # only root may read the size: count the largest possible size
                first, last = (int(each, 16) for each in where.split("-"))
                major, minor = (int(each, 16) for each in device.split(":"))
                yield (os.makedev(major, minor), int(inode)), int(offset, 16) + last - first
