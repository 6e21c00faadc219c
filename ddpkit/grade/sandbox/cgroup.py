"""A Linux control group around a sandbox: the kernel's own limits on memory and tasks.

The meter adds up the numbers in /proc a few times a second. The kernel counts each page of memory
that it gives to a process, including pages for sockets and pipes, and refuses pages above the
limit. So a control group limits memory at every moment. If no control group can be made, the
meter's limits are the only limits.

Source: the kernel's Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from ddpkit.cluster.cores import CGROUPS
from ddpkit.grade.sandbox.base import SPARE_THREADS, Limits, Usage

FOLDERS_IN_MEMORY = 4  # /tmp, /home, /dev/shm and the job's folder: their files count as memory
# bytes for page tables, sockets and bytecode, so that the meter's limit comes first
SPARE_MEMORY = 512 << 20
PATIENCE_S = 5.0  # seconds to wait for the end of killed processes
OURS = "ddpkit-"  # beginning of the groups' names; the grader's process id follows
# version -> files of three limits, and the file that counts processes killed by the kernel
FILES = {
    1: ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max", "memory.oom_control"),
    2: ("memory.max", "memory.swap.max", "pids.max", "memory.events"),
}


class ControlGroup:
    """The control group of one sandbox; it has no effect if the machine allows no group.

    limits  the sandbox's memory and threads become the kernel's limits, with room for folders in
            memory and for memory that the meter does not count
    root    the mount point of the control groups
    own     the file that names the groups of this process
    """

    def __init__(
        self,
        limits: Limits,
        root: Path = CGROUPS,
        own: Path = Path("/proc/self/cgroup"),
    ) -> None:
        self.folders: list[Path] = []
        self.version = 1
        self.memory = limits.memory + FOLDERS_IN_MEMORY * limits.disk + SPARE_MEMORY
        self.tasks = limits.threads + SPARE_THREADS
        try:
            self.version, above = _above(root, own)
            for folder in above:
                _sweep(folder)
                made = Path(mkdtemp(prefix=f"{OURS}{os.getpid()}-", dir=folder))
                self.folders.append(made)
            self._limit()
        except (OSError, ValueError):
            self.remove()

    def _limit(self) -> None:
        most, swap, tasks, _ = FILES[self.version]
        # Version 1 counts memory and swap together, version 2 swap alone.
        values = {most: self.memory, swap: self.memory if self.version == 1 else 0}
        for folder in self.folders:
            for name, value in (values | {tasks: self.tasks}).items():
                if (folder / name).exists():
                    (folder / name).write_text(str(value))

    def enter(self) -> None:
        """Put this process and all its future children into the group, in a `preexec_fn`."""
        for folder in self.folders:
            with suppress(OSError), open(folder / "cgroup.procs", "w") as file:
                file.write("0")  # "0" stands for the writing process

    def added(self, used: Usage) -> Usage:
        """Return the meter's numbers, with the limit as memory if the kernel killed a process."""
        return replace(used, memory=max(used.memory, self.memory)) if self.has_killed else used

    @property
    def has_killed(self) -> bool:
        """True if the kernel has killed a process because the group's memory was full."""
        for folder in self.folders:
            with suppress(OSError):
                lines = (folder / FILES[self.version][-1]).read_text().splitlines()
                counts = dict(line.split() for line in lines)
                if int(counts.get("oom_kill", 0)) > 0:
                    return True
        return False

    def remove(self) -> None:
        """Remove the group after its last process has gone."""
        until = time.monotonic() + PATIENCE_S
        for folder in self.folders:
            while not _removed(folder) and time.monotonic() < until:
                time.sleep(0.01)
        self.folders = []


def _above(root: Path, own: Path) -> tuple[int, list[Path]]:
    """Return the version of control groups, and the folders in which a group can be made.

    Raises OSError if the kernel's files cannot be read, and ValueError if no group can limit
    memory.
    """
    mine: dict[str, str] = {}
    for line in own.read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        mine |= dict.fromkeys(controllers.split(","), path.lstrip("/"))
    if "memory" in mine:
        return 1, [_seen(root / name, mine[name]) for name in ("memory", "pids") if name in mine]
    for folder in _upwards(root, mine.get("", "")):
        given = (folder / "cgroup.subtree_control").read_text().split()
        if {"memory", "pids"} <= {*given} and os.access(folder, os.W_OK):
            return 2, [folder]
    raise ValueError("this machine has no control group in which ddpkit may limit memory")


def _seen(mounted: Path, path: str) -> Path:
    """Return the folder of this process's control group below a mount point.

    In a container, this folder may be the mount point itself.
    """
    return mounted / path if (mounted / path).is_dir() else mounted


def _upwards(root: Path, path: str) -> Iterator[Path]:
    """Yield the folder of a control group and each folder above it, up to the root.

    A group that holds processes cannot have limited groups below it, so usually only an outer
    folder can be used.
    """
    first = _seen(root, path)
    yield first
    for folder in first.parents:
        if root in (folder, *folder.parents):
            yield folder


def _sweep(folder: Path) -> None:
    """Remove the control groups of graders that were killed."""
    for left in folder.glob(f"{OURS}*"):
        pid = left.name.removeprefix(OURS).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            _removed(left)


def _removed(folder: Path) -> bool:
    """Remove a control group; return False if processes are still in the group."""
    try:
        folder.rmdir()  # the kernel's files in the folder vanish with the folder
    except FileNotFoundError:
        return True
    except OSError as error:
        return error.errno not in (errno.EBUSY, errno.ENOTEMPTY)
    return True
