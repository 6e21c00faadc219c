"""`Log`: what a rank did, as it ended; of a long run the last steps only."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TypeAlias

from ddpkit.rank.call import Call
from ddpkit.rank.clock import Moment, Read, stretch
from ddpkit.trace import Count, LeftOut, Span

MAX_SPANS = 200_000  # of a rank: some 50 MB
STEP_ENDS = ("step", "optimizer")  # kinds of stretch that a step ends with; a marked one wins

Stretch: TypeAlias = tuple[str, str, Moment, Moment, int]  # kind, name, start, end, bytes


class Log:
    """The newest `limit` entries, and one step more at most.

    An entry is a call or a stretch of compute, which becomes a span when the run is over: to make
    spans as things happen would cost the run more than all else that is recorded.
    """

    def __init__(self, limit: int = MAX_SPANS) -> None:
        self._entries: deque[Call | Stretch] = deque()
        self._limit = limit
        self._ends: Counter[str] = Counter()  # of steps, among the entries
        self._gone = self._steps_gone = 0
        self._lock = threading.RLock()  # gloo's threads say when a call is done
        self._times: Counter[tuple[str, int | None]] = Counter()  # of calls that are gone
        self._bytes: Counter[tuple[str, int | None]] = Counter()

    def add(self, *entries: Call | Stretch) -> None:
        """Add what has just ended."""
        with self._lock:
            self._entries.extend(entries)
            while len(self._entries) > self._limit:
                self._forget()

    def end_step(self, kind: str, name: str, start: Moment, end: Moment) -> None:
        """Add a stretch with which a step ends: one of `STEP_ENDS`."""
        with self._lock:
            self._ends[kind] += 1
            self.add((kind, name, start, end, 0))

    def spans(self, rank: int, read: Read) -> list[Span]:
        """All entries as the trace has them; `read` tells a moment in ns."""
        with self._lock:
            return [
                entry.span(rank, read) if isinstance(entry, Call) else _span(rank, read, *entry)
                for entry in self._entries
            ]

    def left_out(self) -> LeftOut:
        operations = {key: Count(n, self._bytes[key]) for key, n in self._times.items()}
        return LeftOut(self._gone, self._steps_gone, operations)

    def _forget(self) -> None:
        """Drop the oldest step, or the oldest entry where no step has ended."""
        end = next((kind for kind in STEP_ENDS if self._ends[kind]), None)
        kind = self._drop()
        while end is not None and kind != end:
            kind = self._drop()
        self._steps_gone += end is not None

    def _drop(self) -> str:
        """Drop the oldest entry; returns its kind."""
        entry = self._entries.popleft()
        self._gone += 1
        if isinstance(entry, Call):
            key = entry.what.op, entry.what.peer
            self._times[key] += 1
            self._bytes[key] += entry.what.bytes
            return "comm"
        if entry[0] in self._ends:
            self._ends[entry[0]] -= 1
        return entry[0]


def _span(
    rank: int, read: Read, kind: str, name: str, start: Moment, end: Moment, nbytes: int
) -> Span:
    lane = "step" if kind == "step" else "compute"
    return Span(rank, lane, name, kind, *stretch(read, start, end), nbytes)
