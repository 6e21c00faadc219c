"""`span_columns`: every span of a trace as columns of numbers, for a canvas to draw. Pure."""

from __future__ import annotations

import itertools
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from operator import attrgetter
from typing import Any

from ddpkit.trace import Span, Trace, name_of
from ddpkit.trace.queues import COMPUTE as DEFAULT_STREAM
from ddpkit.trace.queues import by_queue, has_host
from ddpkit.view.drawing.lanes import assign_lanes

KINDS = ("forward", "backward", "optimizer", "span", "moving", "exposed", "copy", "host")
NUMBER = {kind: n for n, kind in enumerate(KINDS)}
# pixels: heights of a compute row, of a lane and of a rank's lanes; gap between ranks, margin
COMPUTE, LANE, LANES, GAP, EDGE = 26, 16, 96, 12, 4
MOST = 2**31 - 1  # ticks: columns have 32 bits
TYPES = {"d": "f8", "i": "i4", "I": "u4", "B": "u1"}  # numpy's names for the types of arrays


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of the picture: the entries ``[first, last)`` of the columns, in order of start."""

    rank: int
    title: str  # "rank 0" in the first row of the rank; otherwise ""
    name: str  # "compute", "comm", "copy" or the name of a queue; "" in the queue's further lanes
    top: int  # in pixels
    height: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class SpanColumns:
    """All spans of a picture, as columns of numbers with an entry for each span.

    Times are in ticks of ``tick_ns`` from the start of the shown time; earlier times are below 0.
    """

    length: int  # length of the shown time, in ticks
    tick_ns: int
    rows: list[Lane] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)  # start and end of a step, in ticks
    names: list[str] = field(default_factory=list)  # the names to which the column `name` points
    # One entry a span. Wide columns come first, so that all columns are aligned to their items.
    nbytes: array[float] = field(default_factory=lambda: array("d"))
    start: array[int] = field(default_factory=lambda: array("i"))
    end: array[int] = field(default_factory=lambda: array("i"))
    # the time when the rank collected the operation; `end` if the rank did not collect it
    over: array[int] = field(default_factory=lambda: array("i"))
    # latest `over` of the row up to this entry
    reach: array[int] = field(default_factory=lambda: array("i"))
    ready: array[int] = field(default_factory=lambda: array("i"))  # the end of waiting for peers
    peer: array[int] = field(default_factory=lambda: array("i"))  # rank of the peer; -1: no peer
    name: array[int] = field(default_factory=lambda: array("I"))
    kind: array[int] = field(default_factory=lambda: array("B"))  # an index of KINDS

    def columns(self) -> dict[str, array[int] | array[float]]:
        """Return the columns by name, in the order of the class's fields."""
        found = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: column for name, column in found if isinstance(column, array)}

    def packed(self) -> bytes:
        """Return the compressed bytes of all columns, one column after the other.

        A column has the first byte of each number, then each second byte, and so on. ``start`` is
        the time since the previous start in the row, ``end`` and ``ready`` are times since
        ``start``, and ``over`` is the time since ``end``: small numbers compress better. The
        browser computes ``reach``.
        """
        import numpy as np

        columns = {
            name: np.frombuffer(each, TYPES[each.typecode]) for name, each in self._sent().items()
        }
        start, end = columns["start"], columns["end"]
        since = np.diff(start, prepend=start[:1])
        firsts = [row.first for row in self.rows if row.first < row.last]
        since[firsts] = start[firsts]
        columns |= {"start": since, "end": end - start, "over": columns["over"] - end}
        columns["ready"] = columns["ready"] - start
        bytes_of = (each.view("u1").reshape(-1, each.itemsize).T for each in columns.values())
        return zlib.compress(b"".join(each.tobytes() for each in bytes_of))

    def _sent(self) -> dict[str, array[int] | array[float]]:
        return {name: column for name, column in self.columns().items() if name != "reach"}

    def described(self) -> dict[str, Any]:
        """Return the data that the canvas needs besides the columns."""
        low, high = min(self.start, default=0), max(self.over, default=0)
        return {
            "length": max(self.length, 1),
            "tick_ns": self.tick_ns,
            "extent": [min(low, 0), max(high, self.length, 1)],  # first and last time in view
            "rows": [asdict(row) for row in self.rows],
            "height": self.rows[-1].top + self.rows[-1].height + EDGE if self.rows else 0,
            "names": self.names,
            "kinds": KINDS,
            "count": len(self.start),
            "columns": [(name, TYPES[each.typecode]) for name, each in self._sent().items()],
            "steps": self.steps,
            "few": [],
        }


