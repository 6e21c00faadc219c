"""`RankRow`: the work of one rank as bars; `RowBuilder` makes the rows of a trace. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter

from ddpkit.simulate.step.pipeline import op_of
from ddpkit.trace import (
    Breakdown,
    Span,
    Trace,
    collectives,
    died_ns,
    messages,
    name_of,
)
from ddpkit.trace.copies import CopyTotal, copy_totals
from ddpkit.trace.intervals import Interval, intersect, total
from ddpkit.trace.queues import COMPUTE as DEFAULT_STREAM
from ddpkit.trace.queues import by_queue, has_host
from ddpkit.trace.waits import last_in, waiting
from ddpkit.view.drawing import style, words
from ddpkit.view.drawing.lanes import Bar, Rough, assign_lanes, label_runs, merge_small, nearby

PIXELS = 1020  # width of the drawn time axis, which decides how small a bar can be
LABEL_PIXELS = 12  # narrower bars carry no text
GAP_PIXELS = 3  # bars of overlap or of exposed communication with smaller gaps are joined
NAMES = {
    "forward": ("forward", "fwd"),
    "backward": ("backward", "bwd"),
    "optimizer": ("optimizer", "opt"),
}


@dataclass(frozen=True, slots=True)
class RankRow:
    """The work of one rank. Times in ns since the picture's left edge."""

    rank: int
    name: str  # "rank 0", or the name that the reader gave the rank
    window: Interval
    compute: list[Bar]
    labels: list[Bar]  # texts for the compute bars, often one text for several bars
    lanes: list[list[Bar]]  # communication; operations that overlap in time lie in different lanes
    overlap: list[Bar]
    exposed: list[Bar]
    breakdown: Breakdown
    waiting_ns: int  # time during which an operation of the rank waited for a peer
    died: int | None = None  # time of death, if in the window
    copies: Sequence[Bar] = ()  # copies between host and device, or on the device
    copied: Mapping[str, CopyTotal] = field(default_factory=dict)  # direction -> total
    more: Mapping[str, Sequence[Bar]] = field(default_factory=dict)  # the host and side streams


