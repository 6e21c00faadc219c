"""Finds the causes of deadlocks and mismatches, by pure functions of the ranks' calls.

`explain` makes texts from the causes; programs read them as fields of the errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from ddpkit.errors import DeadlockCause, MismatchKind
from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Raised

Needs = Mapping[int, Collection[int]]  # waiting rank -> ranks that must still make their part


def deadlock_cause(
    calls: Mapping[int, Call], needs: Needs, returned: Collection[int]
) -> DeadlockCause:
    """Return the reason why no waiting rank can continue; `calls` are the calls in progress."""
    if left_alone(calls, needs, returned):
        return "returned"
    if lost_message(calls, needs, returned) is not None:
        return "lost"
    if any(call.keys for call in calls.values()):
        return "key"
    circle = cycle(needs)
    if not circle:
        return "nothing"
    if len(circle) == 1:
        return "itself"
    ops = {calls[rank].op for rank in circle}
    if ops == {"recv"}:
        return "receive"
    return "send" if ops == {"send"} else "cycle"


def left_alone(
    calls: Mapping[int, Call], needs: Needs, returned: Collection[int]
) -> dict[int, set[int]]:
    """Return, for each rank that waits for returned ranks, the returned ranks.

    A receive from any rank counts only if all ranks that could send have returned.
    """
    alone = {}
    for rank, others in sorted(needs.items()):
        gone = set(others) & set(returned)
        if calls[rank].keys:  # any process could set the key
            continue
        if gone and (not from_anybody(calls[rank]) or gone == set(others)):
            alone[rank] = gone
    return alone


def from_anybody(call: Call) -> bool:
    """True if the call receives the first message that arrives from any rank."""
    return call.op == "recv" and call.peer is None


def unanswered(calls: Mapping[int, Call]) -> tuple[int, list[int]] | None:
    """Return a rank that receives from any rank, and the ranks that wait for its messages."""
    for server, call in sorted(calls.items()):
        if from_anybody(call):
            askers = [
                rank for rank, each in calls.items() if each.op == "recv" and each.peer == server
            ]
            if askers:
                return server, sorted(askers)
    return None


def lost_message(calls: Mapping[int, Call], needs: Needs, returned: Collection[int]) -> int | None:
    """Return a rank that waits for a message posted by a rank that has returned, or None."""
    for rank, call in sorted(calls.items()):
        if call.op == "recv" and not needs.get(rank) and call.peer in returned:
            return rank
    return None


def cycle(needs: Needs) -> list[int]:
    """Return a shortest cycle in which each rank waits for the next; [] if there is no cycle."""
    best: list[int] = []
    for start in sorted(needs):
        paths = [[start]]
        seen: set[int] = set()
        while paths:
            path = paths.pop(0)
            for other in sorted(needs.get(path[-1], ())):
                if other == start and (not best or len(path) < len(best)):
                    best = path
                elif other not in seen and other != start:
                    seen.add(other)
                    paths.append([*path, other])
    return best


def difference(one: Call, other: Call) -> MismatchKind | None:
    """Return the difference between two ranks' calls of one collective; None if the calls match."""
    if one.op != other.op:
        return "operation"
    if one.root != other.root:
        return "root"
    if one.dtype != other.dtype:
        return "dtype"
    if not one.op.startswith("all_to_all") and size(one) != size(other):
        return "shape"
    if one.reduce != other.reduce:
        return "reduction"
    return None if same_layout(one, other) else "strides"


def misfit(calls: Mapping[int, Call], rank: int) -> tuple[int, int] | None:
    """Return two ranks that expect different sizes of one part of an all-to-all, or None."""
    for other in sorted(calls):
        for src, dst in ((rank, other), (other, rank)):
            sent, taken = calls[src], calls[dst]
            if not (sent.sends and taken.takes):
                continue
            order = sent.members or range(len(sent.sends))
            if sent.sends[order.index(dst)] != taken.takes[order.index(src)]:
                return src, dst
    return None


def fits(sent: Call, received: Call) -> bool:
    """True if a message matches the receiver's tensor: size, dtype and memory layout."""
    same_numbers = size(sent) == size(received) and sent.dtype == received.dtype
    return same_numbers and same_layout(sent, received)


def same_layout(one: Call, other: Call) -> bool:
    """True if two tensors have the same memory layout; also True if their shapes differ."""
    return one.shape != other.shape or one.strides == other.strides


def size(call: Call) -> int:
    """Return the number of elements of a call's tensor."""
    return prod(call.shape)


def alike(raised: Mapping[int, Raised]) -> list[int]:
    """Return the lowest rank, and all ranks with an exception of the same type and line."""
    first = _kind(raised[min(raised)])
    return sorted(rank for rank, other in raised.items() if _kind(other) == first)


def _kind(raised: Raised) -> tuple[object, ...]:
    return raised.type, raised.frames[-1:]
