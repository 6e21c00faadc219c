"""Things that a run may leave behind: processes, file descriptors, folders."""

import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path

import psutil

SERVERS = ("multiprocessing.forkserver", "multiprocessing.resource_tracker")


def ranks_alive() -> list[psutil.Process]:
    """Return the processes below this process, except the forkserver and the resource tracker.

    Zombies count. A rank is a child of the forkserver, with the forkserver's own command line.
    """
    server = forkserver._forkserver._forkserver_pid
    alive = []
    for process in psutil.Process().children(recursive=True):
        try:
            is_server = process.pid == server or (
                process.ppid() == os.getpid() and any(s in str(process.cmdline()) for s in SERVERS)
            )
            if not is_server:
                alive.append(process)
        except psutil.NoSuchProcess:
            continue
    return alive


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def folders(pid: int | None = None) -> list[str]:
    """Return the folders of runs of a process, by default of this process."""
    return [str(f) for f in Path(tempfile.gettempdir()).glob(f"ddpkit-{pid or os.getpid()}-*")]


def becomes_true(condition: Callable[[], bool], seconds: float = 60) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
