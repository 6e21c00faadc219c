"""`BaseTrace`: the spans of all ranks in a run, and functions that analyse them, without files."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from operator import attrgetter
from typing import Self

from ddpkit.errors import TraceError
from ddpkit.text import count
from ddpkit.trace.breakdown import Activity, Breakdown
from ddpkit.trace.cycles import ends_of_steps
from ddpkit.trace.deaths import died_ns
from ddpkit.trace.intervals import Interval
from ddpkit.trace.made import how_made
from ddpkit.trace.memory import MemoryLevel, inside
from ddpkit.trace.span import OPERATIONS, ROW_OF, TIMES, Scalar, Span
from ddpkit.trace.traffic import Traffic

MARKS = (  # the end of the message of an error about a trace without steps
    "`with ddpkit.step():`, torch.profiler's `profiler.step()` or an optimizer's step mark the "
    "steps"
)
RECORDED = "recorded_ranks"  # the fact with the recorded ranks, if some are missing


@dataclass(frozen=True, repr=False)
class BaseTrace:
    """The spans of all ranks, without functions for files. `Trace` explains the fields."""

    spans: tuple[Span, ...]
    world_size: int
    facts: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    bounds: Mapping[int, Interval] = field(default_factory=dict, hash=False)
    memory: Mapping[int, tuple[MemoryLevel, ...]] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))  # the argument may be any iterable

    def __repr__(self) -> str:
        steps = f", {count(self.steps, 'step')}" if self.steps else ""
        ranks, spans = self.ranks_in_words, count(len(self.spans), "span")
        emulated = ", emulated" if how_made(self.facts) == "emulated" else ""
        return f"<Trace of {ranks}: {spans}{steps}, {self.duration_ms:.4g} ms{emulated}>"

    @property
    def ranks(self) -> range:
        """All ranks of the run, from 0."""
        return range(self.world_size)

    @cached_property
    def recorded_ranks(self) -> Sequence[int]:
        """The ranks that were recorded: fewer than `ranks` if the files of some are missing."""
        words = str(self.facts.get(RECORDED, "")).split(", ")
        named = {int(word) for word in words if word.isdecimal() and len(word) < 10}
        if not named:
            return self.ranks
        return sorted(rank for rank in named | self._by_rank.keys() if rank in self.ranks)

    @property
    def job_size(self) -> int:
        """The number of ranks in the job: more than `world_size` in a run with `alike=`."""
        return int(self.facts.get("world_size", self.world_size))

    @property
    def ranks_in_words(self) -> str:
        """The number of ranks as text: "4 ranks", or "1 of 64 ranks" if 63 were not recorded."""
        known = min(len(self.recorded_ranks), self.world_size)
        whole = count(max(self.job_size, self.world_size), "rank")
        return whole if known == max(self.job_size, self.world_size) else f"{known} of {whole}"

    @cached_property
    def start_ns(self) -> int:
        """The start of the earliest window; 0 if nothing was recorded.

        The host of a device may begin before this time, because windows do not include the host's
        work.
        """
        if not self.bounds:
            spans = (span for span in self.spans if span.kind != "host")
            first: int = min(map(attrgetter("start_ns"), spans), default=0)
            return first
        return min((start for start, end in self.bounds.values() if start < end), default=0)

    @cached_property
    def end_ns(self) -> int:
        """The end of the latest window or the latest death of a rank; 0 if nothing was recorded."""
        if self.bounds:
            return max((end for start, end in self.bounds.values() if start < end), default=0)
        if not self.spans:
            return 0
        deaths = (died_ns(self.facts, rank) for rank in self.ranks)
        spans = (span for span in self.spans if span.kind != "host")
        last: int = max(map(attrgetter("end_ns"), spans), default=0)
        return max([last, *(ns for ns in deaths if ns is not None)])

    @property
    def duration_ms(self) -> float:
        """The time from the earliest start to the latest end, in milliseconds."""
        return (self.end_ns - self.start_ns) / 1e6

    def of(self, rank: int) -> tuple[Span, ...]:
        """Return the spans of one rank, in the order of the recording."""
        return self._by_rank.get(rank, ())

    def row(self, rank: int, name: str) -> Sequence[Span]:
        """Return the spans of one rank in one row of a picture.

        The rows are "compute", "comm", "copy", "step" and "host".
        """
        return self._by_row.get((rank, name), ())

    def window_of(self, rank: int) -> Interval:
        """Return the (start, end) of a rank's window in ns; `breakdown` divides this window.

        The window of a rank that was not recorded is empty.
        """
        whole = (self.start_ns, self.end_ns) if rank in self.recorded_ranks else (0, 0)
        return self.bounds.get(rank, whole)

    def activity(self, rank: int) -> Activity:
        """Return the times of the rank's compute and communication, inside its window."""
        compute, comm, copies = (self.row(rank, name) for name in ("compute", "comm", "copy"))
        return Activity.of_rows(compute, comm, copies, self.window_of(rank))

    def breakdown(self) -> dict[int, Breakdown]:
        """Return the breakdown of each rank's time, by rank; all times are in ns."""
        return {rank: Breakdown.of(self.activity(rank)) for rank in self.ranks}

    @cached_property
    def traffic(self) -> Traffic:
        """The bytes and messages by sender and receiver, of operations posted in the trace."""
        every = (span for rank in self.ranks for span in self.row(rank, "comm"))
        comm = (span for span in every if self._posted_inside(span))
        return Traffic.of(comm, self.world_size, self.recorded_ranks)

    def peak(self, rank: int) -> MemoryLevel | None:
        """Return the highest memory level in the rank's window; None if unknown.

        If several levels are equally high, return the first of them.
        """
        levels: Sequence[MemoryLevel] = self.memory.get(rank, ())
        if rank in self.bounds:
            levels = inside(levels, *self.bounds[rank])
        return max(levels, key=lambda level: level.total, default=None)

    # Windows and steps

    def window(self, start_ns: int, end_ns: int) -> Self:
        """Return the part of the trace between ``start_ns`` and ``end_ns``, on every rank."""
        inside = (span for span in self.spans if _overlaps(span, (start_ns, end_ns)))
        bounds = dict.fromkeys(self.recorded_ranks, (start_ns, end_ns))
        return replace(self, spans=tuple(inside), bounds=bounds)

    @cached_property
    def steps(self) -> int:
        """The number of recorded training steps; 0 if the run marked none."""
        return max(map(len, self._steps.values()), default=0)

    def step(self, k: int) -> Self:
        """Return step ``k`` alone. Steps count from 0; a negative ``k`` counts from the end.

        Every rank has its own start and end of the step. A rank without the step gets an empty
        window. Raises TraceError if there is no such step.
        """
        if not -self.steps <= k < self.steps:
            has = f"steps 0 to {self.steps - 1}" if self.steps else f"no steps: {MARKS}"
            raise TraceError(f"there is no step {k}: this trace has {has}")
        k %= self.steps
        if k not in self._cut:
            bounds = {
                rank: steps[k] if k < len(steps) else (0, 0) for rank, steps in self._steps.items()
            }
            spans = tuple(self.spans[place] for place in self._by_step[k])
            self._cut[k] = replace(self, spans=spans, bounds=bounds)
        return self._cut[k]

    def marks_of(self, rank: int) -> list[int]:
        """Return the ends of a rank's marked steps, or else of its optimizers' steps, in ns.

        If a program has several optimizers, several of these ends belong to one training step.
        """
        marked = any(row == "step" for _, row in self._by_row)
        kind = "step" if marked else "optimizer"
        return sorted(span.end_ns for span in self.of(rank) if span.kind == kind)

    @property
    def step_windows(self) -> Mapping[int, list[Interval]]:
        """The (start, end) in ns of each step that a rank took, by rank."""
        return self._steps

    @cached_property
    def _steps(self) -> dict[int, list[Interval]]:
        marked = any(row == "step" for _, row in self._by_row)
        return {
            rank: sorted(map(TIMES, self.row(rank, "step")))
            if marked
            else _steps_by_optimizer(self.row(rank, "compute"))
            for rank in self.recorded_ranks
        }

    @cached_property
    def _cut(self) -> dict[int, Self]:
        """A cache of the results of `step`: a prediction uses each step once for each rank."""
        return {}

    @cached_property
    def _by_step(self) -> list[list[int]]:
        """The spans that reach into each step, as lists of indices in `spans`."""
        found: list[list[int]] = [[] for _ in range(self.steps)]
        starts = {rank: [start for start, _ in steps] for rank, steps in self._steps.items()}
        # For each step, the latest end so far. `bisect` needs a sorted list, and nested steps have
        # ends out of order.
        ends = {
            rank: [*accumulate((end for _, end in steps), max)]
            for rank, steps in self._steps.items()
        }
        nested = {
            rank: ends[rank] != [end for _, end in steps] for rank, steps in self._steps.items()
        }
        for place, span in enumerate(self.spans):
            rank, start, end = span.rank, span.start_ns, span.end_ns
            first = bisect_right(ends[rank], start)
            last = (bisect_left if start < end else bisect_right)(starts[rank], end)
            for k in range(first, last):
                if not nested[rank] or _overlaps(span, self._steps[rank][k]):
                    found[k].append(place)
        return found

    @cached_property
    def _by_rank(self) -> dict[int, tuple[Span, ...]]:
        lists: dict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            lists[span.rank].append(span)
        return {rank: tuple(spans) for rank, spans in lists.items()}

    @cached_property
    def _by_row(self) -> dict[tuple[int, str], list[Span]]:
        lists: dict[tuple[int, str], list[Span]] = defaultdict(list)
        for span in self.spans:
            lists[span.rank, ROW_OF[span.kind]].append(span)
        return dict(lists)

    def _posted_inside(self, span: Span) -> bool:
        bounds = self.bounds.get(span.rank)
        return bounds is None or bounds[0] <= span.start_ns < bounds[1]


def _steps_by_optimizer(spans: Sequence[Span]) -> list[Interval]:
    """Return the steps of a rank, each of which ends with the last optimizer of the step.

    The first step starts with the rank's first compute.
    """
    ends = ends_of_steps(spans)
    if not ends:
        return []
    # Operations outside all modules may come before the first step: they make model and data.
    compute = [span for span in spans if span.is_compute and OPERATIONS not in span.args]
    first = min(span.start_ns for span in compute)
    return list(zip([first, *ends], ends, strict=False))


def _overlaps(span: Span, window: Interval) -> bool:
    start, end = window
    if span.start_ns == span.end_ns:  # an instant belongs to the window that contains it
        return start <= span.start_ns < end
    return span.start_ns < end and start < span.end_ns
