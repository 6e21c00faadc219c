"""Lab 06: what traces tell of all-reduces."""

from __future__ import annotations

import math

from ddpkit.exercises.ranks import Did
from ddpkit.trace import Trace


def all_reduces(trace: Trace) -> list[int]:
    """The bytes of each all_reduce of rank 0, as they were posted."""
    spans = sorted(trace.of(0), key=lambda span: span.start_ns)
    return [span.bytes for span in spans if span.name == "all_reduce"]


def communicated(trace: Trace) -> list[int]:
    """The bytes of everything that rank 0 sends or takes part in, as it was posted."""
    spans = sorted(trace.of(0), key=lambda span: span.start_ns)
    return [span.bytes for span in spans if span.is_comm]


def before_it_sends(did: Did) -> list[int]:
    """When rank 0 posts all_reduces, those before its first message."""
    spans = did.trace.of(0)
    first = min((span.start_ns for span in spans if span.is_send), default=math.inf)
    return [one.start_ns for one in spans if one.name == "all_reduce" and one.start_ns < first]


def on_their_way(did: Did) -> int | str:
    """How many all_reduces rank 0 posts before it tells rank 1, which it does after all layers."""
    posted = before_it_sends(did)
    layers = [one.end_ns for one in did.trace.of(0) if one.kind == "backward" and one.bytes]
    if len(posted) > 1 and min(posted) > max(layers):
        return "all after the last gradient"
    return len(posted)
