"""A mark that the kit itself is making a torch backend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Making(threading.local):
    """A flag of each thread: True while the kit makes a backend in the thread."""

    ours = False


making = Making()


@contextmanager
def by_the_kit() -> Iterator[None]:
    """A block in which the kit makes a backend, which it records."""
    making.ours = True
    try:
        yield
    finally:
        making.ours = False
