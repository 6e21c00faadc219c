"""A test for barriers in which ranks receive from any rank.

If messages arrive in a different order than in the run, a rank may leave such a barrier too early.
"""

from __future__ import annotations

from collections import defaultdict, deque

from ddpkit.trace import Span, Trace

LUCK = "would be late"


def could_leave(trace: Trace) -> str:
    """Return a text about a rank that could leave the barrier before all ranks have entered.

    An example is "rank 0, if rank 1 would be late". The text is "nobody" if there is no such rank.
    Only a run with a receive from any rank is examined: without such a receive, the messages have a
    single possible order.
    """
    spans = [span for span in trace.spans if span.kind == "comm" and span.peer is not None]
    if not any("anybody" in span.args for span in spans):
        return "nobody"
    for late in trace.ranks:
        calls = {rank: deque[Span]() for rank in trace.ranks if rank != late}
        for span in sorted(spans, key=_moment):
            if span.rank != late:
                calls[span.rank].append(span)
        if ended := _ended(calls):
            return f"rank {min(ended)}, if rank {late} {LUCK}"
    return "nobody"


def _moment(span: Span) -> int:
    """Return the time, in ns, when the rank goes on: the start of a send, the end of a receive."""
    return span.start_ns if span.name == "send" else span.over_ns


def _ended(calls: dict[int, deque[Span]]) -> list[int]:
    """Return the ranks that can complete all their calls without messages from further ranks."""
    sent: dict[int, list[Span]] = defaultdict(list)  # messages under way, by receiver
    moved = True
    while moved:
        moved = False
        for rank, left in calls.items():
            while left and (left[0].name == "send" or _take(sent[rank], left[0])):
                call, moved = left.popleft(), True
                if call.name == "send" and call.peer is not None:
                    sent[call.peer].append(call)
    return [rank for rank, left in calls.items() if not left]


def _take(there: list[Span], recv: Span) -> bool:
    """Remove from `there` the first message that fits this receive; return False if none fits."""
    for send in there:
        is_it = "anybody" in recv.args or send.rank == recv.peer
        if is_it and send.args.get("tag") == recv.args.get("tag"):
            there.remove(send)
            return True
    return False
