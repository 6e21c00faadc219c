"""A rank's record of itself during a run: its calls, its compute and its steps.

One `Recorder` belongs to a run on a rank. The process groups of `rank.group`, through which every
call into torch.distributed passes, report communication. `record.compute` reports compute, by
torch's hooks. So a student's code needs no change to be recorded.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

from ddpkit.protocol.blackbox import MAKING, BlackBox, encode
from ddpkit.protocol.call import Call
from ddpkit.protocol.past import Past
from ddpkit.protocol.replica import Replica
from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import HOST, Clock, Moment
from ddpkit.rank.record.log import Log
from ddpkit.rank.record.loose import LooseOperations
from ddpkit.rank.record.thread_state import keep_thread_state, this_thread
from ddpkit.rank.record.threads import since
from ddpkit.rank.where import user_call
from ddpkit.trace import MemoryLevel, Span

if TYPE_CHECKING:
    import torch.distributed as dist


@dataclass(slots=True, eq=False)
class Known:
    """A call that a loop repeats, with the facts that are the same in each repetition."""

    what: Call
    text: bytes  # the text for the black box
    numbers: list[int]  # one number, of the last such call; several `Known` may share the list


class Watch(Protocol):
    """A listener that is told of each Work's post and wait, such as `group.in_flight.InFlight`."""

    def posted(self, work: dist.Work, what: Call, payload: object) -> None:
        """Record a new Work, and the tensors of its operation."""

    def over(self, work: dist.Work) -> None:
        """Record that code has waited for a Work."""


