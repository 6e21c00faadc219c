"""The grader's temporary folder: its own while it lives, and swept by the next one if it is killed.

A folder is locked by who works there. The kernel takes the lock from the dead, so whose lock can be
had is nobody's; process ids would be taken for others' in another container.
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
    """A folder for one grader's courses, questions and sandboxes; it is gone afterwards."""
    top = Path(tempfile.gettempdir())
    _sweep(top)
    made = Path(tempfile.mkdtemp(prefix=".ddpkit-", dir=top))
    lock = os.open(made, os.O_RDONLY)
    folder = top / f"{PREFIX}{made.name.removeprefix('.ddpkit-')}"
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made.rename(folder)  # only now has it a name that another grader looks at
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _sweep(top: Path) -> None:
    """Remove folders of this user's graders that live no longer."""
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
