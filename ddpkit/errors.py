"""The errors that ddpkit raises on purpose.

    DdpkitError
    ├── ClusterError          the ranks could not be started, or the function could not be shipped
    │   ├── CallError         the function cannot be called with these arguments (also a TypeError)
    │   └── UnsupportedTorch  this torch lacks a private name on which the kit depends
    ├── RunFailed             the ranks were started, and the run failed; all ranks are gone
    │   ├── RankError         a rank raised an exception
    │   ├── RankDied          a rank was killed, crashed, or left with os._exit or sys.exit
    │   ├── Deadlock          every unfinished rank waits, and nothing can end the waiting
    │   ├── Mismatch          the ranks disagree on a collective, or on a message
    │   └── RunTimeout        the run took longer than its `timeout=`
    ├── TraceError            a trace file cannot be read or written
    ├── LessonError           a lesson, an exercise or a notebook is damaged or misused
    └── GradeError            a class cannot be graded with these options or on this machine

    KeyboardInterrupt
    └── Interrupted           the reader stopped a run or a check; the error has the lines

Each message is written for a reader at midnight: it names the fault, the rank, the line of the
cell and the remedy. In a notebook the message is shown without the traceback of ddpkit's own
frames, which would push the message off the screen.

The fields of an error hold the same facts as data: a program reads the fields, never the text.
`cluster.explain` makes the text from the fields. All fields have a default, so that a test can make
an error by hand, and all errors can be pickled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from ddpkit.protocol.call import Call, Where
from ddpkit.protocol.raised import Raised


class DdpkitError(Exception):
    """Base of the errors that ddpkit raises on purpose; the message needs no traceback."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


class ClusterError(DdpkitError):
    """The ranks could not be started, or the function could not be sent to them."""


class CallError(ClusterError, TypeError):
    """The object to run is no function, or the function takes different arguments."""


class UnsupportedTorch(ClusterError):
    """torch lacks a private name on which the kit depends, or has changed the name's behaviour."""


# The data in the errors of a run


@dataclass(frozen=True)
class Waiting:
    """A waiting rank: the call in progress, and the line of code."""

    call: Call
    where: Where  # the line of `wait()`, perhaps below the line of the call


@dataclass(frozen=True)
class Doing:
    """The state of an unfinished rank when its run was stopped."""

    where: Where | None = None  # the line of code; None while the rank was still starting
    call: Call | None = None  # the call in progress; None if the rank did not wait


# The ways in which a rank can end before its function returns:
#   signal     a signal killed the process
#   exit       the process ended itself without a message: os._exit, or a crash that calls os._exit
#   sys.exit   the rank called sys.exit
#   gone       the connection ended: the process was killed or crashed, or its host is out of reach
#   left       the rank came to the end of its script while other ranks were still in the run
DeathCause: TypeAlias = Literal["signal", "exit", "sys.exit", "gone", "left"]

# The source of a rank's last known line: its stack as it died, its last status, its last call, or
# none of them; `where` is then the first line of the function that was run.
SeenBy: TypeAlias = Literal["stack", "status", "call", "function"]


@dataclass(frozen=True)
class LastSeen:
    """The last known line of a rank."""

    where: Where
    by: SeenBy = "stack"
    call: Call | None = None  # for "call": the last call
    function: str = ""  # for "function": the name of the function


@dataclass(frozen=True)
class Death:
    """The end of a rank: its cause and its last known line."""

    cause: DeathCause
    exit_code: int | None = None  # for "exit" and "sys.exit"
    signal: str = ""  # for "signal": "SIGKILL", or "signal 99" for a signal without a name
    last: LastSeen | None = None  # None if no line is known
    host: str = ""  # the name of the host, in a job on several hosts


# Reasons for which ranks that wait for each other cannot go on:
#   returned   a rank waits for a rank that has returned
#   lost       the sender of a message has returned before the message was delivered
#   key        a rank waits for a key in a store that has not been set
#   itself     a rank waits for itself
#   receive    the ranks of a circle all receive first, so no rank sends
#   send       the ranks of a circle all send first, so no rank receives
#   cycle      ranks wait for each other in a circle, in different calls
#   streams    each call waits on its emulated device behind an earlier call of the same stream
#   nothing    no rank has posted a call that the waiting ranks need, and there is no circle
DeadlockCause: TypeAlias = Literal[
    "returned", "lost", "key", "itself", "receive", "send", "cycle", "streams", "nothing"
]

