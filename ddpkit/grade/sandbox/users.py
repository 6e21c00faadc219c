"""Unused user ids of this machine, under which student code can run.

`owned_in` finds the files that such a user has left.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade.sandbox.process import living

# Folders into which every user of a Linux machine may write; folders below are found by a walk.
SHARED = tuple(
    Path(each)
    for each in ("/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock", "/var/crash")
)
USERS = range(20_000, 60_000)  # user ids; an id needs no name


def free_user() -> int:
    """Return a user id without a name, a process or a file.

    Different graders start the search at different ids.
    """
    first = os.getpid() % len(USERS)
    taken = {known.pw_uid for known in pwd.getpwall()}
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            taken.add(path.stat().st_uid)
    ids: list[int] = [*USERS[first:], *USERS[:first]]
    for user in ids:
        if user not in taken and not owned_by(user):
            return user
    raise GradeError(
        "No user id is free for a sandbox: every id from 20000 to 59999 has processes or files."
    )


def processes_of(user: int) -> set[int]:
    """Return the ids of a user's living processes."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if path.stat().st_uid == user and living(int(path.name)):
                found.add(int(path.name))
    return found


def owned_by(user: int) -> list[Path]:
    """Return a user's outermost files and folders in places where every user may write.

    A folder in which every user may write can lie anywhere below folders that every user may enter,
    so the search looks into all such folders.
    """
    found, folders = list[Path](), [str(folder) for folder in SHARED]
    for folder in folders:  # the loop appends to the list
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    facts = entry.stat(follow_symlinks=False)
                    if facts.st_uid == user:
                        found.append(Path(entry.path))
                    elif stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_IXOTH:
                        folders.append(entry.path)
    return found


def open_folders() -> list[str]:
    """Return the folders into which every user may write, in and below `SHARED`.

    The walk through a large /tmp takes seconds, so `owned_in` uses the folders of an earlier walk.
    """
    found, folders = list[str](), [str(folder) for folder in SHARED]
    for folder in folders:  # the loop appends to the list
        with suppress(OSError):
            if os.stat(folder).st_mode & stat.S_IWOTH:
                found.append(folder)
            with os.scandir(folder) as entries:
                folders += [entry.path for entry in entries if _may_be_entered(entry)]
    return found


def _may_be_entered(entry: os.DirEntry[str]) -> bool:
    with suppress(OSError):
        mode = entry.stat(follow_symlinks=False).st_mode
        return stat.S_ISDIR(mode) and bool(mode & stat.S_IXOTH)
    return False


def owned_in(folders: Iterable[str], user: int) -> list[Path]:
    """Return the user's files and folders that lie directly in these folders."""
    found = list[Path]()
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_uid == user:
                        found.append(Path(entry.path))
    return found
