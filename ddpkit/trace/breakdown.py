"""The parts of a rank's time, which add up to the whole time exactly.

There are four parts (compute only, overlap, exposed communication, idle), and a fifth part in
recordings with copies. Time with several activities counts as compute if the rank computes,
otherwise as communication, and as a copy only if there is nothing else.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddpkit.trace.intervals import Interval, intersect, subtract, total
from ddpkit.trace.span import ROW_OF, TIMES, Span


@dataclass(frozen=True, slots=True)
class Activity:
    """The times at which one rank computes, communicates and copies, in ns (see `intervals`)."""

    window: Interval
    compute: list[Interval]
    comm: list[Interval]
    overlapped: list[Interval]  # communication hidden behind compute
    exposed: list[Interval]  # communication without compute at the same time
    copies: list[Interval] = field(default_factory=list)  # all copies, hidden or not

    @classmethod
    def of(cls, spans: Iterable[Span], window: Interval) -> "Activity":
        """Return the activity of one rank from its spans; time blocked in a wait is not compute."""
        rows: dict[str, list[Span]] = {row: [] for row in ROW_OF.values()}
        for span in spans:
            rows[ROW_OF[span.kind]].append(span)
        return cls.of_rows(rows["compute"], rows["comm"], rows["copy"], window)

    @classmethod
    def of_rows(
        cls, compute: Iterable[Span], comm: Sequence[Span], copies: Iterable[Span], window: Interval
    ) -> "Activity":
        """Return the activity of one rank from its spans, which are given row by row."""
        blocked = [(op.blocked_ns, op.end_ns) for op in comm if op.blocked_ns is not None]
        computed = intersect(subtract(map(TIMES, compute), blocked), [window])
        moved = intersect(map(TIMES, comm), [window])
        return cls(
            window,
            computed,
            moved,
            intersect(computed, moved),
            subtract(moved, computed),
            intersect(map(TIMES, copies), [window]),
        )

    @property
    def copy_only(self) -> list[Interval]:
        """The time of copies during which the rank neither computes nor communicates."""
        return subtract(self.copies, [*self.compute, *self.comm]) if self.copies else []


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The parts of one rank's window, in ns; they add up to the window exactly.

    HolisticTraceAnalysis computes the same numbers: its "compute" is `compute_ns`, and its
    "non-compute" is ``exposed_ns + copy_ns``.
    """

    compute_only_ns: int
    overlapped_ns: int
    exposed_ns: int
    idle_ns: int
    copy_ns: int = 0  # the rank copies, and neither computes nor communicates

    @classmethod
    def of(cls, activity: Activity) -> "Breakdown":
        """Return the parts of one rank's window, from the rank's activity."""
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
        """All compute time, with or without communication at the same time, in ns."""
        return self.compute_only_ns + self.overlapped_ns

    @property
    def comm_ns(self) -> int:
        """All communication time, hidden or exposed, in ns."""
        return self.overlapped_ns + self.exposed_ns

    @property
    def hidden(self) -> float | None:
        """The share of communication time in which the rank computes; None without such time."""
        return self.overlapped_ns / self.comm_ns if self.comm_ns else None
