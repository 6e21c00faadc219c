"""Lab 12: what traces tell of the bytes that a rank sends, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ddpkit.checks.lab12.on_ranks import BACKWARD, FORWARD
from ddpkit.exercises.ranks import Did, Looks
from ddpkit.trace import Span, Trace

# What a rank sends in a ring of n ranks, as a multiple of what it hands in, times n.
SENT_TIMES_N: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "all_gather": lambda n: n * (n - 1),
    "reduce_scatter_tensor": lambda n: n - 1,
    "reduce_scatter": lambda n: n * (n - 1),  # of a list, one tensor is counted
}


def sent(trace: Trace, rank: int, phase: str) -> int:
    """Bytes that a rank sends between the beginning and the end of its spans of this name.

    Messages count as they are; a collective as a ring sends it, a broadcast and its like once.
    """
    spans = trace.of(rank)
    windows = [(one.start_ns, one.end_ns) for one in spans if one.name == phase]
    inside = [one for one in spans if any(a <= one.start_ns < b for a, b in windows)]
    return sum(_sent(one, trace.world_size) for one in inside)


def _sent(span: Span, n: int) -> int:
    if span.is_send:
        return span.bytes
    if not span.is_collective or n == 1:
        return 0
    times = next((f for name, f in SENT_TIMES_N.items() if span.name.startswith(name)), None)
    return span.bytes if times is None else -(-span.bytes * times(n) // n)


def few(most: int, did: Did) -> bool:
    """Whether the messages of a chain of ranks need so many rounds at most, both ways together."""
    return isinstance(did.rounds, int) and did.rounds <= most


def _by_rank(phase: str, did: Did) -> list[int]:
    return [sent(did.trace, rank, phase) for rank in did.trace.ranks]


SENT: Looks = {  # bytes by rank
    "sent forward": partial(_by_rank, FORWARD),
    "sent backward": partial(_by_rank, BACKWARD),
}
