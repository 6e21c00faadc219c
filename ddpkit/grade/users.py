"""Users of this machine that nobody is: a student's code runs as one, and leaves nothing of its."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from pathlib import Path

from ddpkit.errors import GradeError

SHARED = (Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"))  # where every user may write
USERS = range(20_000, 60_000)  # ids; they need no names


def free_user() -> int:
    """A user id without a name, a process or a file; two graders begin in different places."""
    first = os.getpid() % len(USERS)
    taken = {known.pw_uid for known in pwd.getpwall()}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            taken.add(path.stat().st_uid)
    ids: list[int] = [*USERS[first:], *USERS[:first]]
    for user in ids:
        if user not in taken and not owned_by(user):
            return user
    raise GradeError("Every user id from 20000 to 59999 has processes or files.")


def processes_of(user: int) -> set[int]:
    """Ids of a user's processes that live."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.stat().st_uid == user and ") Z " not in (path / "stat").read_text():
                found.add(int(path.name))
    return found


def owned_by(user: int) -> list[Path]:
    """Files and folders of a user where everybody may write."""
    entries = (entry for folder in SHARED if folder.is_dir() for entry in os.scandir(folder))
    found = []
    for entry in entries:
        with suppress(OSError):
            if entry.stat(follow_symlinks=False).st_uid == user:
                found.append(Path(entry.path))
    return found
