"""A time limit for a case, and a Stop button that always works.

An answer may wait in C++ for days, where Python runs no signal handler. So a case runs in a thread,
and the main thread only waits: for the case, for Stop, or for the limit. A thread that does not end
runs on as a daemon. A run on ranks has the same limit: it ends by itself, and reports the line at
which each rank was.

Under torchrun a case runs in the main thread, because the rank is this process, and the recorder
watches the main thread.
"""

from __future__ import annotations

import contextvars
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

from ddpkit.cluster.interrupts import interrupt
from ddpkit.cluster.torchrun.job import active
from ddpkit.errors import Interrupted
from ddpkit.source import is_user_file, locate, source_line

LIMIT_S = 120.0  # seconds for a case
GRACE_S = 15.0  # seconds after the limit, for a run on ranks to end by itself
LOOK_S = 0.2  # seconds between two interrupts of a thread
PATIENCE_S = 5.0  # seconds for an interrupted thread to end

Result = TypeVar("Result")
_worker: _Worker | None = None  # the thread that runs the current case


class TookTooLong(Exception):
    """Raised if a case does not end within its limit; `place` is the line that was running then."""

    def __init__(self, seconds: float, place: str) -> None:
        super().__init__(f"not done after {seconds:g} s")
        self.place = place


class OutOfTime(BaseException):
    """Raised inside an answer when the time limit is over."""


def seconds_left() -> float | None:
    """Return the seconds after which a run on ranks must end; None without a limit."""
    if _worker is None:
        return None
    _worker.runs = True
    return max(round(_worker.ends - time.monotonic(), 1), 0.1)


def limited(work: Callable[[], Result], seconds: float) -> Result:
    """Return the result of `work()`, or raise its exception, in at most `seconds`.

    Raises:
        TookTooLong: `work` was not done within `seconds`.
        Interrupted: the reader pressed Stop; the message names the line that was running.
    """
    if active():
        return work()
    global _worker
    before, _worker = _worker, _Worker(work, time.monotonic() + seconds)
    worker = _worker
    try:
        worker.start()
        if not worker.done.wait(seconds) and not (worker.runs and worker.done.wait(GRACE_S)):
            place = worker.place()
            worker.end(OutOfTime)
            raise TookTooLong(seconds, place)
    except KeyboardInterrupt:
        place = worker.place()
        worker.end(KeyboardInterrupt)
        if isinstance(worker.error, Interrupted):  # the message names each rank's line
            raise worker.error from None
        raise Interrupted(f"stopped at {place}" if place else "stopped") from None
    finally:
        _worker = before
    if worker.error is not None:
        raise worker.error
    return worker.result  # type: ignore[no-any-return]


class _Worker(threading.Thread):
    """The thread that runs the work, and keeps its result or its error."""

    def __init__(self, work: Callable[[], object], ends: float) -> None:
        super().__init__(name="an answer, checked", daemon=True)
        self.work, self.context = work, contextvars.copy_context()
        self.ends, self.runs = ends, False  # end of the limit; True once a run on ranks has begun
        self.done = threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.context.run(self.work)
        except BaseException as error:
            self.error = error
        finally:
            self.done.set()

    def place(self) -> str:
        """Return the innermost line of the student's code that runs now.

        An example: "Cell In[5], line 3: time.sleep".
        """
        frame: FrameType | None = sys._current_frames().get(self.ident or 0)
        while frame is not None and not is_user_file(frame.f_code.co_filename):
            frame = frame.f_back
        if frame is None:
            return ""
        at = frame.f_code.co_filename, frame.f_lineno
        return f"{locate(*at)}: {source_line(*at)}".removesuffix(": ")

    def end(self, error: type[BaseException]) -> None:
        """Interrupt the work again and again until the thread ends, for at most `PATIENCE_S`."""
        give_up = time.monotonic() + PATIENCE_S
        while self.is_alive() and time.monotonic() < give_up:
            interrupt(self, error)
            self.join(LOOK_S)
