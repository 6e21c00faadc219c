"""`Trace`: what every rank did in a run, from which all pictures, checks and reports are made."""

import os
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ddpkit.errors import TraceError
from ddpkit.text import count
from ddpkit.trace.breakdown import Activity, Breakdown
from ddpkit.trace.files import chrome, sources
from ddpkit.trace.files import own as file
from ddpkit.trace.intervals import Interval
from ddpkit.trace.span import Scalar, Span
from ddpkit.trace.traffic import Traffic


@dataclass(frozen=True, repr=False)
class Trace:
    """The spans of a run's ranks, and facts of the run.

    Facts that the views know: "backend", "device", and "emulated", the link in words or "". Of a
    run on several hosts also "hosts", how many, and "clock_error_ns", what a time may be off by; of
    a long run "kept", what of it this trace holds: "the last 812 of 5,000 steps"; of a run that
    torchrun had too few ranks for "skipped", why.

    ``bounds`` gives a rank a window of its own, (start, end) in ns: so `step` restricts a trace.
    Without it the window is common to all ranks, from the first start to the last end, so that a
    rank that is done early is seen to stand idle.
    """

    spans: tuple[Span, ...]
    world_size: int
    facts: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    bounds: Mapping[int, Interval] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", tuple(self.spans))  # any iterable will do

    def __repr__(self) -> str:
        ms = (self.end_ns - self.start_ns) / 1e6
        steps = f", {count(self.steps, 'step')}" if self.steps else ""
        ranks, spans = count(self.world_size, "rank"), count(len(self.spans), "span")
        return f"<Trace of {ranks}: {spans}{steps}, {ms:.4g} ms>"

    @property
    def ranks(self) -> range:
        return range(self.world_size)

    @cached_property
    def start_ns(self) -> int:
        """Where the earliest window starts; 0 if nothing was recorded."""
        starts = [span.start_ns for span in self.spans] if not self.bounds else []
        return min(
            [*starts, *(start for start, end in self.bounds.values() if start < end)], default=0
        )

    @cached_property
    def end_ns(self) -> int:
        """Where the latest window ends; 0 if nothing was recorded."""
        ends = [span.end_ns for span in self.spans] if not self.bounds else []
        return max([*ends, *(end for start, end in self.bounds.values() if start < end)], default=0)

    def of(self, rank: int) -> tuple[Span, ...]:
        """The spans of one rank, in the order they were recorded."""
        return self._by_rank.get(rank, ())

    def window_of(self, rank: int) -> Interval:
        """The (start, end) in ns that the rank's four parts add up to."""
        return self.bounds.get(rank, (self.start_ns, self.end_ns))

    def activity(self, rank: int) -> Activity:
        """When the rank computed and communicated, inside its window."""
        return Activity.of(self.of(rank), self.window_of(rank))

    def breakdown(self) -> dict[int, Breakdown]:
        """Per rank: compute only, overlapped, exposed communication and idle, in ns."""
        return {rank: Breakdown.of(self.activity(rank)) for rank in self.ranks}

    @cached_property
    def traffic(self) -> Traffic:
        """Who sent how much to whom. An operation belongs to the window it was posted in."""
        comm = (span for span in self.spans if span.kind == "comm" and self._posted_inside(span))
        return Traffic.of(comm, self.world_size)

    # Windows and steps

    def window(self, start_ns: int, end_ns: int) -> "Trace":
        """The part of the trace from ``start_ns`` to ``end_ns``, the same on all ranks."""
        return self._restrict(dict.fromkeys(self.ranks, (start_ns, end_ns)))

    @property
    def steps(self) -> int:
        """How many training steps were recorded; 0 if the run marked none."""
        return max(map(len, self._steps.values()), default=0)

    def step(self, k: int) -> "Trace":
        """Step ``k`` alone, counted from 0 (or from the end, with a negative ``k``).

        Every rank has its own start and end of the step. A rank without it gets an empty window.
        """
        if not -self.steps <= k < self.steps:
            has = f"steps 0 to {self.steps - 1}" if self.steps else "no steps"
            raise TraceError(f"there is no step {k}: this trace has {has}")
        k %= self.steps
        return self._restrict(
            {rank: steps[k] if k < len(steps) else (0, 0) for rank, steps in self._steps.items()}
        )

    @property
    def step_windows(self) -> Mapping[int, list[Interval]]:
        """Per rank, the (start, end) in ns of each step that it took."""
        return self._steps

    @cached_property
    def _steps(self) -> dict[int, list[Interval]]:
        marked = any(span.kind == "step" for span in self.spans)
        divide = _marked_steps if marked else _steps_by_optimizer
        return {rank: divide(self.of(rank)) for rank in self.ranks}

    def _restrict(self, bounds: dict[int, Interval]) -> "Trace":
        inside = [span for span in self.spans if _overlaps(span, bounds[span.rank])]
        return Trace(tuple(inside), self.world_size, self.facts, bounds)

    # Files

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace to a JSON file, gzipped if its name ends in ".gz"."""
        file.write(path, file.Content(self.spans, self.world_size, self.facts, self.bounds))

    @classmethod
    def load(cls, *paths: str | os.PathLike[str]) -> "Trace":
        """Read a file made by `save`, or those that torch.profiler made, one per rank of a run.

        What kind a file is, its content says. Of a profiler's files some ranks may be missing; they
        have empty windows. Raises TraceError, in one sentence, for anything else.
        """
        content = sources.read(paths)
        return cls(content.spans, content.world_size, content.facts, content.bounds)

    def to_chrome(self, path: str | os.PathLike[str]) -> list[Path]:
        """Write Chrome JSON: all ranks into a file for Perfetto, or a file per rank into a folder.

        A ``path`` that ends in ".json" or ".json.gz" is the file: all spans, to look at. Any other
        is a folder for HolisticTraceAnalysis: its files hold what counts as compute and as
        communication too, and HolisticTraceAnalysis comes to the numbers of `breakdown`.

        Times are rounded to 1 us. Ranks with an empty window are left out. Returns the files that
        were written. Raises TraceError for what cannot be written, and if the folder holds other
        traces already, which HolisticTraceAnalysis would take for ranks.
        """
        return chrome.write(self, Path(path))

    @cached_property
    def _by_rank(self) -> dict[int, tuple[Span, ...]]:
        lists: dict[int, list[Span]] = defaultdict(list)
        for span in self.spans:
            lists[span.rank].append(span)
        return {rank: tuple(spans) for rank, spans in lists.items()}

    def _posted_inside(self, span: Span) -> bool:
        bounds = self.bounds.get(span.rank)
        return bounds is None or bounds[0] <= span.start_ns < bounds[1]


def _marked_steps(spans: tuple[Span, ...]) -> list[Interval]:
    return sorted((span.start_ns, span.end_ns) for span in spans if span.kind == "step")


def _steps_by_optimizer(spans: tuple[Span, ...]) -> list[Interval]:
    """A step ends with its optimizer span; the first starts with the first compute."""
    ends = sorted(span.end_ns for span in spans if span.kind == "optimizer")
    if not ends:
        return []
    first = min(span.start_ns for span in spans if span.is_compute)
    return list(zip([first, *ends], ends, strict=False))


def _overlaps(span: Span, window: Interval) -> bool:
    start, end = window
    if span.start_ns == span.end_ns:  # an instant belongs to the window it lies in
        return start <= span.start_ns < end
    return span.start_ns < end and start < span.end_ns
