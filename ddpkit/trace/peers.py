"""Matching of the spans of different ranks that belong to one operation.

One rank knows only when the rank posted an operation, and when the operation ended. With the spans
of all ranks, this time can be divided into the wait for the last peer's post, and the time in which
bytes moved.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpkit.trace.span import Span


def collectives(spans: Iterable[Span]) -> list[list[Span]]:
    """Return the spans of each collective, as lists; spans without ``seq`` are left out."""
    together: dict[tuple[str, str, int], list[Span]] = defaultdict(list)
    for span in spans:
        if span.seq is not None and span.is_collective:
            together[span.group, span.name, span.seq].append(span)
    return list(together.values())


def messages(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """Return the (send, recv) pairs of messages.

    Messages with the same group, source, destination and tag are paired in order. Messages with a
    number, ``seq``, are paired by number, because the first messages may have been left out. Pairs
    are in the order of their sends, and at equal times in the order of the spans.
    """
    spans = tuple(spans)
    posted: dict[tuple[object, ...], tuple[list[Span], list[Span]]] = defaultdict(lambda: ([], []))
    for span in spans:
        stream = (span.group, span.args.get("tag", 0), span.seq)
        if span.is_send:
            posted[*stream, span.rank, span.peer][0].append(span)
        elif span.is_recv:
            posted[*stream, span.peer, span.rank][1].append(span)
    pairs: list[tuple[Span, Span]] = []
    for sends, receives in posted.values():
        pairs += zip(sorted(sends, key=_posted), sorted(receives, key=_posted), strict=False)
    place = {id(span): n for n, span in enumerate(spans) if span.is_send}
    return sorted(pairs, key=lambda pair: (pair[0].start_ns, place[id(pair[0])]))


def match_peers(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the spans, in order, with ``ready_ns`` filled in if the peers are known.

    ``ready_ns`` stays None if a peer is missing (no partner, or fewer ranks than
    ``args["group_size"]``). ``ready_ns`` also stays None if the operation ended before the last
    peer's post: a buffered send and the root of a broadcast wait for no peer.
    """
    spans = tuple(spans)
    ready: dict[int, int] = {}  # id(span) -> ns
    for members in (*collectives(spans), *messages(spans)):
        if _complete(members):
            latest = max(member.start_ns for member in members)
            ready.update((id(member), latest) for member in members if latest <= member.end_ns)
    return tuple(
        replace(span, ready_ns=ready[id(span)]) if id(span) in ready else span for span in spans
    )


def _complete(members: Sequence[Span]) -> bool:
    facts = members[0].args
    if members[0].is_send or "group_size" not in facts:
        return True
    size = int(facts["group_size"]) - int(facts.get("absent", 0))
    return len({member.rank for member in members}) == size


def _posted(span: Span) -> int:
    return span.start_ns
