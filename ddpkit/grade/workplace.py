"""The grader's temporary folder; if the grader is killed, the next grader removes the folder.

A running grader locks its folder. The kernel frees the lock of a dead process, so a folder without
a lock belongs to no running grader. A process id could not replace the lock, because process ids
differ between containers.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "ddpkit-grading-"


@contextmanager
def workplace() -> Iterator[Path]:
    """Make a folder for the courses, questions and sandboxes of one grader.

    The folder is removed at the end of the `with` block.
    """
    top = Path(tempfile.gettempdir())
    _sweep(top)
    made = Path(tempfile.mkdtemp(prefix=".ddpkit-", dir=top))
    lock = os.open(made, os.O_RDONLY)
    folder = top / f"{PREFIX}{made.name.removeprefix('.ddpkit-')}"
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(folder)  # until the folder is locked, its first name hides it from other sweeps
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(top: Path) -> None:
    """Remove the folders of this user's graders that are no longer running."""
    for folder in top.glob(f"{PREFIX}*"):
        with suppress(OSError):
            facts = folder.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.geteuid():
                continue
            lock = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