@dataclass
class Recorder:
    """The recorder of one rank during one run: records the rank's calls and compute."""

    rank: int
    box: BlackBox | None = None
    past: Past | None = None  # a file that outlives a killed rank; only beside a black box
    clock: Clock = HOST
    log: Log = field(default_factory=Log)
    pending: dict[int, RecordedCall] = field(default_factory=dict)
    waits: dict[int, RecordedCall] = field(default_factory=dict)  # thread -> the call it waits for
    backward: Backward | None = None  # the backward under way
    watch: Watch | None = None  # told of each Work, in a check and in a strict run
    # memory levels of a modelled machine, filled in when the run ends
    memory: list[MemoryLevel] = field(default_factory=list)
    # On a rank without values: the number of reads of a missing value, for each line of user code.
    reads: Mapping[tuple[str, int], int] = field(default_factory=dict)
    replicas: list[Replica] = field(default_factory=list)  # models that the launcher compares
    moved: int = 0  # grows whenever a call is posted or done
    counted_ns: Callable[[], int] | None = None  # the main thread's clock, if compute is counted
    loose: LooseOperations | None = None  # operations outside modules, while compute is recorded
    groups: list[dist.ProcessGroup] | None = (
        None  # a list keeps the groups open until the process ends
    )
    limit: float | None = None  # seconds: the timeout of a script's default group
    model: int = 0  # the number of the DDP model with the newest gradient (`record.models`)
    has_joined: bool = False  # True once in the default process group; a script may never join
    spans_open: int = 0  # number of open spans that the user has marked, in the main thread
    timed: Callable[[], str] = str  # returns the lines that measure launches of an emulated device
    more_spans: Callable[[], list[Span]] | None = None  # returns an emulated device's own spans
    ends_are_late: bool = False  # on an emulated device: ends are not noted in their order
    host_now: Callable[[], Moment] = time.perf_counter_ns  # for calls on the CPU
    _queued: deque[RecordedCall] = field(default_factory=deque)  # logged, but perhaps not done
    _numbers: dict[object, list[int]] = field(default_factory=dict)
    _free: dict[int, Moment] = field(default_factory=dict)  # thread -> end of its latest wait
    _main: int | None = threading.main_thread().ident
    _lock: threading.RLock = field(default_factory=threading.RLock)  # gloo's threads end calls

    def __post_init__(self) -> None:
        self.know = lru_cache(1024)(self._know)  # bounded: a loop may give each message a new tag
        self.log.past = self.past

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
        group_desc: str = "",
        sends: tuple[int, ...] = (),
        takes: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        absent: int = 0,
    ) -> RecordedCall:
        """Record a call that is about to be made, and its line (`Call` explains the fields)."""
        where, via = user_call(sys._getframe(1))
        via = "" if via == op else via
        details = peer, root, tag, shape, dtype, bytes, reduce, members
        what = Call(op, group, where, via, *details, group_desc=group_desc)
        what = what._replace(
            sends=sends, takes=takes, strides=strides, absent=absent, model=self.model_sending()
        )
        return self.post(self.know(what), on_gpu)

    def model_sending(self) -> int:
        """Return the number of the model with the newest gradient; 0 outside a backward pass."""
        return 0 if self.backward is None else self.model

    def _know(self, what: Call) -> Known:
        message = what.op in ("send", "recv")
        key = (what.group, what.op, what.peer, what.tag) if message else what.group
        return Known(what, encode(what), self._numbers.setdefault(key, [0]))

    def post(self, known: Known, on_gpu: bool = False) -> RecordedCall:
        """Record a call that is about to be made. Call `made` or `refused` afterwards.

        DDP's reducer calls this function for every bucket, so the function must be fast.
        """
        call = RecordedCall(known.what, on_gpu=on_gpu)
        # the backward of another thread may end at any moment
        if (backward := self.backward) is not None:
            backward.posted.append(call)
        with self._lock:
            known.numbers[0] += 1
            call.seq = known.numbers[0]
            self.moved += 1
            self.pending[id(call)] = call
            if self.box is not None:
                call.index = self.box.write_call(known.text, call.seq | MAKING)
        call.posted = self.now(call)
        if self.past is not None:
            self.past.posted(call.index, call.posted)
        if (thread := threading.get_ident()) != self._main:
            call.since = since(thread, self._free)
        elif self.loose is not None:
            self.loose.close()
        return call

    def now(self, call: RecordedCall) -> Moment:
        """Return the present moment on the clock of the call's device."""
        if call.own_now is not None:
            return call.own_now()
        return self.clock.now() if call.on_gpu else self.host_now()

    def wait_over(self, thread: int) -> None:
        """Record that a thread's wait for a call is over."""
        self.waits.pop(thread, None)
        if thread != self._main:
            self._free[thread] = self.host_now()

    def ended(self, call: RecordedCall) -> None:
        """Record the end of a call. If a wait and a callback both report the end, the first counts.

        This method records only the moment. The next call of `under_way` moves the call to the log.
        """
        if not call.done:
            call.done = self.now(call)

    def teller(self, call: RecordedCall) -> Callable[[object], None]:
        """Return a function that gloo's thread calls to record the end of a call.

        The function is short: it holds the GIL, which the backward needs, and gloo's thread has
        just woken up, perhaps on a core with cold caches.
        """
        now = self.clock.now if call.on_gpu else time.perf_counter_ns

        def ended(_: object) -> None:
            if not call.done:
                call.done = now()
            if not this_thread.keeps_state:
                keep_thread_state()

        return ended

    def done(self, call: RecordedCall) -> None:
        """Record the end of a call, and move the call into the log if it is not there yet."""
        if id(call) in self.pending:
            self.ended(call)
            with self._lock:
                self._log(call)
        else:
            self.keep(call)  # times that became known after the end

    def made(self, call: RecordedCall) -> None:
        """Record that the backend has accepted a call."""
        if self.box is not None:
            self.box.made(call.index, call.seq)

    def refused(self, call: RecordedCall) -> None:
        """Forget a call that the backend has refused: the next call gets its number."""
        with self._lock:
            self.pending.pop(id(call), None)
            if (backward := self.backward) is not None and call in backward.posted:
                backward.posted.remove(call)
            numbers = self.know(call.what).numbers
            if numbers[0] == call.seq:  # unless another thread has made a call meanwhile
                numbers[0] -= 1
            if self.past is not None:
                self.past.forget(call.index)
            if self.box is not None:
                self.box.refused(call.index)

    def _log(self, *calls: RecordedCall) -> None:
        """Move calls into the log.

        The caller must hold the lock, so that other threads find a call in exactly one place.
        """
        for call in calls:
            if self.pending.pop(id(call), None) is not None:
                call.work = call.future = None  # a log must hold no tensors
                self.moved += 1
                self.log.add(call)
                self.keep(call)
                if call.on_gpu:
                    self._queued.append(call)

    def backward_ends(self) -> None:
        """Record the end of a backward pass, and the ends of calls that DDP's reducer awaited.

        gloo's thread may still wait for the GIL to report an end; this method records such ends.
        """
        backward, self.backward = self.backward, None
        assert backward is not None
        backward.posted = list(backward.posted)  # a copy, without posts of late threads
        with self._lock:
            for call in backward.posted:
                future = call.future
                if call.done or (future is not None and future.done()):
                    self.ended(call)
                    if call.blocked is None:
                        backward.ended.append(call)
                    self._log(call)
            self.log.end_backward(backward)

    def came_from(self, call: RecordedCall, group_rank: int) -> None:
        """Record the sender of a message that a receive from any rank has received.

        The method adds a line to the black box, so that the launcher can match the receive with its
        send.
        """
        what = call.what._replace(peer=call.what.members[group_rank])
        known = self.know(what._replace(found=True))
        with self._lock:
            known.numbers[0] += 1
            call.what, call.seq, call.from_anybody = what, known.numbers[0], True
        if self.box is not None:
            with self._lock:
                before, call.index = call.index, self.box.write_call(known.text, call.seq)
            if self.past is not None:
                self.past.forget(before)
                self.past.posted(call.index, call.posted)

    def keep(self, call: RecordedCall) -> None:
        """Write the times of a call into the file that remains after the rank's death."""
        if self.past is not None:
            self.past.note(call.index, call.blocked, call.done, call.collected)

    def keep_no_more(self) -> None:
        """Stop writing into the file that remains after the rank's death, in a child process."""
        self.past = self.log.past = None

    def under_way(self) -> list[RecordedCall]:
        """Return the unfinished calls, in the order of their posts; safe for all threads."""
        with self._lock:
            self._log(*[call for call in self.pending.values() if call.done])
            while self._queued and self.clock.is_past(self._queued[0].done):
                self._queued.popleft()
                self.moved += 1
            return [*self._queued, *self.pending.values()]

    def compute(self, kind: str, name: str, start: Moment) -> None:
        """Record that a stretch of the rank's own work has ended."""
        self.log.add((kind, name, start, self.clock.now(), 0))

    def opens(self, by: int) -> None:
        """Record that the user has opened (`by` = 1) or closed (`by` = -1) a marked span."""
        if threading.get_ident() == self._main:
            self.spans_open += by

    def finish(self) -> None:
        """End the calls that the function posted and never waited for.

        A GPU may not have begun these calls, and may wait for a peer forever. So the rank waits
        here, where the agent can report the wait.
        """
        with self._lock:
            for call in list(self.pending.values()):
                self.done(call)
        thread = threading.get_ident()
        while left := self.under_way():
            self.waits[thread] = left[0]
            time.sleep(0.001)
        self.waits.pop(thread, None)

    def spans(self) -> list[Span]:
        """Return all records as spans, in the order of their ends; a long run keeps the newest.

        The list is empty if the function has failed while the GPU still waits for a peer.
        """
        if any(call.on_gpu for call in self.under_way()):
            return []
        if self.loose is not None:
            self.loose.close()
        spans = self.log.spans(self.rank, self.clock.ns)
        if self.more_spans is not None:
            since = min((each.start_ns for each in spans), default=0)
            kept = self.log.dropped().spans == 0
            spans += [one for one in self.more_spans() if kept or one.start_ns >= since]
        if self.ends_are_late:
            spans.sort(key=lambda span: (span.end_ns, span.start_ns, span.lane, span.seq or 0))
        return spans


_current: Recorder | None = None


def current() -> Recorder | None:
    """Return the recorder of this process's run; None outside a run."""
    return _current


def now_of_run() -> Moment | None:
    """Return the present moment of this process's run; None outside a run."""
    return None if _current is None else _current.host_now()


def activate(recorder: Recorder | None) -> None:
    """Make `recorder` the recorder of this process's run; None ends the run."""
    global _current
    _current = recorder


def moment_ns() -> int:
    """Return the present moment, in ns of the rank's own clock."""
    return (HOST if _current is None else _current.clock).ns(now_here())


def now_here() -> Moment:
    """Return the present moment on the clock of this process's run, or outside a run the host's."""
    return HOST.now() if _current is None else _current.clock.now()
