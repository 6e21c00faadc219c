"""Turns for the sandboxes of one grader: a sandbox runs beside others, or alone.

A sandbox that runs alone is not disturbed by other sandboxes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until a sandbox may run, beside others or alone; the sandbox runs in the `with` block.

    All turns of a grader use the same `folder`.

    A sandbox that waits to be alone comes before later sandboxes. A turn is a lock, so it also ends
    if its process is killed.
    """
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with open(folder / "turn", "a") as turns:
        # the door is shut while a sandbox waits to be alone
        with open(folder / "door", "a") as door:
            fcntl.flock(door, how)
            fcntl.flock(turns, how)
        yield
