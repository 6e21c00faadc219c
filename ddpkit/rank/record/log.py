"""`Log`: a rank's calls and compute in the order of their ends.

A long run keeps only its last steps.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

from ddpkit.protocol.past import UNKNOWN, Past
from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import Moment, Read, launched, of_host, stretch
from ddpkit.trace import OPERATIONS, Count, Dropped, Scalar, Span

MAX_SPANS = 200_000  # spans of a rank: some 50 MB
# kinds of stretch at the end of a step; a marked step takes precedence
STEP_ENDS = ("step", "optimizer")

# Kind, name, start, end, bytes; and for the end of a step the facts of the step.
Stretch: TypeAlias = (
    tuple[str, str, Moment, Moment, int]
    | tuple[str, str, Moment, Moment, int, Mapping[str, Scalar]]
)


class Log:
    """The entries of a run: the newest `limit` spans, and at most one more step.

    An entry is a call, a backward pass or another stretch of compute. Entries become spans after
    the run: making spans during the run would cost more than all other recording.
    """

    def __init__(self, limit: int = MAX_SPANS) -> None:
        self._entries: deque[RecordedCall | Backward | Stretch] = deque()
        self._more = 0  # number of spans minus number of entries
        self._limit = limit
        self._ends: Counter[str] = Counter()  # number of ends of steps among the entries
        self._gone = self._steps_gone = 0
        self._lock = threading.RLock()  # gloo's threads say when a call is done
        self._times: Counter[tuple[str, int | None]] = Counter()  # dropped calls, by name and peer
        self._bytes: Counter[tuple[str, int | None]] = Counter()
        self._steps: Counter[str] = Counter()  # number of all ended steps
        # returns the work that the rank has counted
        self.work: Callable[[], Mapping[str, int]] | None = None
        self._worked: dict[str, Mapping[str, int]] = {}  # work at the last end of each kind of step
        self.past: Past | None = None  # file for the record of compute
        self.before_step_ends: Callable[[], None] | None = (
            None  # logs the open stretch of operations
        )

    def add(self, entry: RecordedCall | Backward | Stretch) -> None:
        """Add an entry that has just ended."""
        self._entries.append(entry)  # no lock, because every module and every message passes here
        if self.past is not None and type(entry) is tuple:
            kind, name, start, end, *_ = entry
            self.past.stretch(kind, name, start, end, self._steps[kind] or UNKNOWN)
        if len(self._entries) + self._more > self._limit:
            self._forget()

    def end_backward(self, backward: Backward) -> None:
        """Add a backward pass, which becomes several spans."""
        with self._lock:
            self._more += backward.pieces - 1
            self.add(backward)
            if self.past is not None:
                last = backward.ready[-1][0] if backward.ready else None
                self.past.stretch("backward", "backward", backward.start, backward.end, last)

    def end_step(self, kind: str, name: str, start: Moment, end: Moment, **amounts: Scalar) -> None:
        """Add a stretch of work that ends a step; `kind` is one of `STEP_ENDS`.

        amounts  facts of the step, such as its tokens; the method adds the work since the last step
        """
        if self.before_step_ends is not None:
            self.before_step_ends()
        if self.work is not None:
            now, before = self.work(), self._worked.get(kind, {})
            self._worked[kind] = now
            amounts |= {name: work - before.get(name, 0) for name, work in now.items()}
        with self._lock:
            self._ends[kind] += 1
            self._steps[kind] += 1
            self.add((kind, name, start, end, 0, amounts))

    def spans(self, rank: int, read: Read) -> list[Span]:
        """Return all entries as spans of the trace; `read` converts a moment to ns."""
        entries = list(self._entries)
        spans: list[Span] = []
        for backward in entries:  # a backward sets the start of its calls' waits
            if isinstance(backward, Backward):
                backward.find_hidden_wait(read)
        for entry in entries:
            if isinstance(entry, Backward):
                spans += entry.spans(rank, read)
                spans += filter(None, [of_host(rank, "backward", entry.start, entry.end)])
            elif isinstance(entry, RecordedCall):
                spans.append(entry.span(rank, read))
            else:
                spans.append(_span(rank, read, *entry))
                if entry[0] not in ("step", "copy"):
                    spans += filter(None, [of_host(rank, *entry[1:4])])
        return spans

    def dropped(self) -> Dropped:
        operations = {key: Count(n, self._bytes[key]) for key, n in self._times.items()}
        return Dropped(self._gone, self._steps_gone, operations)

    def _forget(self) -> None:
        """Drop the oldest steps, or the oldest entries if no step has ended."""
        with self._lock:
            while len(self._entries) + self._more > self._limit:
                end = next((kind for kind in STEP_ENDS if self._ends[kind]), None)
                kind = self._drop()
                while end is not None and kind != end:
                    kind = self._drop()
                self._steps_gone += end is not None

    def _drop(self) -> str:
        """Drop the oldest entry, and return its kind."""
        entry = self._entries.popleft()
        self._gone += 1
        if isinstance(entry, Backward):
            self._more -= entry.pieces - 1
            self._gone += entry.pieces - 1
            return "backward"
        if isinstance(entry, RecordedCall):
            key = entry.what.op, entry.what.peer
            self._times[key] += 1
            self._bytes[key] += entry.what.bytes
            return "comm"
        if entry[0] in self._ends:
            self._ends[entry[0]] -= 1
        return entry[0]


def _span(
    rank: int,
    read: Read,
    kind: str,
    name: str,
    start: Moment,
    end: Moment,
    nbytes: int,
    args: Mapping[str, Scalar] | None = None,
) -> Span:
    lane, args = kind if kind in ("step", "copy") else "compute", dict(args or {})
    if kind == OPERATIONS:
        kind, args = "span", {OPERATIONS: 1}
    if lane == "compute":
        args |= launched(start, end)
    return Span(rank, lane, name, kind, *stretch(read, start, end), nbytes, args=args)