class RowBuilder:
    """A builder of the rows of a trace, one for each rank."""

    def __init__(self, trace: Trace, whole: Trace, pixels: int = PIXELS) -> None:
        """Prepare the rows of ``trace``, which may be a step of the trace ``whole``.

        A step may have only the send or only the recv of a message; ``whole`` has both.
        """
        self.trace = trace
        self.origin = trace.start_ns
        self.length = trace.end_ns - trace.start_ns
        self.pixel_ns = max(self.length / pixels, 1e-3)
        self.label_ns = LABEL_PIXELS * self.pixel_ns
        self.comm = _comm(trace)
        every = self.comm if whole is trace else _comm(whole)
        self.collectives = {span.name for span in self.comm if span.is_collective}
        self.pairs = messages(every)
        self.last_in = last_in([*collectives(every), *self.pairs])

    def row(self, rank: int) -> RankRow:
        """Return the row of one rank."""
        window = start, end = self.trace.window_of(rank)
        activity = self.trace.activity(rank)
        comm, copies = self.trace.row(rank, "comm"), self.trace.row(rank, "copy")
        compute = self._compute_bars(self.trace.row(rank, "compute"), window)
        exposed = self._within(activity.exposed, "exposed")
        labels = self._labels(compute, exposed)
        waits = map(waiting, comm)
        died = died_ns(self.trace.facts, rank)
        return RankRow(
            rank,
            name_of(self.trace.facts, rank),
            (start - self.origin, end - self.origin) if start < end else (0, 0),
            compute,
            labels,
            self._lanes(comm, window),
            self._within(activity.overlapped, "overlap"),
            exposed,
            Breakdown.of(activity),
            total(intersect(waits, [window])),
            died - self.origin if died is not None and start <= died <= end else None,
            self._copy_bars(copies, window),
            copy_totals(copies, window, [*activity.compute, *activity.comm]),
            self._queue_bars(rank, window),
        )

    def _queue_bars(self, rank: int, window: Interval) -> dict[str, list[Bar]]:
        """Return the bars of a device's host and side streams; nested spans have no bar."""
        found: dict[str, list[Bar]] = {}
        if not has_host(self.trace, rank):
            return found
        spans = [*self.trace.row(rank, "host"), *self.trace.row(rank, "compute")]
        for name, each in by_queue(spans).items():
            if name == DEFAULT_STREAM:
                continue
            kind, rough, end = "span" if name.startswith("stream") else "host", list[Rough](), 0
            for span in sorted(each, key=lambda span: (span.start_ns, -span.end_ns)):
                if span.end_ns > end:
                    start, end = max(end, span.start_ns), span.end_ns
                    rough += self._bar(start, end, kind, _shortened(span.name), window)
            found[name] = merge_small(rough, self.pixel_ns)
        return found

    def _copy_bars(self, spans: Iterable[Span], window: Interval) -> list[Bar]:
        """Return bars of the copies of a GPU, in one row."""
        rough: list[Rough] = []
        for span in sorted(spans, key=attrgetter("start_ns")):
            rough += self._bar(span.start_ns, span.end_ns, "copy", _copied(span), window)
        return merge_small(rough, self.pixel_ns)

    def _compute_bars(self, spans: Iterable[Span], window: Interval) -> list[Bar]:
        """Return the bars of compute, outer spans before inner spans, which are drawn on top."""
        own = [span for span in spans if span.kind == "span"]
        # if times are equal, a module's span comes before a span of own code inside the module
        ordered = [span for span in spans if span.kind != "span"] + own
        ordered.sort(key=attrgetter("end_ns"), reverse=True)
        ordered.sort(key=attrgetter("start_ns"))
        at = self.origin
        rough: list[Rough] = [
            (s.start_ns - at, s.end_ns - at, s.kind if s.kind != "span" else _kind(s), ())
            for s in ordered
        ]
        if own:
            self._name_own(ordered, rough)
        low, high = window[0] - at, window[1] - at
        if rough and (rough[0][0] < low or max(map(itemgetter(1), rough)) > high):
            rough = [
                (max(start, low), min(end, high), kind, texts)
                for start, end, kind, texts in rough
                if start <= high and end >= low
            ]
        return merge_small(rough, self.pixel_ns)

    def _name_own(self, ordered: Sequence[Span], rough: list[Rough]) -> None:
        """Write the names of the user's spans on their bars, unless later bars cover the bar."""
        after, scanned = self.length, len(rough)  # `after`: start of the next bar drawn on top
        for n in reversed([n for n, span in enumerate(ordered) if span.kind == "span"]):
            seen = (start for start, end, *_ in rough[n + 1 : scanned] if start < end)
            after, scanned = next(seen, after), n + 1
            if rough[n][1] <= after:
                rough[n] = (*rough[n][:3], _shortened(ordered[n].name))

    def _labels(self, compute: Sequence[Bar], exposed: Sequence[Bar]) -> list[Bar]:
        """Return the labels of compute bars; bars of micro-batches cover other bars' labels."""
        micro = [bar for bar in compute if is_micro(bar.kind)]
        others = [bar for bar in compute if not is_micro(bar.kind)]
        covered = sorted([*exposed, *micro], key=attrgetter("start"))
        gap, least = self.length / 50, self.label_ns
        named = label_runs(others, NAMES, gap, covered, least)
        return named + label_runs(micro, NAMES, gap, exposed, least)

    def _lanes(self, spans: Sequence[Span], window: Interval) -> list[list[Bar]]:
        number = {id(span): n for n, span in enumerate(spans)}
        lanes = []
        for inside in assign_lanes(spans):
            rough: list[Rough] = []
            for span in inside:
                rough += self._comm_bars(span, number[id(span)], window)
            lanes.append(merge_small(rough, self.pixel_ns))
        return lanes

    def _comm_bars(self, span: Span, number: int, window: Interval) -> list[Rough]:
        """Return the bars of a communication: light while it waits for peers, then solid.

        If the communication ends before the rank collects the result, a thin bar fills the time
        until the rank collects the result.
        """
        start, ready = waiting(span)
        names: tuple[str, ...] = ()
        waits: tuple[str, ...] = ()
        if span.end_ns - start > self.label_ns:
            names = _names(span, number, one_kind=len(self.collectives) == 1)
            peer = self.last_in.get(id(span), span.rank)
            if peer != span.rank:
                name = name_of(self.trace.facts, peer)
                waits = f"waits for {name}", f"waits for {name.removeprefix('rank ')}", "waits"
            if waits and span.is_collective:
                waits = (f"{names[-1]} {waits[0]}", *waits)
        light = self._bar(start, ready, "waiting", waits, window) if start < ready else []
        done = self._bar(span.end_ns, span.over_ns, "done", (), window)
        moving = self._bar(ready, span.end_ns, "moving", names, window)
        return light + moving + (done if span.over_ns > span.end_ns else [])

    def _within(self, intervals: Iterable[Interval], kind: str) -> list[Bar]:
        """Return the bars of overlap, or of exposed communication.

        A bar of one pixel is left out if less than half of the pixel is filled. Otherwise the
        picture would show more overlap than there is.
        """
        rough: list[Rough] = []
        for start, end, ns in nearby(intervals, GAP_PIXELS * self.pixel_ns):
            texts = (words.ms(ns),) if end - start > 2 * self.label_ns else ()
            rough.append((start - self.origin, end - self.origin, kind, texts))
        return merge_small(rough, self.pixel_ns, least=0.5)

    def _bar(
        self, start: int, end: int, kind: str, texts: tuple[str, ...], window: Interval
    ) -> list[Rough]:
        """Return a list with the part of a bar inside the window; [] if the bar lies outside."""
        start, end = max(start, window[0]), min(end, window[1])
        if start > end:
            return []
        texts = texts if end - start > self.label_ns else ()
        return [(start - self.origin, end - self.origin, kind, texts)]


