"""Processes that keep the cores busy, beside a measurement or a test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# The process ends when its parent has ended, because a killed parent cannot end its children.
BURN = "import os; parent = os.getppid()\nwhile os.getppid() == parent: sum(range(100_000))"


@contextmanager
def burning(processes: int) -> Iterator[None]:
    """Let so many processes compute all the time during the block."""
    started = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()
