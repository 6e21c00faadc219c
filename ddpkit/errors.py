"""Everything ddpkit raises on purpose.

    DdpkitError
    ├── ClusterError          the ranks could not be started, or the function could not be shipped
    │   └── CallError         the function cannot be called with these arguments (also a TypeError)
    ├── RunFailed             the ranks were started, and the run failed; all ranks are gone
    │   ├── RankError         a rank raised an exception
    │   ├── RankDied          a rank was killed, crashed, or left with os._exit or sys.exit
    │   ├── Deadlock          every unfinished rank waits, and nothing can end the waiting
    │   ├── Mismatch          the ranks disagree on a collective, or on a message
    │   └── RunTimeout        the run took longer than its `timeout=`
    ├── TraceError            a trace file cannot be read or written
    ├── LessonError           a lesson, an exercise or a notebook is not what it should be
    └── GradeError            a class cannot be graded so, or not on this machine

    KeyboardInterrupt
    └── Interrupted           the reader stopped a run: where each rank was

Each message is written for its reader at midnight: what happened, on which rank, in which line of
the cell, and what to do. In a notebook the message is shown without the traceback of ddpkit's own
frames, which would only push it off the screen.
"""

from __future__ import annotations

from typing import Any


class DdpkitError(Exception):
    """Base of everything ddpkit raises on purpose; its message stands alone."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ClusterError(DdpkitError):
    """The ranks could not be started, or the function could not be sent to them."""


class CallError(ClusterError, TypeError):
    """What was to run is no function, or takes other arguments."""


class RunFailed(DdpkitError):
    """A run started and failed.

    `ranks` are the ranks it happened on first, `rank` the lowest of them, and `run` is what there
    was to save: the output of all ranks, and the results and spans of those that had returned.
    """

    def __init__(self, message: str, *, ranks: tuple[int, ...] = ()) -> None:
        super().__init__(message)
        self.ranks = ranks
        self.run: Any = None  # a `Run`, set by Cluster.run

    @property
    def rank(self) -> int | None:
        """The lowest rank at fault; None when no single rank is."""
        return min(self.ranks, default=None)


class RankError(RunFailed):
    """A rank raised an exception; it is the `__cause__` wherever it could be sent back."""


class RankDied(RunFailed):
    """A rank's process ended before its function returned."""


class Deadlock(RunFailed):
    """Every unfinished rank waits for another, and none can go on."""


class Mismatch(RunFailed):
    """Ranks called different collectives, or with roots, shapes or dtypes that do not fit."""


class RunTimeout(RunFailed):
    """The run took longer than its `timeout=`."""


class Interrupted(KeyboardInterrupt):
    """The reader stopped a run; the message says where each rank was. All ranks are gone."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback."""
        return [f"KeyboardInterrupt: {self}"]


class TraceError(DdpkitError):
    """A trace file is not one, is damaged, or was written by a later ddpkit."""


class LessonError(DdpkitError):
    """A lesson, an exercise or a notebook is not what it should be."""


class GradeError(DdpkitError):
    """A class cannot be graded so, or not on this machine."""