def _comm(trace: Trace) -> list[Span]:
    return [span for span in trace.spans if span.kind == "comm"]


def _names(span: Span, number: int, *, one_kind: bool) -> tuple[str, ...]:
    """Return the labels of a communication, the best first; the first that fits is drawn.

    If all collectives have one name, the name alone is no label, because only the number tells the
    collectives apart.
    """
    if span.is_send or span.is_recv:
        arrow = "→" if span.is_send else "←"
        peer = "any" if span.peer is None else str(span.peer)
        return f"{span.name} {arrow}{peer}", f"{arrow}{peer}"
    if "bucket" in span.args:
        return f"{span.name} b{span.args['bucket']}", f"b{span.args['bucket']}"
    if "group_desc" in span.args:
        group = str(span.args["group_desc"])
        short = group.partition(" [")[0]
        return f"{span.name} of group {group}", f"{span.name} {short}", short
    if one_kind:
        return f"{span.name} #{number}", f"#{number}"
    return f"{span.name} #{number}", span.name, f"#{number}"


def _copied(span: Span) -> tuple[str, ...]:
    """Return the labels of a copy, the longest first: "host→device", "h→d"."""
    ends = span.name.split("→")
    return (span.name, "→".join(end[:1] for end in ends)) if len(ends) > 1 else (span.name,)


def is_micro(kind: str) -> bool:
    """Return True if a bar of this kind is an operation on a micro-batch."""
    return kind[1:].isdigit()


def _kind(span: Span) -> str:
    """Return the kind of a compute bar; each micro-batch has its own kinds and colours."""
    op = op_of(span.name) if span.kind == "span" else None
    return span.kind if op is None else f"{op[0]}{op[1] % len(style.TINTS)}"


def _shortened(name: str) -> tuple[str, ...]:
    return (name, *(f"{name[:keep].rstrip()}…" for keep in (12, 8, 5) if keep < len(name)))
