"""The innermost span at each moment, for spans that lie inside each other."""

import heapq
import itertools
from collections.abc import Iterable, Iterator

from ddpkit.trace.intervals import Interval, union
from ddpkit.trace.span import Span


def innermost(spans: Iterable[Span], inside: Iterable[Interval]) -> Iterator[tuple[int, int, Span]]:
    """Yield the spans cut into pieces (start, end, span) that do not overlap, in time order.

    Only times in the set ``inside`` are kept. If several spans run at a moment, the piece belongs
    to the span that began last; if several began last at the same time, to the shortest of these.
    """
    pieces = list(_pieces(spans))
    at = 0
    for start, end in union(inside):
        while at < len(pieces) and pieces[at][1] <= start:
            at += 1
        k = at  # a piece may reach into the next interval, so `at` does not advance
        while k < len(pieces) and pieces[k][0] < end:
            first, last, span = pieces[k]
            yield max(first, start), min(last, end), span
            k += 1
        at = max(at, k - 1)


def _pieces(spans: Iterable[Span]) -> Iterator[tuple[int, int, Span]]:
    """Yield the pieces between the starts and ends of spans, in time order.

    A heap holds the running spans, with the innermost span on top.
    """
    waiting = sorted(spans, key=lambda span: span.start_ns)
    edges = sorted({edge for span in waiting for edge in (span.start_ns, span.end_ns)})
    running: list[tuple[int, int, int, Span]] = []  # (-start, end, tie, span)
    at = 0
    piece: tuple[int, int, Span] | None = None
    for start, end in itertools.pairwise(edges):
        while at < len(waiting) and waiting[at].start_ns <= start:
            span = waiting[at]
            heapq.heappush(running, (-span.start_ns, span.end_ns, at, span))
            at += 1
        while running and running[0][1] <= start:
            heapq.heappop(running)
        if not running:
            continue
        span = running[0][3]
        if piece and piece[2] is span and piece[1] == start:
            piece = (piece[0], end, span)
            continue
        if piece:
            yield piece
        piece = (start, end, span)
    if piece:
        yield piece
