"""Reads the record of a rank that could not send it: the rank was killed, or was still waiting."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, replace
from operator import attrgetter

from ddpkit.protocol.blackbox import BlackBox
from ddpkit.protocol.call import NOWHERE, Call
from ddpkit.protocol.past import UNKNOWN as NEVER
from ddpkit.protocol.past import KeptStretch, Past, Times
from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import HOST, Moment
from ddpkit.rank.record.log import STEP_ENDS, Log
from ddpkit.trace import COMPUTE_KINDS, OPERATIONS, UNENDED, Dropped, Span

KINDS = (*COMPUTE_KINDS, OPERATIONS, "step")  # kinds of stretches: everything but calls


@dataclass(frozen=True, slots=True)
class KeptCall:
    """A call of a killed rank, with its times as plain numbers."""

    times: Times
    call: RecordedCall

    @property
    def posted(self) -> int:
        """The time at which the call was posted, in ns."""
        return self.times.posted


class Unsent:
    """The record of one rank until its end, from the files that remain after the rank's death.

    A call in progress lasts until the end. The files lack the rank's compute after its last
    finished stretch. For a backward pass, the files have only the time of the last gradient.
    """

    def __init__(
        self, rank: int, world_size: int, box: BlackBox, past: Past, until_ns: int = 0
    ) -> None:
        """``until_ns`` is the observed end of the rank; 0 if only the record shows the end."""
        self._rank, self._everybody = rank, tuple(range(world_size))
        calls = box.last_calls()
        known = [(call, past.times(index)) for index, call in calls.items()]
        self._calls = [self._call(call, times) for call, times in known if times is not None]
        self._calls.sort(key=attrgetter("posted"))
        stretches = (each for each in past.stretches() if each.kind in KINDS)
        self._stretches = [each for each in stretches if each.start <= each.end]
        first = min((stretch.number for stretch in self._stretches), default=1)
        self._lost = min(calls, default=0), first - 1  # numbers of lost calls, lost stretches
        self.until_ns = max(until_ns, self._last_ns())

    def _call(self, what: Call, times: Times) -> KeptCall:
        # the black box leaves out the members of the default group
        if not what.group and not what.members:
            what = what._replace(members=self._everybody)
        blocked = None if times.blocked == NEVER else times.blocked
        collected = None if times.collected == NEVER else times.collected
        call = RecordedCall(what, what.seq, times.posted, None, blocked, times.done, collected)
        call.claimed = True  # no warning about a missing wait: the rank may have been about to wait
        return KeptCall(times, call)

    def _last_ns(self) -> int:
        of_calls = (max(kept.times) for kept in self._calls)
        return max([*of_calls, *(stretch.end for stretch in self._stretches)], default=0)

    def record(self) -> tuple[list[Span], Dropped]:
        """Return the spans in the files, and the numbers of lost spans and steps."""
        begin = self._begin()
        calls = [kept for kept in self._calls if kept.posted >= begin]
        stretches = [stretch for stretch in self._stretches if stretch.start >= begin]
        log = Log()
        ended: list[tuple[int, int, RecordedCall | KeptStretch]] = [
            *((kept.times.done, 0, kept.call) for kept in calls if kept.times.done != NEVER),
            *((stretch.end, 1, stretch) for stretch in stretches),
        ]
        for _, _, each in sorted(ended, key=lambda entry: entry[:2]):
            if isinstance(each, RecordedCall):
                log.add(each)
            elif each.kind == "backward":
                log.end_backward(self._backward(each))
            elif each.kind in STEP_ENDS:
                log.end_step(each.kind, each.name, each.start, each.end)
            else:
                log.add((each.kind, each.name, each.start, each.end, 0))
        spans = log.spans(self._rank, HOST.ns)
        spans += [self._unended(kept.call) for kept in calls if kept.times.done == NEVER]
        gone = sum(self._lost) + len(self._calls) - len(calls)
        gone += len(self._stretches) - len(stretches)
        return spans, Dropped(gone, self._steps_gone(stretches) if gone else 0)

    def _begin(self) -> int:
        """Return the time from which the record is complete; 0 if nothing is lost."""
        calls_lost, stretches_lost = self._lost
        begin = self._calls[0].posted if calls_lost and self._calls else 0
        return max(begin, self._stretches[0].start if stretches_lost else 0)

    def _backward(self, kept: KeptStretch) -> Backward:
        first = bisect_left(self._calls, kept.start, key=attrgetter("posted"))
        posted = self._calls[first : bisect_right(self._calls, kept.end, key=attrgetter("posted"))]
        ended = [each for each in posted if NEVER < each.times.done <= kept.end]
        waited = [each.call for each in ended if each.call.blocked is None]
        ready: list[tuple[Moment, int]] = [] if kept.more == NEVER else [(kept.more, 0)]
        calls = [each.call for each in posted]
        return Backward((NOWHERE, ""), kept.start, ready, calls, waited, kept.end)

    def _unended(self, call: RecordedCall) -> Span:
        call.done = self.until_ns
        span = call.span(self._rank, HOST.ns)
        return replace(span, args={**span.args, UNENDED: 1})

    def _steps_gone(self, kept: list[KeptStretch]) -> int:
        """Return the number of steps that ended before the first step in the files."""
        for kind in STEP_ENDS:
            if numbers := [stretch.more for stretch in kept if stretch.kind == kind]:
                return numbers[0] - 1
        return 0
