"""A full disk: `full_disk` limits the size of each file that the process writes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def full_disk(room: int) -> Iterator[None]:
    """Limit each file of the process to `room` bytes: a longer write fails half-way.

    The write raises the system's error, "File too large". The bytes before the limit stay in the
    file. The limit holds for the current process only, until the `with` block ends. Raises OSError
    on Windows, which has no such limit.
    """
    if sys.platform == "win32":
        raise OSError(
            "full_disk() needs a limit on the size of a file, and Windows has no such limit"
        )
    import resource

    # Python ignores SIGXFSZ, a signal that would end the process, and raises an error instead.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
