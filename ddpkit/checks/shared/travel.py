"""The bytes that a rank sends, forward and backward, according to the trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ddpkit.checks.shared.functions import BACKWARD, FORWARD
from ddpkit.exercises.ranks import Did, Looks, within
from ddpkit.trace import Span, Trace

# The bytes that a rank sends in a ring of n ranks, as n-ths of the bytes in the trace.
PARTS: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "reduce_scatter_tensor": lambda n: n - 1,
    "all_to_all_single": lambda n: n - 1,
    "all_gather": lambda n: n * (n - 1),
    "all_gather_into_tensor": lambda n: n * (n - 1),
    "reduce_scatter": lambda n: n * (n - 1),  # the trace counts one tensor of the list
    "all_to_all": lambda n: n - 1,
    "scatter": lambda n: n * (n - 1),  # exact for the root; used for every rank
}


def sent(trace: Trace, rank: int, phase: str) -> int:
    """Count the bytes that a rank sends during the rank's spans with the name `phase`.

    A message counts as recorded. A collective counts as the messages of a ring; a broadcast or a
    reduction goes from rank to rank, up to the last rank.
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
    """True if the collective has a root, and this rank only receives."""
    root = span.args.get("root")
    if span.name == "scatter":
        return span.rank != root
    if span.name == "broadcast":  # the last rank of a smaller group is unknown
        return n == world_size and (span.rank + 1) % n == root
    return span.rank == root


def few(most: int, did: Did) -> bool:
    """True if messages along a chain of ranks, in both directions, need at most `most` rounds."""
    return isinstance(did.rounds, int) and did.rounds <= most


def _by_rank(phase: str, did: Did) -> list[int]:
    return [sent(did.trace, rank, phase) for rank in did.trace.ranks]


SENT: Looks = {  # bytes by rank
    "sent forward": partial(_by_rank, FORWARD),
    "sent backward": partial(_by_rank, BACKWARD),
}
