"""From spans to bars: which lane each goes in, and how many a screen can show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush

from ddpkit.trace import Span


@dataclass(frozen=True, slots=True)
class Bar:
    """A rectangle of the timeline. Times in ns since the picture's left edge."""

    start: int
    end: int
    kind: str  # a key of `style.FACE`, "overlap" or "exposed"
    texts: tuple[str, ...] = ()  # what may be written on it: the first that fits
    count: int = 1  # how many spans it stands for


Rough = tuple[int, int, str, tuple[str, ...]]  # start, end, kind, texts of a bar, before merging


def assign_lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Spread spans over as few lanes as possible, so that no two in a lane overlap in time."""
    lanes: list[list[Span]] = []
    busy: list[tuple[int, int]] = []  # (free again at, lane)
    free: list[int] = []
    for span in sorted(spans, key=lambda span: (span.start_ns, span.end_ns)):
        while busy and busy[0][0] <= span.start_ns:
            heappush(free, heappop(busy)[1])
        if not free:
            heappush(free, len(lanes))
            lanes.append([])
        lane = heappop(free)  # the topmost: operations in sequence stay in one line
        lanes[lane].append(span)
        heappush(busy, (span.end_ns, lane))
    return lanes


def merge_small(bars: Iterable[Rough], pixel_ns: float, least: float = 0.0) -> list[Bar]:
    """Join bars that are too small to be seen apart, so that 100,000 spans draw like 1,000.

    Bars under half a pixel in the same pixel become one bar, of the kind that fills most of it, or
    none if all together fill less than the fraction ``least`` of the pixel. Such bars of one kind
    side by side become one bar again. Numbers never come from bars.
    """
    drawn: list[Bar] = []
    small: list[Rough] = []  # of one pixel
    half, next_pixel = pixel_ns / 2, 0.0
    for bar in bars:
        is_small = bar[1] - bar[0] < half
        if small and not (is_small and bar[0] < next_pixel):
            _append(drawn, small, pixel_ns, least)
            small = []
        if not is_small:
            drawn.append(Bar(*bar))
        else:
            if not small:
                next_pixel = (bar[0] // pixel_ns + 1) * pixel_ns
            small.append(bar)
    _append(drawn, small, pixel_ns, least)
    return drawn


def _append(drawn: list[Bar], small: list[Rough], pixel_ns: float, least: float) -> None:
    """Add the small bars of one pixel to what is drawn, as one bar."""
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


def label_runs(bars: Sequence[Bar], names: Mapping[str, tuple[str, ...]], gap: float) -> list[Bar]:
    """One label for neighbouring bars of one kind: an invisible bar that carries ``names[kind]``.

    A run ends at a bar of another kind and at a gap wider than ``gap`` ns.
    """
    runs: list[Bar] = []
    previous = ""
    for bar in bars:
        goes_on = runs and bar.kind == previous and bar.start - runs[-1].end <= gap
        previous = bar.kind
        if bar.kind not in names:
            continue
        if goes_on:
            end = max(runs[-1].end, bar.end)
            runs[-1] = replace(runs[-1], end=end, count=runs[-1].count + bar.count)
        else:
            runs.append(replace(bar, texts=names[bar.kind]))
    return runs
