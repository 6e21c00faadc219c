"""Rank 0's clock as the common clock of ranks on several hosts.

`perf_counter_ns` counts from the start of each host. Therefore a rank of each further host asks
rank 0 for the time, before and after a run. All times of the run are moved to rank 0's clock. The
method is Cristian's (Probabilistic clock synchronization, Distributed Computing 3, 1989): rank 0
wrote the answer between question and receipt, so half the round trip bounds the error. The shortest
of 32 round trips counts, since longer round trips were delayed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ddpkit.trace import Span

if TYPE_CHECKING:
    import torch.distributed as dist

PINGS = 32


@dataclass(frozen=True)
class Reading:
    """A comparison of clocks: at `at_ns` of a host's clock, rank 0's clock is `offset_ns` later.

    `error_ns` bounds the error of the offset.
    """

    at_ns: int = 0
    offset_ns: int = 0
    error_ns: int = 0


def reading(pings: Iterable[tuple[int, int, int]]) -> Reading:
    """Return the reading from the ping with the shortest round trip.

    A ping has three times: sent, rank 0's, received.
    """
    sent, theirs, received = min(pings, key=lambda ping: ping[2] - ping[0])
    middle = (sent + received) // 2
    return Reading(middle, theirs - middle, (received - sent + 1) // 2)


@dataclass(frozen=True)
class ClockShift:
    """The difference between a host's clock and rank 0's clock, read before and after a run."""

    before: Reading = Reading()
    after: Reading = Reading()

    @property
    def error_ns(self) -> int:
        """The largest error of a moved time, in ns, if the two clocks drift apart evenly."""
        return max(self.before.error_ns, self.after.error_ns)

    def to_rank_0(self, ns: int) -> int:
        """Convert a time of the host's clock, between the two readings, to rank 0's clock."""
        before, after = self.before, self.after
        span = after.at_ns - before.at_ns
        drift = after.offset_ns - before.offset_ns
        drifted = drift * (ns - before.at_ns) // span if span else 0
        return ns + before.offset_ns + drifted

    def move(self, span: Span) -> Span:
        """Return a span of the host with all times on rank 0's clock."""
        if self == ClockShift():  # rank 0's own host has no shift
            return span
        blocked, collected = span.blocked_ns, span.collected_ns
        return replace(
            span,
            start_ns=self.to_rank_0(span.start_ns),
            end_ns=self.to_rank_0(span.end_ns),
            blocked_ns=None if blocked is None else self.to_rank_0(blocked),
            collected_ns=None if collected is None else self.to_rank_0(collected),
        )


def read(group: dist.ProcessGroup, hosts: Sequence[Sequence[int]]) -> Reading:
    """Compare the clocks of all hosts, over a gloo group of all ranks; every rank takes part.

    `hosts` are the ranks of each host, rank 0's host first. The first rank of each further host
    gets the host's reading. All remaining ranks get a reading without offset.
    """
    rank, askers = group.rank(), [host[0] for host in hosts[1:]]
    if rank in askers:
        return reading(_ask(group) for _ in range(PINGS))
    if rank == 0:
        for asker in askers:
            for _ in range(PINGS):
                _answer(group, asker)
    return Reading()


def _ask(group: dist.ProcessGroup) -> tuple[int, int, int]:
    import torch

    answer = torch.zeros(1, dtype=torch.int64)
    sent = time.perf_counter_ns()
    group.send([answer], 0, 0).wait()
    group.recv([answer], 0, 0).wait()
    return sent, int(answer), time.perf_counter_ns()


def _answer(group: dist.ProcessGroup, asker: int) -> None:
    import torch

    answer = torch.zeros(1, dtype=torch.int64)
    group.recv([answer], asker, 0).wait()
    answer[0] = time.perf_counter_ns()
    group.send([answer], asker, 0).wait()
