"""Processes that burn the cores, beside which something is measured or tested."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# It ends with whoever started it: one that is killed ends nobody itself.
BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@contextmanager
def burning(processes: int) -> Iterator[None]:
    """A block beside which so many processes compute all the time."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()
