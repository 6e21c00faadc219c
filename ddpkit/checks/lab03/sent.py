"""The traffic of an all-reduce: bytes, messages, and the number of messages in a row.

The messages of an algorithm are written down only in the schedules of `ddpkit.simulate`. The
expected traffic is counted in the trace of the simulated schedule. An answer's traffic is counted
in the trace of the answer's run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did
from ddpkit.simulate import schedule, time_of
from ddpkit.trace import Span, latencies

if TYPE_CHECKING:
    from torch import Tensor


def simulated(algorithm: str, world_size: int, x: Tensor) -> Did:
    """Return a simulated run of the algorithm's schedule; the run has no return values."""
    plan = schedule(algorithm, world_size, x.numel())
    return Did([], True, time_of(plan, "1 Gbit/s, 200 us", itemsize=x.element_size()))


def top(spans: Sequence[Span]) -> int:
    """Return the root of the tree along which messages go first up and then down.

    Return 0 if the messages do not form such a tree.
    """
    sends = sorted((one for one in spans if one.is_send), key=lambda one: one.start_ns)
    up, down = sends[: len(sends) // 2], sends[len(sends) // 2 :]
    senders, receivers = {one.rank for one in up}, {one.peer for one in down}
    above = {one.rank for one in sends} - senders
    once = len(senders) == len(up) == len(receivers) == len(down)
    return above.pop() if once and len(above) == 1 and senders == receivers else 0


def counts(did: Sequence[Did], *, settled: bool, whole: bool) -> Observed:
    """Return the part of the traffic that is equal in all right answers.

    `settled` and `whole` have the same meaning as in `Way`. With 2, 3 and 5 ranks, right answers
    differ in the rank that skips a round or has a longer chunk. Therefore the numbers of messages
    of all ranks are sorted, the largest first. A rank that takes part in every message is still
    visible.
    """
    first = did[0]
    in_a_row = latencies(first.trace.spans)
    n = first.trace.world_size
    most_first = sorted(first.messages, reverse=True)
    match n:
        case 4 if settled:
            by_rank, to = (first.bytes, first.messages), first.to
        case 4:
            by_rank = sorted(first.bytes, reverse=True), most_first
            to = f"up to rank {top(first.trace.spans)} and down"
        case 8:
            most = max(first.bytes)
            return {"bytes": sum(first.bytes), "most by a rank": most, "latencies": in_a_row}
        case _:
            others: dict[str, object] = {"bytes": sum(sum(each.bytes) for each in did)}
            if n < 5 or whole:  # right answers cut 2 elements into 5 chunks in different ways
                others["messages"] = most_first
            return others | ({"latencies": in_a_row} if n == 2 else {})
    told: dict[str, object] = dict(zip(("bytes", "messages"), by_rank, strict=True))
    return {**told, "to": " ".join([to, *first.collectives]), "latencies": in_a_row}
