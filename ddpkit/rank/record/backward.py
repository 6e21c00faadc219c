"""The record of a backward pass: gradients and their times, posted calls, and the hidden wait."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import Moment, Read, launched
from ddpkit.trace import Span


@dataclass(slots=True)
class Backward:
    """One backward pass of a rank.

    Moments are recorded during the pass; spans are made from the moments after the run.
    """

    # the user's line with the call of the backward, from `where.user_call`
    line: tuple[tuple[str, int], str]
    start: Moment
    # The time at which each gradient became ready, and its bytes; several threads append.
    ready: list[tuple[Moment, int]] = field(default_factory=list)
    posted: list[RecordedCall] = field(default_factory=list)  # calls posted during the backward
    ended: list[RecordedCall] = field(default_factory=list)  # calls that ended during the backward
    end: Moment = 0

    @property
    def pieces(self) -> int:
        """The number of spans for this backward pass."""
        return len(self.ready) + 1

    def spans(self, rank: int, read: Read) -> Iterator[Span]:
        """Yield a span for each gradient, and one for the time after the last gradient."""
        start, since = read(self.start), self.start
        gradients = [(read(moment), nbytes, moment) for moment, nbytes in self.ready]
        gradients.sort(key=lambda gradient: gradient[:2])
        for ready, nbytes, moment in (*gradients, (read(self.end), 0, self.end)):
            end = max(start, ready)  # a GPU's coarse clock may give a `ready` before `start`
            args = launched(since, moment)
            yield Span(rank, "compute", "backward", "backward", start, end, nbytes, args=args)
            start, since = end, moment

    def find_hidden_wait(self, read: Read) -> None:
        """Set the start of the rank's wait in calls that ended at the end of the backward pass.

        DDP's reducer waits in C++ at the end of a backward, unseen by Python. The wait begins when
        no work is left: the last gradient is ready, and the last bucket has been posted.
        """
        if not self.ended:
            return
        moments = [*(call.posted for call in self.posted), *(ready for ready, _ in self.ready)]
        idle_from = max(map(read, moments))
        for call in self.ended:
            if read(call.done) > idle_from:
                call.blocked = idle_from
