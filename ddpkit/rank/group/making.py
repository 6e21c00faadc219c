"""Whether the kit itself makes a backend of torch's just now."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Making(threading.local):
    """What is being made, in each thread."""

    ours = False


making = Making()


@contextmanager
def by_the_kit() -> Iterator[None]:
    """Inside, the kit makes a backend, which it records."""
    making.ours = True
    try:
        yield
    finally:
        making.ours = False
