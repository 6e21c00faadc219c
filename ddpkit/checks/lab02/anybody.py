"""Receives from anybody in a barrier: whose message comes first is luck, and may be bad luck."""

from __future__ import annotations

from collections import defaultdict, deque

from ddpkit.trace import Span, Trace

LUCK = "would be late"


def could_leave(trace: Trace) -> str:
    """Who comes to its end though another rank has not even begun; or "nobody".

    Only asked where a rank received from anybody, for only there another order of the messages is
    possible. "rank 0, if rank 1 would be late"
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
    """When a rank goes on: of a receive, when it has the message."""
    return span.start_ns if span.name == "send" else span.over_ns


def _ended(calls: dict[int, deque[Span]]) -> list[int]:
    """The ranks that come to the end of their calls, each as far as the messages allow it."""
    sent: dict[int, list[Span]] = defaultdict(list)  # to whom
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
    """Take a message that this receive may get, if there is one."""
    for send in there:
        is_it = "anybody" in recv.args or send.rank == recv.peer
        if is_it and send.args.get("tag") == recv.args.get("tag"):
            there.remove(send)
            return True
    return False
