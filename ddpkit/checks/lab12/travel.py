"""Lab 12: what traces tell of the bytes that a rank sends, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ddpkit.checks.lab12.on_ranks import BACKWARD, FORWARD
from ddpkit.exercises.ranks import Did, Looks, within
from ddpkit.trace import Span, Trace

# What a rank sends in a ring of n ranks, in n-ths of what is counted that it hands in.
PARTS: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "reduce_scatter_tensor": lambda n: n - 1,
    "all_to_all_single": lambda n: n - 1,
    "all_gather": lambda n: n * (n - 1),
    "all_gather_into_tensor": lambda n: n * (n - 1),
    "reduce_scatter": lambda n: n * (n - 1),  # of a list, one tensor is counted
    "all_to_all": lambda n: n - 1,
    "scatter": lambda n: n * (n - 1),  # the root's; here too
}


def sent(trace: Trace, rank: int, phase: str) -> int:
    """Bytes that a rank sends between the beginning and the end of its spans of this name.

    Messages count as they are, and a collective as a ring sends it: a broadcast and a reduction
    are handed on from rank to rank, until the last one has it.
    """
    return sum(_sent(one, trace.world_size) for one in within(trace.of(rank), phase))


def _sent(span: Span, world_size: int) -> int:
    if span.is_send:
        return span.bytes
    n = int(span.args.get("group_size", world_size))
    if not span.is_collective or n == 1 or _only_takes(span, n, world_size):
        return 0
    parts = PARTS.get(span.name.removesuffix("_coalesced"))
    return span.bytes if parts is None else -(-span.bytes * parts(n) // n)


def _only_takes(span: Span, n: int, world_size: int) -> bool:
    """Whether the rank has nothing to send: by the root, of a collective that has one."""
    root = span.args.get("root")
    if span.name == "scatter":
        return span.rank != root
    if span.name == "broadcast":  # of a part of the ranks it is not known who comes last
        return n == world_size and (span.rank + 1) % n == root
    return span.rank == root


def few(most: int, did: Did) -> bool:
    """Whether the messages of a chain of ranks need so many rounds at most, both ways together."""
    return isinstance(did.rounds, int) and did.rounds <= most


def _by_rank(phase: str, did: Did) -> list[int]:
    return [sent(did.trace, rank, phase) for rank in did.trace.ranks]


SENT: Looks = {  # bytes by rank
    "sent forward": partial(_by_rank, FORWARD),
    "sent backward": partial(_by_rank, BACKWARD),
}