def span_columns(trace: Trace, step: int | None = None) -> SpanColumns:
    """Return the columns of a trace, or of the spans that overlap one of its steps.

    Spans that begin before the step or end after the step keep their whole length.

    Raises TraceError if there is no such step.
    """
    shown = trace if step is None else trace.step(step)
    first = min(map(attrgetter("start_ns"), shown.spans), default=shown.start_ns)
    last = max((s.end_ns if s.collected_ns is None else s.over_ns for s in shown.spans), default=0)
    tick = max(last - first, last - shown.start_ns) // MOST + 1
    columns = SpanColumns((shown.end_ns - shown.start_ns) // tick, tick)
    builder = _ColumnBuilder(columns, shown)
    if step is None:
        columns.steps.extend(_steps(trace, tick))
    top = EDGE
    for rank in shown.recorded_ranks:
        top = builder.rank(rank, top) + GAP
    return columns


def _steps(trace: Trace, tick: int) -> Iterator[tuple[int, int]]:
    """Yield the start of each step on its first rank and the end on its last rank, in ticks."""
    found: list[tuple[int, int]] = []
    for rank in trace.recorded_ranks:
        for k, span in enumerate(trace.row(rank, "step")):
            if k == len(found):
                found.append((span.start_ns, span.end_ns))
            found[k] = min(found[k][0], span.start_ns), max(found[k][1], span.end_ns)
    zero = trace.start_ns
    return (((start - zero) // tick, (end - zero) // tick) for start, end in found)


class _ColumnBuilder:
    def __init__(self, columns: SpanColumns, trace: Trace) -> None:
        self.columns, self.trace = columns, trace
        self.numbers: dict[str, int] = {}  # name -> its number

    def rank(self, rank: int, top: int) -> int:
        """Add a rank's rows from pixel ``top`` downwards, and return the pixel below the rows."""
        compute = self.trace.row(rank, "compute")
        lanes = assign_lanes(self.trace.row(rank, "comm"))
        queues: dict[str, list[Span]] = {}
        if has_host(self.trace, rank):
            queues = by_queue(self.trace.of(rank))
            compute = queues.pop(DEFAULT_STREAM, [])
            compute = [span for span in compute if span.kind != "step"]
            for name, spans in by_queue(self.trace.row(rank, "host")).items():
                del queues[name]
                ordered = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
                self._row(rank, name, top, LANE, ordered)
                top += LANE + 2
        if compute:
            exposed = list(self._exposed(rank)) if lanes else []
            ordered = sorted([*compute, *exposed], key=lambda span: (span.start_ns, -span.end_ns))
            self._row(rank, "compute", top, COMPUTE, ordered)
            top += COMPUTE + EDGE
        groups = [("comm", lanes), ("copy", assign_lanes(self.trace.row(rank, "copy")))]
        if queues:
            groups = [(name, assign_lanes(spans)) for name, spans in queues.items()]
        for name, group in groups:
            high = max(2, min(LANE, LANES // max(1, len(group))))
            for n, lane in enumerate(group):
                self._row(rank, "" if n else name, top, high, lane)
                top += high + min(2, high // 4)
        return top

    def _exposed(self, rank: int) -> Iterator[Span]:
        """Yield exposed communication as spans for the compute row, which is empty at that time."""
        for start, end in self.trace.activity(rank).exposed:
            yield Span(rank, "compute", "exposed communication", "comm", start, end)

    def _row(self, rank: int, name: str, top: int, height: int, spans: Sequence[Span]) -> None:
        columns, first = self.columns, len(self.columns.start)
        self._add(spans)
        columns.reach.extend(itertools.accumulate(columns.over[first:], max))
        shown_before = any(row.rank == rank for row in columns.rows[-1:])
        title = "" if shown_before else name_of(self.trace.facts, rank)
        row = Lane(rank, title, name, top, height, first, len(columns.start))
        columns.rows.append(row)

    def _add(self, spans: Sequence[Span]) -> None:
        """Add entries to all columns, a column at a time: calls for each span would be slower."""
        columns, zero, tick = self.columns, self.trace.start_ns, self.columns.tick_ns
        over = [span.end_ns if span.collected_ns is None else span.over_ns for span in spans]
        ready = [span.start_ns if span.ready_ns is None else _ready(span) for span in spans]
        columns.nbytes.extend(span.bytes for span in spans)
        columns.start.extend([(span.start_ns - zero) // tick for span in spans])
        columns.end.extend([(span.end_ns - zero) // tick for span in spans])
        columns.over.extend([(ns - zero) // tick for ns in over])
        columns.ready.extend([(ns - zero) // tick for ns in ready])
        columns.peer.extend([-1 if span.peer is None else span.peer for span in spans])
        columns.kind.extend([_kind(s) if s.kind == "comm" else NUMBER[s.kind] for s in spans])
        numbers = self.numbers
        for span in spans:
            name = _name(span) if span.args else span.name
            columns.name.append(numbers.setdefault(name, len(numbers)))
        columns.names.extend(itertools.islice(numbers, len(columns.names), None))


def _ready(span: Span) -> int:
    """Return the end of an operation's wait for its peers, within the operation's own time."""
    ready = span.start_ns if span.ready_ns is None else span.ready_ns
    return min(max(ready, span.start_ns), span.end_ns)


def _kind(span: Span) -> int:
    """Return a comm span's index in `KINDS`: "exposed" in a compute lane, otherwise "moving"."""
    return NUMBER["moving" if span.lane == "comm" else "exposed"]


def _name(span: Span) -> str:
    """Return the name shown for a span; a backward's name includes the gradient it computed."""
    if "bucket" in span.args:
        return f"{span.name} b{span.args['bucket']}"
    if "group_desc" in span.args:
        return f"{span.name} of group {span.args['group_desc']}"
    gradient = span.args.get("gradient")
    return f"{span.name} of {gradient}" if gradient else span.name
