"""Where a rank's time went: parts that add up to it exactly.

The parts are four, and a fifth in recordings with copies. Where copies, compute and communication
overlap in time, compute takes precedence, then communication, then copies.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ddpkit.trace.intervals import Interval, intersect, subtract, total, union
from ddpkit.trace.span import COMPUTE_KINDS, Span


@dataclass(frozen=True, slots=True)
class Activity:
    """What one rank did inside a window, as sets of time in ns (see `intervals`)."""

    window: Interval
    compute: list[Interval]
    comm: list[Interval]
    overlapped: list[Interval]  # communication hidden behind compute
    exposed: list[Interval]  # communication with nothing to hide it
    copies: list[Interval] = field(default_factory=list)  # all copies, hidden or not

    @classmethod
    def of(cls, spans: Iterable[Span], window: Interval) -> "Activity":
        """Activity from the spans of one rank, which does not compute while it is blocked."""
        spans = list(spans)
        ops = [span for span in spans if span.kind == "comm"]
        blocked = [(op.blocked_ns, op.end_ns) for op in ops if op.blocked_ns is not None]
        busy = union((span.start_ns, span.end_ns) for span in spans if span.kind in COMPUTE_KINDS)
        compute = intersect(subtract(busy, blocked), [window])
        comm = intersect(((op.start_ns, op.end_ns) for op in ops), [window])
        copied = intersect(((s.start_ns, s.end_ns) for s in spans if s.kind == "copy"), [window])
        return cls(window, compute, comm, intersect(compute, comm), subtract(comm, compute), copied)

    @property
    def copy_only(self) -> list[Interval]:
        """The copies behind which the rank neither computes nor communicates."""
        return subtract(self.copies, [*self.compute, *self.comm]) if self.copies else []


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of one rank's window, in ns; they add up to it exactly.

    HolisticTraceAnalysis has the same numbers under other names: its compute is `compute_ns`, its
    non-compute is ``exposed_ns + copy_ns``.
    """

    compute_only_ns: int
    overlapped_ns: int
    exposed_ns: int
    idle_ns: int
    copy_ns: int = 0  # copies with neither compute nor communication

    @classmethod
    def of(cls, activity: Activity) -> "Breakdown":
        """The parts of one rank's window, from its activity in it."""
        start, end = activity.window
        overlapped, exposed = total(activity.overlapped), total(activity.exposed)
        compute_only = total(activity.compute) - overlapped
        copied = total(activity.copy_only)
        idle = end - start - compute_only - overlapped - exposed - copied
        return cls(compute_only, overlapped, exposed, idle, copied)

    @property
    def step_ns(self) -> int:
        """The length of the window: the sum of the parts."""
        busy = self.compute_only_ns + self.overlapped_ns + self.exposed_ns + self.copy_ns
        return busy + self.idle_ns

    @property
    def compute_ns(self) -> int:
        """All compute, with and without communication behind it."""
        return self.compute_only_ns + self.overlapped_ns

    @property
    def comm_ns(self) -> int:
        """All communication, hidden or exposed."""
        return self.overlapped_ns + self.exposed_ns

    @property
    def hidden(self) -> float | None:
        """The fraction of communication hidden behind compute; None without communication."""
        return self.overlapped_ns / self.comm_ns if self.comm_ns else None
