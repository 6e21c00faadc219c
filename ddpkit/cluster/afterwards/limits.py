"""The text about a wait longer than the timeout of a process group.

ddpkit never ends a wait by a timeout, but a real job would: torch's default is 10 minutes for NCCL
and 30 minutes for gloo, and init_process_group(timeout=) sets another limit. The trace has the
emulated times of all waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ddpkit.cluster.phrases import ranks, wrapped
from ddpkit.trace import Span, Trace, collectives, messages

NS = 1_000_000_000
GLOO = 1800.0  # gloo's default in seconds: a run from a notebook sets no other limit


def over_the_limit(trace: Trace, limits: Mapping[int, float]) -> str:
    """Return a text, "A real job would have ended: rank 1 waited 40 min for rank 0 ...", or "".

    limits  the timeout of each rank's default group, in seconds
    """
    longest: tuple[float, Span, int] | None = None
    groups: Iterable[Iterable[Span]] = [*collectives(trace.spans), *messages(trace.spans)]
    for calls in groups:
        last = max(calls, key=lambda span: span.start_ns)
        for span in calls:
            seconds = (last.start_ns - _since(span)) / NS
            limit = limits.get(span.rank, GLOO)
            if seconds > limit and (longest is None or seconds > longest[0]):
                longest = seconds, span, last.rank
    if longest is None:
        return ""
    seconds, span, other = longest
    limit = limits.get(span.rank, GLOO)
    return wrapped(
        f"A real job would have ended here: {ranks([span.rank])} waited {_time(seconds)} for "
        f"{ranks([other])} in the {span.name} of line {span.args.get('line')}, and the process "
        f"group's timeout is {_time(limit)}. Give init_process_group a longer timeout=, or let "
        "all ranks wait less."
    )


def _since(span: Span) -> int:
    """Return the time in ns at which a call's wait began; the call's end if it has no wait."""
    if span.blocked_ns is None:
        return span.end_ns
    return max(span.start_ns, span.blocked_ns)


def _time(seconds: float) -> str:
    """Return a duration as text: "40 min", or "90 s"."""
    return f"{seconds / 60:.3g} min" if seconds >= 120 else f"{seconds:.3g} s"
