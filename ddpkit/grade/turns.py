"""Sandboxes of one grader side by side, or one alone: when another may have been in its way."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until a sandbox may run: beside others, or alone. `folder` is one for all of them.

    Who wants to be alone comes before those that come later. The kernel gives a turn back when its
    process ends, however it ends.
    """
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with open(folder / "turn", "a") as turns:
        with open(folder / "door", "a") as door:  # shut while somebody waits to be alone
            fcntl.flock(door, how)
            fcntl.flock(turns, how)
        yield
