"""The bytes that a rank sends, forward and backward, according to the trace."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ddpkit.checks.shared.functions import BACKWARD, FORWARD
from ddpkit.exercises.ranks import Did, Looks, within
from ddpkit.trace import Span, Trace

# n -> the bytes that a rank sends in a ring of n ranks, in units of 1/n of the trace's bytes.
PARTS: dict[str, Callable[[int], int]] = {
    "all_reduce": lambda n: 2 * (n - 1),
    "reduce_scatter_tensor": lambda n: n - 1,
    "all_to_all_single": lambda n: n - 1,
    "all_gather": lambda n: n * (n - 1),
    "all_gather_into_tensor": lambda n: n * (n - 1),
    "reduce_scatter": lambda n: n * (n - 1),  # the trace counts one tensor of the list
    "all_to_all": lambda n: n - 1,
    "scatter": lambda n: n * (n - 1),  # the root sends; all remaining ranks send nothing
}


def sent(trace: Trace, rank: int, phase: str) -> int:
    """Return the bytes that a rank sends during its spans with the name `phase`.

    A message counts with its recorded bytes. A collective counts with the bytes of the rank's
    messages in a ring. In a broadcast or a reduction, each rank sends the whole tensor once to the
    next rank, and only the last rank sends nothing.
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
    # The rank before the root is the last in a ring of all ranks. In a smaller group, the last rank
    # is unknown, so all ranks count as senders.
    if span.name == "broadcast":
        return n == world_size and (span.rank + 1) % n == root
    return span.rank == root


def few(most: int, did: Did) -> bool:
    """True if all messages of a call, forward and backward, take at most `most` rounds.

    False if the call mixes messages and collectives.
    """
    return isinstance(did.rounds, int) and did.rounds <= most


def _by_rank(phase: str, did: Did) -> list[int]:
    return [sent(did.trace, rank, phase) for rank in did.trace.ranks]


SENT: Looks = {  # the bytes that each rank sends
    "sent forward": partial(_by_rank, FORWARD),
    "sent backward": partial(_by_rank, BACKWARD),
}
