"""Why ranks cannot go on, and in what their calls differ: pure functions from data to data.

`explain` puts the answers into words; programs read them as fields of the errors.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from ddpkit.errors import DeadlockCause, MismatchKind
from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Raised

Needs = Mapping[int, Collection[int]]  # the ranks that have not done their part, by waiting rank


def deadlock_cause(
    calls: Mapping[int, Call], needs: Needs, returned: Collection[int]
) -> DeadlockCause:
    """Why none of the waiting ranks can go on; `calls` are what they wait for."""
    if left_alone(calls, needs, returned):
        return "returned"
    if lost_message(calls, needs, returned) is not None:
        return "lost"
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
    """The ranks that wait for others which have returned, and for which.

    A receive from anybody waits for them only if all that could send have returned.
    """
    alone = {}
    for rank, others in sorted(needs.items()):
        gone = set(others) & set(returned)
        if gone and (not from_anybody(calls[rank]) or gone == set(others)):
            alone[rank] = gone
    return alone


def from_anybody(call: Call) -> bool:
    """Whether a call receives whatever message comes first."""
    return call.op == "recv" and call.peer is None


def unanswered(calls: Mapping[int, Call]) -> tuple[int, list[int]] | None:
    """A rank that waits for a message from anybody, and those that wait for a message from it."""
    for server, call in sorted(calls.items()):
        if from_anybody(call):
            askers = [
                rank for rank, each in calls.items() if each.op == "recv" and each.peer == server
            ]
            if askers:
                return server, sorted(askers)
    return None


def lost_message(calls: Mapping[int, Call], needs: Needs, returned: Collection[int]) -> int | None:
    """A rank that waits for a message whose sender has posted it and is gone; None without one."""
    for rank, call in sorted(calls.items()):
        if call.op == "recv" and not needs.get(rank) and call.peer in returned:
            return rank
    return None


def cycle(needs: Needs) -> list[int]:
    """A shortest circle of ranks that need each other, each the next; empty if there is none."""
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
    """What differs between two ranks' calls of one collective; None when they fit."""
    if one.op != other.op:
        return "operation"
    if one.root != other.root:
        return "root"
    if one.dtype != other.dtype:
        return "dtype"
    if not one.op.startswith("all_to_all") and size(one) != size(other):
        return "shape"
    return "reduction" if one.reduce != other.reduce else None


def misfit(calls: Mapping[int, Call], rank: int) -> tuple[int, int] | None:
    """Who sends whom more or less than that takes, in an all-to-all of `rank` and others."""
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
    """Whether a message fits the tensor that it is received into."""
    return size(sent) == size(received) and sent.dtype == received.dtype


def size(call: Call) -> int:
    """The number of elements of a call's tensor."""
    return prod(call.shape)


def alike(raised: Mapping[int, Raised]) -> list[int]:
    """The ranks that raised what the lowest one did, in the line where that did."""
    first = _kind(raised[min(raised)])
    return sorted(rank for rank, other in raised.items() if _kind(other) == first)


def _kind(raised: Raised) -> tuple[object, ...]:
    return raised.type, raised.frames[-1:]