# The difference between calls that must match across ranks.
# "message": the message and the receiver's tensor differ in dtype or in number of elements.
# "splits": in an all_to_all_single, a sender's part and its receiver's part differ in length.
# "strides": tensors of one shape lie in memory in different orders.
# "members": the ranks' groups of one number (the first, the second, ...) have different members.
MismatchKind: TypeAlias = Literal[
    "members", "operation", "root", "dtype", "shape", "reduction", "strides", "message", "splits"
]


class RunFailed(DdpkitError):
    """A run started and failed.

    ranks     the ranks at fault; `rank` is the lowest of these ranks
    returned  the ranks that had returned from the function before the failure
    run       the rest of the run: the output of all ranks, the results of returned ranks, and the
              spans of each rank until its end; None on an error made without a run
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
        """The lowest rank at fault; None if no rank is known to be at fault."""
        return min(self.ranks, default=None)


class RankError(RunFailed):
    """A rank raised an exception; `__cause__` is this exception if it could be sent back.

    raised  rank -> an exception that may be the cause; exceptions that only report the end of
            another rank are left out unless there are no others
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

    deaths  rank -> the end of a rank that died
    raised  rank -> the exception of another rank, or the SystemExit of sys.exit
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
    """Every unfinished rank waits for another rank, and none can go on.

    waiting  unfinished rank -> the rank's call and line
    needs    unfinished rank -> ranks that have not posted their part of its call; may be empty
    cause    the reason (`DeadlockCause`); the first that applies, in the order of `DeadlockCause`
    made     rank -> the rank's number of calls of one collective, if unfinished ranks wait in this
             collective for returned ranks; empty if the numbers are unknown
    apart    rank -> the rank's call of one collective, the group's first that ranks called from
             different lines; empty if all such differences are usual (`ddpkit.cluster.lines`)
    """

    def __init__(
        self,
        message: str,
        *,
        waiting: Mapping[int, Waiting] | None = None,
        needs: Mapping[int, Collection[int]] | None = None,
        cause: DeadlockCause = "nothing",
        made: Mapping[int, int] | None = None,
        apart: Mapping[int, Call] | None = None,
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.waiting: dict[int, Waiting] = dict(waiting or {})
        self.needs = {rank: frozenset(others) for rank, others in (needs or {}).items()}
        self.cause: DeadlockCause = cause
        self.made: dict[int, int] = dict(made or {})
        self.apart: dict[int, Call] = dict(apart or {})


class Mismatch(RunFailed):
    """Ranks called different collectives, or one with roots, shapes or dtypes that do not fit.

    kind   the difference (`MismatchKind`); the first that applies, in the order of `MismatchKind`
    calls  rank -> the rank's call; for "message" and "splits", only of the sender and the receiver
    apart  rank -> the rank's call of an earlier collective, as in `Deadlock.apart`
    """

    def __init__(
        self,
        message: str,
        *,
        kind: MismatchKind = "operation",
        calls: Mapping[int, Call] | None = None,
        apart: Mapping[int, Call] | None = None,
        ranks: Collection[int] = (),
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message, ranks=ranks, returned=returned)
        self.kind: MismatchKind = kind
        self.calls: dict[int, Call] = dict(calls or {})
        self.apart: dict[int, Call] = dict(apart or {})


class RunTimeout(RunFailed):
    """The run took longer than its `timeout=`.

    seconds  the timeout
    doing    unfinished rank -> the state of the rank when the run was stopped
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
    """The reader stopped a run or a check; the message names the line that was running.

    The message of a stopped run names the line of each rank; all ranks are gone.

    doing     unfinished rank -> the state of the rank
    returned  the ranks that had returned
    """

    def __init__(
        self,
        message: str = "",
        *,
        doing: Mapping[int, Doing] | None = None,
        returned: Collection[int] = (),
    ) -> None:
        super().__init__(message)
        self.doing: dict[int, Doing] = dict(doing or {})
        self.returned: frozenset[int] = frozenset(returned)

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython shows instead of a traceback."""
        return [f"KeyboardInterrupt: {self}"]


class TraceError(DdpkitError):
    """A trace file is damaged, is of another format, or was written by a later ddpkit."""


class LessonError(DdpkitError):
    """A lesson, an exercise or a notebook is damaged or misused."""


class GradeError(DdpkitError):
    """A class cannot be graded with these options or on this machine."""
