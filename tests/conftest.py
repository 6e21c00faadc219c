"""The needs of tests: if the machine lacks the need of a marker, the test is skipped with the
reason."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser import chromium
from tests.order import longest_first

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def _no_gpu() -> str | None:
    import torch

    return None if torch.cuda.is_available() else "no CUDA device on this machine"


# its sitecustomize.py runs first in each Python process
STARTUP = str(Path(__file__).parent / "startup")
NEEDS = {"gpu": _no_gpu}  # not "browser": tests/browser.py says why


def pytest_configure() -> None:
    """Set the environment and the signal handling that all processes of the tests inherit."""
    # A shell that starts pytest with `&` makes it ignore Ctrl-C, but tests interrupt runs.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Threads of NumPy's OpenBLAS search for work all the time: 0.2 s in each process that imports
    # NumPy.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    paths = [STARTUP, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(filter(None, paths)))
    gc.set_threshold(100_000)  # 8,000 tests are collected, and torch is imported


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first, and skip tests whose need is missing.

    Only the needs of markers in use are checked.
    """
    longest_first(items)
    for name, lacks in NEEDS.items():
        marked = [item for item in items if item.get_closest_marker(name)]
        if marked and (reason := lacks()):
            for item in marked:
                item.add_marker(pytest.mark.skip(reason=f"{name}: {reason}"))


def pytest_collection_finish() -> None:
    """Exempt the collected objects from garbage collection: 8,000 tests, and torch.

    Each full collection would look at all these objects, a third of a worker's time. Their own
    garbage stays in memory: a search for it would take half a second.
    """
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Exempt all objects: at the end pytest runs five garbage collections over all of them.

    These were a twelfth of the processor time of `make quick` without a selected test.
    """
    gc.freeze()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium, for all tests of a module."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module", autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    """Fail a module whose threads still run a test's code after the last test.

    A later test would take such a thread for a working thread of the user, and the agent would take
    no rank for waiting.
    """
    before = {thread.ident for thread in threading.enumerate()}
    yield
    give_up = time.monotonic() + 10
    while (left := _in_tests(before)) and time.monotonic() < give_up:
        time.sleep(0.05)
    assert not left, f"threads of this module are left: {left}"


def _in_tests(known: set[int | None]) -> list[str]:
    """Return the line of each thread, besides the `known` ones, that runs code of a test."""
    here, found = str(Path(__file__).parent), []
    for ident, frame in sys._current_frames().items():
        if ident not in known:
            stack = traceback.extract_stack(frame)
            found += [f"{at.filename}:{at.lineno}" for at in stack if at.filename.startswith(here)]
    return found
