"""Lab 06: functions that read the all-reduces from a trace."""

from __future__ import annotations

import math

from ddpkit.exercises.ranks import Did
from ddpkit.trace import Trace


def all_reduces(trace: Trace) -> list[int]:
    """Return the bytes of each all_reduce of rank 0, ordered by start time."""
    spans = sorted(trace.of(0), key=lambda span: span.start_ns)
    return [span.bytes for span in spans if span.name == "all_reduce"]


def communicated(trace: Trace) -> list[int]:
    """Return the bytes of each message and collective of rank 0, ordered by start time."""
    spans = sorted(trace.of(0), key=lambda span: span.start_ns)
    return [span.bytes for span in spans if span.is_comm]


def before_it_sends(did: Did) -> list[int]:
    """Return the start times, in ns, of rank 0's all_reduces before its first send."""
    spans = did.trace.of(0)
    first = min((span.start_ns for span in spans if span.is_send), default=math.inf)
    return [one.start_ns for one in spans if one.name == "all_reduce" and one.start_ns < first]


def on_their_way(did: Did) -> int | str:
    """Return the number of all_reduces that rank 0 starts before its message to rank 1.

    Rank 0 sends this message at the end of its backward. Return a text if all these all_reduces
    start after the last gradient.
    """
    posted = before_it_sends(did)
    layers = [one.end_ns for one in did.trace.of(0) if one.kind == "backward" and one.bytes]
    if len(posted) > 1 and min(posted) > max(layers):
        return "all after the last gradient"
    return len(posted)
