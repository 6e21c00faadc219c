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

What a message says stands in the error's fields too, as data: a program reads those and never the
text. `cluster.explain` makes the text from the fields. All fields have a default, so that a test
can make an error by hand, and all errors can be pickled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ddpkit.protocol.call import Call, Where
from ddpkit.protocol.raised import Raised


class DdpkitError(Exception):
    """Base of everything ddpkit raises on purpose; its message stands alone."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ClusterError(DdpkitError):
    """The ranks could not be started, or the function could not be sent to them."""


class CallError(ClusterError, TypeError):
    """What was to run is no function, or takes other arguments."""


# What the errors of a run know


@dataclass(frozen=True)
class Waiting:
    """A rank that waits: the call that it waits for, and the line that it stands in."""

    call: Call
    where: Where  # another line than the call's, where `wait()` stands apart from it


@dataclass(frozen=True)
class Doing:
    """What an unfinished rank did at the moment when its run was stopped."""

    where: Where | None = None  # its line; None while it was still starting
    call: Call | None = None  # what it waited for there; None where it did not wait


# How a rank ended before its function returned:
#   signal     a signal killed it
#   exit       it ended by itself, without a word: os._exit, or a crash that calls that
#   sys.exit   it called sys.exit
#   gone       its connection ended: it was killed, it crashed, or its host is out of reach
#   left       it came to the end of its script, while other ranks were still in the run
DeathCause: TypeAlias = Literal["signal", "exit", "sys.exit", "gone", "left"]

# How it is known where a rank was: from its stack as it died, from its last status, from its last
# call, or not at all, and then `where` is the first line of the function that was run.
SeenBy: TypeAlias = Literal["stack", "status", "call", "function"]


@dataclass(frozen=True)
class LastSeen:
    """Where a rank was when it was last heard of."""

    where: Where
    by: SeenBy = "stack"
    call: Call | None = None  # by "call": its last one
    function: str = ""  # by "function": its name


@dataclass(frozen=True)
class Death:
    """How a rank ended, and where."""

    cause: DeathCause
    exit_code: int | None = None  # by "exit" and "sys.exit"
    signal: str = ""  # by "signal": "SIGKILL", or "signal 99" where it has no name
    last: LastSeen | None = None  # None where nothing is known
    host: str = ""  # its name, in a job on several hosts


# Why ranks that wait for each other cannot go on:
#   returned   a rank that another one waits for has returned
#   lost       the sender of a message has returned before the message was over
#   itself     a rank waits for itself
#   receive    the ranks of a circle all receive first, so nobody sends
#   send       the ranks of a circle all send first, so nobody receives
#   cycle      ranks wait for each other in a circle, in calls that differ
#   nothing    no rank has posted what the others need, and there is no circle
DeadlockCause: TypeAlias = Literal[
    "returned", "lost", "itself", "receive", "send", "cycle", "nothing"
]

# How calls differ that must be alike on several ranks. "message": a message and the tensor that it
# is received into differ in dtype or in number of elements.
# "splits": in an all_to_all_single, a rank sends another more or less than that takes.
# "members": the ranks have made different groups as their first one, second one, ...
MismatchKind: TypeAlias = Literal[
    "members", "operation", "root", "dtype", "shape", "reduction", "message", "splits"
]


class RunFailed(DdpkitError):
    """A run started and failed.

    ranks     the ranks it happened on first; `rank` is the lowest of them
    returned  the ranks whose function had returned by then
    run       what there was to save: the output of all ranks, the results of those that had
              returned, and the spans of each until its end; None on an error that no run has raised
    """

    def __init__(
        self, message: str, *, ranks: Collection[int] = (), returned: Collection[int] = ()
    ) -> None:
        super().__init__(message)
        self.ranks: tuple[int, ...] = tuple(ranks)
        self.returned: frozenset[int] = frozenset(returned)
        self.run: Any = None  # a `Run`, set by Cluster.run

    @property
    def rank(self) -> int | None:
        """The lowest rank at fault; None when no single rank is."""
        return min(self.ranks, default=None)


class RankError(RunFailed):
    """A rank raised an exception; it is the `__cause__` wherever it could be sent back.

    raised  by rank, each exception that may be the cause: not one that only tells that another
            rank is gone, unless all do
    """

    def __init__(
        self,
        message: str,
        *,
        raised: Mapping[int, Raised] | None = None,
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.raised: dict[int, Raised] = dict(raised or {})


class RankDied(RunFailed):
    """A rank's process ended before its function returned.

    deaths  by rank, how it ended and where
    raised  by rank, what other ranks raised meanwhile, and the SystemExit of sys.exit
    """

    def __init__(
        self,
        message: str,
        *,
        deaths: Mapping[int, Death] | None = None,
        raised: Mapping[int, Raised] | None = None,
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.deaths: dict[int, Death] = dict(deaths or {})
        self.raised: dict[int, Raised] = dict(raised or {})


class Deadlock(RunFailed):
    """Every unfinished rank waits for another, and none can go on.

    waiting  by unfinished rank, what it waits for and where
    needs    by unfinished rank, the ranks that have not done their part of that; empty if all have
    cause    why none can go on (`DeadlockCause`); the first that applies, in the order stated there
    """

    def __init__(
        self,
        message: str,
        *,
        waiting: Mapping[int, Waiting] | None = None,
        needs: Mapping[int, Collection[int]] | None = None,
        cause: DeadlockCause = "nothing",
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.waiting: dict[int, Waiting] = dict(waiting or {})
        self.needs = {rank: frozenset(others) for rank, others in (needs or {}).items()}
        self.cause: DeadlockCause = cause


class Mismatch(RunFailed):
    """Ranks called different collectives, or with roots, shapes or dtypes that do not fit.

    kind   in what they differ (`MismatchKind`); the first that applies, in the order stated there
    calls  by rank, its call; of a "message" or "splits", those of the sender and the receiver
    """

    def __init__(
        self,
        message: str,
        *,
        kind: MismatchKind = "operation",
        calls: Mapping[int, Call] | None = None,
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.kind: MismatchKind = kind
        self.calls: dict[int, Call] = dict(calls or {})


class RunTimeout(RunFailed):
    """The run took longer than its `timeout=`.

    seconds  the timeout
    doing    by unfinished rank, what it did when the run was stopped
    """

    def __init__(
        self,
        message: str,
        *,
        seconds: float | None = None,
        doing: Mapping[int, Doing] | None = None,
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.seconds = seconds
        self.doing: dict[int, Doing] = dict(doing or {})


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
