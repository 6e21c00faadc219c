"""One clock for ranks on several hosts: rank 0's.

`perf_counter_ns` counts from the start of each host. So one rank of each other host asks rank 0 for
the time, before a run and after it, and all times in between are moved to rank 0's clock. This is
Cristian's method (Probabilistic clock synchronization, Distributed Computing 3, 1989): the answer
was written somewhere between question and receipt, so half the round trip bounds the error. Of 32
round trips the shortest counts; the others were held up on their way.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ddpkit.trace import Span

PINGS = 32


@dataclass(frozen=True)
class Reading:
    """One reading of rank 0's clock: at `at_ns` of a host's it showed `at_ns + offset_ns`.

    `error_ns` bounds the error of that.
    """

    at_ns: int = 0
    offset_ns: int = 0
    error_ns: int = 0


def reading(pings: Iterable[tuple[int, int, int]]) -> Reading:
    """The reading by the shortest round trip: (sent, rank 0's time, received), in ns."""
    sent, theirs, received = min(pings, key=lambda ping: ping[2] - ping[0])
    middle = (sent + received) // 2
    return Reading(middle, theirs - middle, (received - sent + 1) // 2)


@dataclass(frozen=True)
class ClockShift:
    """How a host's clock differs from rank 0's during a run, between two readings."""

    before: Reading = Reading()
    after: Reading = Reading()

    @property
    def error_ns(self) -> int:
        """How far a moved time may be off, while the two clocks drift apart evenly."""
        return max(self.before.error_ns, self.after.error_ns)

    def to_rank_0(self, ns: int) -> int:
        """A time of this host, between the readings, as rank 0's clock showed it."""
        before, after = self.before, self.after
        span = after.at_ns - before.at_ns
        drift = after.offset_ns - before.offset_ns
        drifted = drift * (ns - before.at_ns) // span if span else 0
        return ns + before.offset_ns + drifted

    def move(self, span: Span) -> Span:
        """A span of this host, all its times by rank 0's clock."""
        if self == ClockShift():  # of rank 0's own host
            return span
        blocked, collected = span.blocked_ns, span.collected_ns
        return replace(
            span,
            start_ns=self.to_rank_0(span.start_ns),
            end_ns=self.to_rank_0(span.end_ns),
            blocked_ns=None if blocked is None else self.to_rank_0(blocked),
            collected_ns=None if collected is None else self.to_rank_0(collected),
        )


def read(group: Any, hosts: Sequence[Sequence[int]]) -> Reading:
    """Compare the clocks of all hosts, over a gloo group of all ranks; every rank takes part.

    `hosts` are the ranks of each host, rank 0's first. The first rank of each other host gets its
    reading; all other ranks get one of no offset.
    """
    rank, askers = group.rank(), [host[0] for host in hosts[1:]]
    if rank in askers:
        return reading(_ask(group) for _ in range(PINGS))
    if rank == 0:
        for asker in askers:
            for _ in range(PINGS):
                _answer(group, asker)
    return Reading()


def _ask(group: Any) -> tuple[int, int, int]:
    import torch

    answer = torch.zeros(1, dtype=torch.int64)
    sent = time.perf_counter_ns()
    group.send([answer], 0, 0).wait()
    group.recv([answer], 0, 0).wait()
    return sent, int(answer), time.perf_counter_ns()


def _answer(group: Any, asker: int) -> None:
    import torch

    answer = torch.zeros(1, dtype=torch.int64)
    group.recv([answer], asker, 0).wait()
    answer[0] = time.perf_counter_ns()
    group.send([answer], asker, 0).wait()
