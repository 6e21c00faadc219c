"""Bars of spans: the lane of each bar, and one bar for spans that are too small to see."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from ddpkit.trace import Span
from ddpkit.trace.intervals import Interval, subtract


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of the timeline. Times in ns since the picture's left edge."""

    start: int
    end: int
    kind: str  # a key of `style.FACE`, "overlap" or "exposed"
    # texts that may be written on the bar, best first: the first that fits is written
    texts: tuple[str, ...] = ()
    count: int = 1  # the number of spans that the bar stands for


Rough = tuple[int, int, str, tuple[str, ...]]  # start, end, kind, texts of a bar, before merging


def assign_lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Spread spans over as few lanes as possible, so that no two spans in a lane overlap in time.

    An operation occupies its lane until the operation is over for its rank (`Span.over_ns`).
    """
    lanes: list[list[Span]] = []
    busy: list[tuple[int, int]] = []  # (time when the lane becomes free, lane)
    free: list[int] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, span.end_ns)):
        while busy and busy[0][0] <= span.start_ns:
            heappush(free, heappop(busy)[1])
        if not free:
            heappush(free, len(lanes))
            lanes.append([])
        lane = heappop(free)  # the topmost free lane: operations in sequence stay in one line
        lanes[lane].append(span)
        heappush(busy, (span.over_ns, lane))
    return lanes


def merge_small(bars: Iterable[Rough], pixel_ns: float, least: float = 0.0) -> list[Bar]:
    """Join bars that are too small to be seen apart, so that 100,000 spans make far fewer bars.

    All bars of one pixel that are shorter than half a pixel become one bar. This bar has the kind
    that fills most of the pixel. If the small bars together fill less than the fraction ``least``
    of the pixel, there is no bar. Neighbouring joined bars of one kind are joined again. Only
    drawings use joined bars: all numbers come from spans.
    """
    drawn: list[Bar] = []
    small: list[Rough] = []  # small bars of one pixel
    half, next_pixel = pixel_ns / 2, 0.0
    for bar in bars:
        if bar[1] - bar[0] < half:
            if bar[0] < next_pixel:
                small.append(bar)
                continue
            _append(drawn, small, pixel_ns, least)
            small, next_pixel = [bar], (bar[0] // pixel_ns + 1) * pixel_ns
        else:
            _append(drawn, small, pixel_ns, least)
            drawn.append(Bar(*bar))
            small, next_pixel = [], 0.0
    _append(drawn, small, pixel_ns, least)
    return drawn


def _append(drawn: list[Bar], small: list[Rough], pixel_ns: float, least: float) -> None:
    """Add the small bars of one pixel to the drawn bars, as one bar."""
    if len(small) < 2:
        drawn += (Bar(*bar) for bar in small)
        return
    filled: dict[str, int] = {}
    for start, end, kind, _ in small:
        filled[kind] = filled.get(kind, 0) + end - start
    if sum(filled.values()) < least * pixel_ns:
        return
    kind = max(filled, key=lambda kind: filled[kind])
    start, end = small[0][0], max(bar[1] for bar in small)
    last = drawn[-1] if drawn else None
    if last and last.count > 1 and last.kind == kind and start - last.end < pixel_ns / 2:
        drawn[-1] = Bar(last.start, max(end, last.end), kind, (), last.count + len(small))
    else:
        drawn.append(Bar(start, end, kind, (), len(small)))


def nearby(intervals: Iterable[Interval], gap: float) -> list[tuple[int, int, int]]:
    """Join sorted intervals with gaps of at most ``gap`` ns; return (start, end, filled ns) each.

    The intervals fill at least four fifths of a joined interval, so the drawing does not mislead.
    """
    runs: list[tuple[int, int, int]] = []
    for start, end in intervals:
        if runs and start - runs[-1][1] <= gap:
            first, _, filled = runs[-1]
            if 5 * (filled + end - start) >= 4 * (end - first):
                runs[-1] = first, end, filled + end - start
                continue
        runs.append((start, end, end - start))
    return runs


def label_runs(
    bars: Sequence[Bar],
    names: Mapping[str, tuple[str, ...]],
    gap: float,
    covered: Sequence[Bar],
    least: float = 0.0,
) -> list[Bar]:
    """Return the labels of a lane; a label is a bar with texts.

    A run of neighbouring bars of one kind gets one label, if ``names`` has texts for the kind. A
    run ends at a bar of another kind and at a gap wider than ``gap`` ns. A bar of a kind that is
    not in ``names`` keeps its own texts. Bars in ``covered`` hide parts of a run: the label is
    placed on the longest visible piece, if this piece is longer than ``least`` ns.
    """
    runs: list[Bar] = []
    previous = ""
    for bar in bars:
        if bar.kind in names and bar.kind == previous and bar.start - runs[-1].end <= gap:
            end = max(runs[-1].end, bar.end)
            runs[-1] = replace(runs[-1], end=end, count=runs[-1].count + bar.count)
        elif bar.kind in names or bar.texts:
            runs.append(replace(bar, texts=names.get(bar.kind, bar.texts)))
        previous = bar.kind
    hidden = [(bar.start, bar.end) for bar in covered]
    long = (run for run in runs if run.end - run.start > least)
    pieces = (piece for run in long for piece in _in_sight(run, hidden))
    return [piece for piece in pieces if piece.end - piece.start > least]


def _in_sight(bar: Bar, hidden: list[Interval]) -> list[Bar]:
    pieces = subtract([(bar.start, bar.end)], _near(hidden, bar))
    if not pieces:
        return []
    start, end = max(pieces, key=lambda piece: piece[1] - piece[0])
    return [replace(bar, start=start, end=end)]


def _near(hidden: list[Interval], bar: Bar) -> list[Interval]:
    """Return the intervals that may touch the bar; ``hidden`` is sorted."""
    first = max(0, bisect_left(hidden, (bar.start, 0)) - 1)
    return hidden[first : bisect_left(hidden, (bar.end, 0))]
