"""What a rank writes down about itself while it runs: its calls, its compute and its steps.

One `Recorder` belongs to a run on a rank. It hears of communication from `group`, through which
every call into torch.distributed passes, and of compute from `compute`, torch's own global hooks,
so that a student's code needs no change to be seen.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ddpkit.rank.backward import Backward
from ddpkit.rank.blackbox import BlackBox, encode
from ddpkit.rank.call import Call, What
from ddpkit.rank.clock import HOST, Clock, Moment, Read
from ddpkit.rank.log import Log
from ddpkit.rank.where import user_call
from ddpkit.trace import Span


@dataclass
class Recorder:
    """The calls and the compute of one rank during one run."""

    rank: int
    box: BlackBox | None = None
    clock: Clock = HOST
    log: Log = field(default_factory=Log)
    pending: dict[int, Call] = field(default_factory=dict)
    waits: dict[int, Call] = field(default_factory=dict)  # what each thread waits for right now
    backward: Backward | None = None  # that is under way
    moved: int = 0  # grows whenever a call is posted or done
    _queued: deque[Call] = field(default_factory=deque)  # on the GPU, which may not be there yet
    _deferred: list[Callable[[Read], None]] = field(default_factory=list)
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
        on_gpu: bool = False,
    ) -> Call:
        """Write down a call that is about to be made, and where (`What` says what is what)."""
        where, via = user_call(sys._getframe(1))
        via = "" if via == op else via
        what = What(op, group, where, via, peer, root, tag, shape, dtype, bytes, reduce, members)
        return self.post(what, on_gpu)

    def post(self, what: What, on_gpu: bool = False) -> Call:
        """Write down a call that is about to be made."""
        call = Call(what, on_gpu=on_gpu)
        if (backward := self.backward) is not None:  # of another thread it may end any moment
            backward.posted.append(call)
        with self._lock:
            message = what.op in ("send", "recv")
            key = (what.group, what.op, what.peer, what.tag) if message else what.group
            self._seqs[key] = call.seq = self._seqs[key] + 1
            self.moved += 1
            self.pending[id(call)] = call
            if self.box is not None:
                self.box.write_call(_text(what), call.seq)
        call.posted = self.now(call)
        return call

    def now(self, call: Call) -> Moment:
        """This moment, where the call happens."""
        return self.clock.now() if call.on_gpu else time.perf_counter_ns()

    def ended(self, call: Call) -> None:
        """A call has ended. Told more than once (by a wait and by a callback), the first counts.

        No more than the moment: gloo's threads tell it, and hold the GIL meanwhile, which the
        backward wants. The next who looks at what is under way writes the rest down.
        """
        if not call.done:
            call.done = self.now(call)

    def done(self, call: Call) -> None:
        """A call has ended, if nobody has said so before."""
        if id(call) in self.pending:
            self.ended(call)
            with self._lock:
                self._log(call)

    def note_ended(self, calls: list[Call]) -> None:
        """Write down which of them have ended, even if their thread still waits for the GIL."""
        for call in calls:
            future = call.future
            if call.done or (future is not None and future.done()):
                self.done(call)

    def _log(self, call: Call) -> None:
        """Under the lock: a call is pending or in the log, whoever looks."""
        if self.pending.pop(id(call), None) is None:
            return
        call.work = call.future = None  # a log must hold no tensors
        self.moved += 1
        self.log.add(call)
        if call.on_gpu:
            self._queued.append(call)

    def came_from(self, call: Call, group_rank: int) -> None:
        """A message that any rank of its group might have sent is there: this one did."""
        what = call.what._replace(peer=call.what.members[group_rank])
        key = (what.group, what.op, what.peer, what.tag)
        with self._lock:
            self._seqs[key] = call.seq = self._seqs[key] + 1
        call.what = what

    def under_way(self) -> list[Call]:
        """The calls that have not ended, in the order they were posted; safe while others end."""
        with self._lock:
            for call in [call for call in self.pending.values() if call.done]:
                self._log(call)
            while self._queued and self.clock.is_past(self._queued[0].done):
                self._queued.popleft()
                self.moved += 1
            return [*self._queued, *self.pending.values()]

    def compute(self, kind: str, name: str, start: Moment) -> None:
        """A stretch of the rank's own work has ended."""
        self.log.add((kind, name, start, self.clock.now(), 0))

    def step_ends(self, kind: str, name: str, start: Moment) -> None:
        """So has one with which a training step ends: "optimizer", or a "step" that was marked."""
        self.log.end_step(kind, name, start, self.clock.now())

    def when_known(self, act: Callable[[Read], None]) -> None:
        """Do what compares moments: at once, or when the run is over and a GPU has them."""
        if self.clock is HOST:
            act(HOST.ns)
        else:
            self._deferred.append(act)

    def finish(self) -> None:
        """The function has returned: what it posted and never waited for ends here.

        A GPU may have all of it still to do, and wait there for ever: so it is waited for as a
        rank that can be asked what it waits for.
        """
        with self._lock:
            for call in list(self.pending.values()):
                self.done(call)
        thread = threading.get_ident()
        while left := self.under_way():
            self.waits[thread] = left[0]
            time.sleep(0.001)
        self.waits.pop(thread, None)
        for act in self._deferred:
            act(self.clock.ns)
        self._deferred.clear()

    def spans(self) -> list[Span]:
        """All that has been recorded, as it ended; of a long run the newest.

        Nothing, if the function failed while its GPU waits for a peer, which it may do for ever.
        """
        if any(call.on_gpu for call in self.under_way()):
            return []
        return self.log.spans(self.rank, self.clock.ns)


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
    start = _now()
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
    start = _now()
    try:
        yield
    finally:
        if _current is not None:
            _current.step_ends("step", "step", start)


def _now() -> Moment:
    return HOST.now() if _current is None else _current.clock.now()
