"""What a rank writes down about itself while it runs: its calls and its spans.

One `Recorder` belongs to a run on a rank. It hears of communication from `group`, through which
every call into torch.distributed passes, and of compute from `compute`, torch's own global hooks,
so that a student's code needs no change to be seen.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ddpkit.rank.blackbox import BlackBox
from ddpkit.rank.where import user_call
from ddpkit.trace import Span

MAX_SPANS = 200_000  # of a rank: some 60 MB; the newest are kept


@dataclass(slots=True)
class Call:
    """One call into torch.distributed, from the moment it is posted."""

    op: str  # torch.distributed's name of it: "all_reduce", "send"
    group: str
    seq: int  # of a collective: which of its group; of a message: which from src to dst
    where: tuple[str, int]  # file and line of the user's code
    via: str = ""  # the function the user called there, where it is not `op`: "backward"
    peer: int | None = None  # global rank; None for a collective, or for a recv from any source
    root: int | None = None
    tag: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    bytes: int = 0
    reduce: str = ""
    members: tuple[int, ...] = ()
    posted_ns: int = 0
    blocked_ns: int | None = None  # since when the main thread waits for it
    work: Any = None  # the backend's own handle of it
    future: Any = None  # the work's, of a collective that may run beside compute

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the black box, without what is empty and who is in the default group."""
        pairs = zip(_PLAIN, _plain_values(self), strict=True)
        plain = {name: value for name, value in pairs if value or value == 0}
        if not self.group:
            plain.pop("members", None)
        if due_ns := getattr(self.work, "due_ns", 0):  # the emulated link has it till then
            plain["due_ns"] = due_ns
        return plain


_PLAIN = tuple(name for name in Call.__slots__ if name not in ("work", "future"))
_plain_values = operator.attrgetter(*_PLAIN)  # a quarter of the time of as many getattr


@dataclass
class Recorder:
    """The calls and spans of one rank during one run."""

    rank: int
    box: BlackBox | None = None
    spans: deque[Span] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))
    pending: dict[int, Call] = field(default_factory=dict)
    waits: dict[int, Call] = field(default_factory=dict)  # what each thread waits for right now
    moved: int = 0  # grows whenever a call is posted or done
    spans_made: int = 0
    _seqs: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)  # several threads may post

    def posted(self, op: str, group: str, **details: Any) -> Call:
        """Write down a call that is about to be made."""
        where, via = user_call(sys._getframe(1))
        peer, tag = details.get("peer"), details.get("tag", 0)
        key = (group, op, peer, tag) if op in ("send", "recv") else (group,)
        with self._lock:
            self._seqs[key] += 1
            call = Call(op, group, self._seqs[key], where, "" if via == op else via, **details)
            self.moved += 1
            self.pending[id(call)] = call
            if self.box is not None:
                self.box.write_call(call.as_dict())
        call.posted_ns = time.perf_counter_ns()
        return call

    def done(self, call: Call) -> None:
        """A call has ended. Told more than once (by a wait and by a callback), the first counts."""
        now = time.perf_counter_ns()
        if self.pending.pop(id(call), None) is None:
            return
        self.moved += 1
        self.add(
            Span(
                self.rank,
                "comm",
                call.op,
                "comm",
                call.posted_ns,
                now,
                bytes=call.bytes,
                peer=call.peer,
                group=call.group,
                seq=call.seq,
                blocked_ns=call.blocked_ns,
                args={"line": call.where[1], "tag": call.tag, "group_size": len(call.members)},
            )
        )

    def finish(self) -> None:
        """The function has returned: what it posted and never waited for ends here."""
        for call in list(self.pending.values()):
            self.done(call)

    def add(self, span: Span) -> None:
        self.spans.append(span)
        self.spans_made += 1

    def compute(
        self, kind: str, name: str, start_ns: int, end_ns: int | None = None, bytes: int = 0
    ) -> None:
        """A stretch of the rank's own work, by default until now. `bytes`: of a ready gradient."""
        end_ns = time.perf_counter_ns() if end_ns is None else end_ns
        if end_ns > start_ns:
            self.add(Span(self.rank, "compute", name, kind, start_ns, end_ns, bytes))


_current: Recorder | None = None


def current() -> Recorder | None:
    """The recorder of the run this process is in; None outside a run."""
    return _current


def activate(recorder: Recorder | None) -> None:
    global _current
    _current = recorder


@contextmanager
def span(name: str) -> Iterator[None]:
    """Name a stretch of a rank's own work, so that the timeline shows it as compute.

    ```python
    with span("add the chunks"):
        mine += received
    ```
    Outside a run it does nothing, so a function that uses it also runs on its own.
    """
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        if _current is not None:
            _current.compute("span", name, start)
