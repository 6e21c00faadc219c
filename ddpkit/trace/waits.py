"""The waits of ranks for each other, and their lengths."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from ddpkit.trace.intervals import Interval, intersect, total
from ddpkit.trace.span import Span


def waiting(span: Span) -> Interval:
    """Return the interval in which the operation waited for a peer; empty if no wait is known."""
    ready = span.start_ns if span.ready_ns is None else span.ready_ns
    return span.start_ns, min(max(ready, span.start_ns), span.end_ns)


def last_in(operations: Iterable[Sequence[Span]]) -> dict[int, int]:
    """Return, by the id of each span, the rank that was the last to post the span's operation.

    ``operations`` are the results of `peers.collectives` and `peers.messages`.
    """
    last: dict[int, int] = {}
    for members in operations:
        latest = max(members, key=lambda span: span.start_ns)
        last.update((id(span), latest.rank) for span in members)
    return last


def waits_between(
    comm: Iterable[Span], last: Mapping[int, int]
) -> dict[tuple[int, int], list[Interval]]:
    """Return the intervals in which one rank waited for another rank.

    The keys are pairs: the waiting rank, and the rank that was last.

    ``last`` is the result of `last_in`.
    """
    waits: dict[tuple[int, int], list[Interval]] = defaultdict(list)
    for span in comm:
        latest = last.get(id(span), span.rank)
        if latest != span.rank:
            waits[span.rank, latest].append(waiting(span))
    return waits


def waited_for(
    comm: Iterable[Span], last: Mapping[int, int], counted: Mapping[int, Sequence[Interval]]
) -> dict[int, int]:
    """Return, for each rank, the sum of the times for which other ranks waited for the rank, in ns.

    Only the waits in `operations` count, and only inside the waiting rank's times in ``counted``.
    ``last`` is the result of `last_in`.
    """
    totals: dict[int, int] = defaultdict(int)
    for (rank, latest), times in waits_between(comm, last).items():
        totals[latest] += total(intersect(times, counted[rank]))
    return totals
