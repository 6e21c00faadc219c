"""`apart`: runs work on a student's data in a child process with limits, so that it always ends.

The limits count processor time and memory, so they do not stop honest work on a busy machine.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
PATIENCE = 30  # the limit of real time is PATIENCE times `seconds`, because a machine may be busy
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Allowance:
    """The limits of one piece of work."""

    seconds: int  # processor time
    memory: int  # bytes beyond the present memory of the grader's process


class TooMuch(Exception):
    """Raised if a piece of work exceeds its limits, or if its process ends without a result."""


def apart(work: Callable[[], T], allowed: Allowance) -> T:
    """Run `work` in a separate process and return its result.

    Raises TooMuch if the work exceeds the limits `allowed`.
    """
    ((result, _),) = each_apart([work], allowed)
    if isinstance(result, TooMuch):
        raise result
    return result


def each_apart(
    works: Sequence[Callable[[], T]], allowed: Allowance
) -> Iterator[tuple[T | TooMuch, float]]:
    """Yield the result of each piece of work, and the seconds of processor time that it took.

    One child process does all pieces in order, and stops after the first piece that exceeds a
    limit; the result of this piece is TooMuch. A piece of work must raise nothing but MemoryError,
    and its result must be picklable. On systems other than Linux, which cannot run the grader, the
    work runs in this process.
    """
    if sys.platform != "linux":
        yield from ((work(), 0.0) for work in works)
        return
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(
        target=_work, args=(os.getpid(), works, allowed, sending), daemon=True
    )
    process.start()
    sending.close()
    try:
        for _ in works:
            result: tuple[T | TooMuch, float] = TooMuch(), float(allowed.seconds)
            with suppress(
                EOFError, OSError
            ):  # OSError: the process ended in the middle of an answer
                if receiving.poll(allowed.seconds * PATIENCE):
                    result = receiving.recv()
            yield result
            if isinstance(result[0], TooMuch):
                return
    finally:
        process.kill()
        process.join()
        process.close()
        receiving.close()


def _work(
    parent: int, works: Sequence[Callable[[], Any]], allowed: Allowance, sending: Connection
) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    if torch := sys.modules.get("torch"):
        # Only this thread survives a fork: an operation of torch on many numbers would wait for
        # OpenMP's other threads forever.
        torch.set_num_threads(1)
    grow_by(allowed.memory)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for work in works:
        begun = time.process_time()
        _, hard = resource.getrlimit(resource.RLIMIT_CPU)
        most = int(begun) + 1 + allowed.seconds
        if hard == resource.RLIM_INFINITY or most < hard:
            resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
        try:
            result: Any = work()
        except MemoryError:
            result = TooMuch()
        sending.send((result, time.process_time() - begun))


def grow_by(memory: int) -> None:
    """Limit the address space of this process to `memory` bytes more than its present size."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + memory
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
