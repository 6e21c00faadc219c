"""A flag that ddpkit itself is making a torch backend, so that `hidden` allows the backend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Making(threading.local):
    """A flag of each thread, which is True while ddpkit makes a backend in the thread."""

    ours = False


making = Making()


@contextmanager
def by_the_kit() -> Iterator[None]:
    """A block in which ddpkit makes a backend whose calls ddpkit records."""
    making.ours = True
    try:
        yield
    finally:
        making.ours = False
