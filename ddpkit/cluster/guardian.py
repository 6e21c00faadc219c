"""Runs a command, and ends all processes of the command when the command or the notebook has ended.

The guardian is a process between the notebook and torchrun:
`python guardian.py LIFELINE COMMAND ...`. torchrun gives each rank its own session, so no signal to
a process group reaches all ranks. On Linux, the guardian becomes the parent of every descendant
that loses its own parent (`PR_SET_CHILD_SUBREAPER`), so all processes of the command are found
below the guardian. LIFELINE is the reading end of a pipe, and only the notebook has the writing
end: the pipe ends when the notebook ends, even by a kill.

This file needs only the standard library, and is never imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

LINUX = sys.platform.startswith("linux")
LOOK = 0.1  # seconds between two looks for the command's end
PATIENCE = 20  # seconds for torchrun to end its ranks, on systems other than Linux
PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """Run the command; return its exit code, or 130 if the lifeline has ended the command."""
    lifeline, *command = sys.argv[1:]
    if LINUX:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, close_fds=True)
    try:
        while child.poll() is None:
            if select.select([int(lifeline)], [], [], LOOK)[0]:
                return 130
        return child.returncode if child.returncode >= 0 else 128 - child.returncode
    finally:
        end(child)


def end(child: subprocess.Popen[bytes]) -> None:
    """End the command, and on Linux all descendants of the command, until none remains."""
    if not LINUX:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE)
        child.kill()
        return
    while below := descendants(os.getpid()):
        for pid in below:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def descendants(root: int) -> list[int]:
    """Return the descendants of `root`, without zombies that only another process can reap."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in brackets, may have spaces and brackets in it.
            state, parent = (
                (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()[:2]
            )
            if state not in "ZX" or int(parent) == root:
                children.setdefault(int(parent), []).append(int(folder.name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


if __name__ == "__main__":
    sys.exit(main())
