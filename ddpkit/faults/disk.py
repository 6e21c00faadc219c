"""Disks that fail: `full_disk`, a limit on what this process can write into one file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Let this process write no file beyond `room` bytes: what writes more fails half-way.

    Whoever writes gets the system's error, "File too large", and what was written by then stays.
    Of the process alone, and over with the block. Raises OSError where the system has no such
    limit (Windows).
    """
    if sys.platform == "win32":
        raise OSError(
            "full_disk() needs a limit on the size of a file, and Windows has no such limit"
        )
    import resource

    # Python ignores SIGXFSZ, which would end the process: so there is an error instead.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
