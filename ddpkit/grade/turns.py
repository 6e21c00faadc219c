"""Turns for one grader's sandboxes: side by side, or alone, to rule out disturbance by others."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def turn(folder: Path, *, alone: bool) -> Iterator[None]:
    """Wait until a sandbox may run, beside others or alone. All turns use the same `folder`.

    A sandbox that waits to be alone comes before later sandboxes. When a process ends, even by a
    kill, the kernel ends its turn.
    """
    how = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with open(folder / "turn", "a") as turns:
        # the door is shut while a sandbox waits to be alone
        with open(folder / "door", "a") as door:
            fcntl.flock(door, how)
            fcntl.flock(turns, how)
        yield
