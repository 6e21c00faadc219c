"""What a rank writes down about itself while it runs: its calls, its compute and its steps.

One `Recorder` belongs to a run on a rank. It hears of communication from `group`, through which
every call into torch.distributed passes, and of compute from `compute`, torch's own global hooks,
so that a student's code needs no change to be seen.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ddpkit.rank.blackbox import BlackBox, encode
from ddpkit.rank.call import Call, What
from ddpkit.rank.log import Log
from ddpkit.rank.where import user_call
from ddpkit.trace import Span


@dataclass
class Recorder:
    """The calls and the compute of one rank during one run."""

    rank: int
    box: BlackBox | None = None
    log: Log = field(default_factory=Log)
    pending: dict[int, Call] = field(default_factory=dict)
    waits: dict[int, Call] = field(default_factory=dict)  # what each thread waits for right now
    moved: int = 0  # grows whenever a call is posted or done
    _seqs: Counter[Any] = field(default_factory=Counter)
    _lock: threading.RLock = field(default_factory=threading.RLock)  # gloo's threads end calls

    def posted(
        self,
        op: str,
        group: str,
        peer: int | None = None,
        root: int | None = None,
        tag: int = 0,
        shape: tuple[int, ...] = (),
        dtype: str = "",
        bytes: int = 0,
        reduce: str = "",
        members: tuple[int, ...] = (),
    ) -> Call:
        """Write down a call that is about to be made (`What` says what is what)."""
        where, via = user_call(sys._getframe(1))
        via = "" if via == op else via
        what = What(op, group, where, via, peer, root, tag, shape, dtype, bytes, reduce, members)
        call = Call(what)
        with self._lock:
            key = (group, op, peer, tag) if op in ("send", "recv") else group
            self._seqs[key] = call.seq = self._seqs[key] + 1
            self.moved += 1
            self.pending[id(call)] = call
            if self.box is not None:
                self.box.write_call(_text(what), call.seq)
        call.posted_ns = time.perf_counter_ns()
        return call

    def done(self, call: Call) -> None:
        """A call has ended. Told more than once (by a wait and by a callback), the first counts."""
        now = time.perf_counter_ns()
        with self._lock:  # a call is pending or in the log, whoever looks
            if self.pending.pop(id(call), None) is None:
                return
            call.done_ns, call.work, call.future = now, None, None  # a log must hold no tensors
            self.moved += 1
            self.log.add(call)

    def under_way(self) -> list[Call]:
        """The calls that have not ended, in the order they were posted; safe while others end."""
        with self._lock:
            return list(self.pending.values())

    def compute(self, kind: str, name: str, start_ns: int) -> None:
        """A stretch of the rank's own work has ended."""
        self.log.add((kind, name, start_ns, time.perf_counter_ns(), 0))

    def step_ends(self, kind: str, name: str, start_ns: int) -> None:
        """So has one with which a training step ends: "optimizer", or a "step" that was marked."""
        self.log.end_step(kind, name, start_ns, time.perf_counter_ns())

    def finish(self) -> None:
        """The function has returned: what it posted and never waited for ends here."""
        with self._lock:
            for call in self.under_way():
                self.done(call)

    def spans(self) -> list[Span]:
        """All that has been recorded, as it ended; of a long run the newest."""
        return self.log.spans(self.rank)


@lru_cache(1024)
def _text(what: What) -> bytes:
    return encode(what.as_dict())


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


@contextmanager
def step() -> Iterator[None]:
    """Mark a training step, where `optimizer.step()` is not what each step ends with.

    ```python
    for batch in batches:
        with step():
            train(batch)
    ```
    A trace in which steps are marked has those and no others: `run.trace.step(k)` is the k-th on
    each rank. Outside a run it does nothing.
    """
    start = time.perf_counter_ns()
    try:
        yield
    finally:
        if _current is not None:
            _current.step_ends("step", "step", start)
