"""Which operations of different ranks belong together, and since when all of them were in.

A rank alone knows when it posted an operation and when it was done. Only the spans of all ranks
together say how much of that time it waited for a slower peer, and how much bytes were moving.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpkit.trace.span import Span


def collectives(spans: Iterable[Span]) -> list[list[Span]]:
    """The collectives, each as the spans of its ranks. Those without ``seq`` are left out."""
    together: dict[tuple[str, str, int], list[Span]] = defaultdict(list)
    for span in spans:
        if span.seq is not None and span.is_collective:
            together[span.group, span.name, span.seq].append(span)
    return list(together.values())


def messages(spans: Iterable[Span]) -> list[tuple[Span, Span]]:
    """(send, recv) pairs: messages of one group, source, destination and tag keep their order.

    By their number, ``seq``, where they have one: the first of them may have been left out. Pairs
    are in the order in which they were sent; of those sent at one time, in the order of the spans.
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
    """The spans, in their order, with ``ready_ns`` filled in where the peers are known.

    It stays None where a peer is missing (no partner, or fewer ranks than ``args["group_size"]``),
    and where the operation was over before its last peer came: a buffered send or the root of a
    broadcast waits for nobody.
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
