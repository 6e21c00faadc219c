"""Where a rank's time went: four parts that add up to it exactly."""

from collections.abc import Iterable
from dataclasses import dataclass

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

    @classmethod
    def of(cls, spans: Iterable[Span], window: Interval) -> "Activity":
        """Activity from the spans of one rank, which does not compute while it is blocked."""
        spans = list(spans)
        ops = [span for span in spans if span.kind == "comm"]
        blocked = [(op.blocked_ns, op.end_ns) for op in ops if op.blocked_ns is not None]
        busy = union((span.start_ns, span.end_ns) for span in spans if span.kind in COMPUTE_KINDS)
        compute = intersect(subtract(busy, blocked), [window])
        comm = intersect(((op.start_ns, op.end_ns) for op in ops), [window])
        return cls(window, compute, comm, intersect(compute, comm), subtract(comm, compute))


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The four parts of one rank's window, in ns; they add up to it exactly."""

    compute_only_ns: int
    overlapped_ns: int
    exposed_ns: int
    idle_ns: int

    @classmethod
    def of(cls, activity: Activity) -> "Breakdown":
        """The parts of one rank's window, from its activity in it."""
        start, end = activity.window
        overlapped, exposed = total(activity.overlapped), total(activity.exposed)
        compute_only = total(activity.compute) - overlapped
        idle = end - start - compute_only - overlapped - exposed
        return cls(compute_only, overlapped, exposed, idle)

    @property
    def step_ns(self) -> int:
        """The length of the window: the sum of the four parts."""
        return self.compute_only_ns + self.overlapped_ns + self.exposed_ns + self.idle_ns

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
