"""The process group of an emulated cluster: gloo moves the bytes, the timekeeper sets the times.

The problem. All ranks are on one machine. There gloo moves a message in microseconds, and the ranks
share a few cores. A lesson teaches the effects of latency and bandwidth, and the cost of a step on
eight ranks, each on its own machine.

It would be simpler to let each operation last as long as on the link, by sleeping. This was done.
But the ranks still computed on the laptop's few cores: small messages took 3 to 18 times the
formula's time, and a step of eight ranks took four times as long as a step of one rank.

So time is emulated. When a rank posts an operation, the rank reports the operation and the rank's
own emulated time to the timekeeper, and hands the bytes to gloo. To wait, the rank asks the
timekeeper for the end of the operation, and the rank's clock jumps to this time
(`emulation.clock`). Then the rank waits for gloo, which has already moved the bytes or moves them
at once. No rank sleeps.

DDP's reducer waits for its buckets inside C++, at the end of a backward. The reducer waits for
gloo's future, which takes no emulated time. When the backward pass is over, `Machine` replays that
wait in emulated time.

Callbacks of a future run in a thread of ddpkit's, in the order in which they were attached, as soon
as gloo is done. Their clock is relative to the operation that they follow
(`emulation.clock.LaterClock`). Operations that callbacks post use a second gloo group. gloo pairs
the operations of one group in the order of real time, so in a single group, buckets and operations
of callbacks would be paired differently on each rank.

What must hold:

- The timekeeper is told of an operation before gloo gets the bytes, and before the clock runs
  again.
- A receive from any rank is handed to gloo when the timekeeper has named its source: gloo itself
  would take the first message in real time. The timekeeper names the source as soon as the source
  is known, whatever the receiving rank does. Otherwise the sender would wait in gloo, and no clock
  could pass the sender's.
- Receives of one tag are handed to gloo in the order in which the network has matched them.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch.distributed import Work

from ddpkit import torch_private
from ddpkit.protocol.call import Call
from ddpkit.protocol.emulation import PostedCollective, PostedSend, Withdrawn
from ddpkit.rank.emulation.clock import LaterClock
from ddpkit.rank.emulation.machine import Machine
from ddpkit.rank.group import absent, arguments
from ddpkit.rank.group.absent import Absent
from ddpkit.rank.group.operation import EmulatedOperation, EmulatedWork
from ddpkit.rank.group.recorded import RecordedGroup, is_reducer
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.recorder import Recorder

if TYPE_CHECKING:
    import torch.distributed as dist

Start: TypeAlias = Callable[..., Any]  # (call, method, *args): `direct.Direct.start`
CALLBACKS = "callbacks"  # part of the name of the callbacks' group


class EmulatedGroup(RecordedGroup):
    """A recorded group with operations that end when the emulated network ends them."""

    def __init__(
        self,
        inner: dist.ProcessGroupGloo,
        start: Start,
        name: str,
        members: tuple[int, ...],
        recorder: Recorder,
        machine: Machine,
        start_of_callbacks: Callable[[], Start],
        of_absent: Absent | None = None,
        described: str = "",
    ) -> None:
        running = () if of_absent is None else of_absent.running
        super().__init__(
            *(inner, self._emulated, name, members, recorder), running=running, described=described
        )
        self._absent = of_absent
        self._machine, self._direct = machine, start
        self._make_twin = start_of_callbacks
        self._twin: Start | None = None
        self._twin_lock = threading.Lock()
        # tag -> operations that receive from any rank, and have no known sender yet
        self._from_anybody: dict[int, list[EmulatedOperation]] = {}

    @property
    def _label(self) -> str:
        if self._machine.clocks.mine.is_later:
            return f"{self._name} {CALLBACKS}".strip()
        return self._name

    def _collective(self, method: str, args: tuple[object, ...], kwargs: dict[str, object]) -> Work:
        with self._machine.clocks.mine.stopped():
            return super()._collective(method, args, kwargs)

    def _posted(self, op: str, payload: object, **details: Any) -> RecordedCall:
        if self._absent is not None:
            self._absent.check(op, details.get("root"))
        return super()._posted(op, payload, **details)

    def _peer(self, op: str, argument: str, group_rank: int) -> int:
        peer = super()._peer(op, argument, group_rank)
        if self._absent is not None:
            self._absent.check(op, peer)
        return peer

    def allreduce(self, *args: Any, **kwargs: object) -> Work:
        caller = sys._getframe().f_back
        if not is_reducer(caller):
            return self._collective("allreduce", args, kwargs)
        clock = self._machine.clocks.mine
        with clock.stopped():
            call = self._bucket_posted(args[0][0], caller)
            operation = self._begun(call, "allreduce", *args, **kwargs)
            operation.bucket = args[0]
            call.work = operation
            return self._work(operation, call)

    def send(self, tensors: list[torch.Tensor], dstRank: int, tag: int = 0) -> Work:
        with self._machine.clocks.mine.stopped():
            return super().send(tensors, dstRank, tag)

    def recv(self, tensors: list[torch.Tensor], srcRank: int, tag: int = 0) -> Work:
        with self._machine.clocks.mine.stopped():
            return super().recv(tensors, srcRank, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int = 0) -> Work:
        with self._machine.clocks.mine.stopped():
            return super().recv_anysource(tensors, tag)

    def _work(self, inner: Any, call: RecordedCall) -> Work:
        # the device's queue holds the call longer than the call should hold its tensors
        if self._machine.device is not None:
            call.work = None
        return EmulatedWork(inner, call, self._recorder, self._machine)

    def _tell_when_done(self, inner: Work, call: RecordedCall) -> None:
        """Do nothing, because the timekeeper knows when the operation ends."""

    def _emulated(
        self, call: RecordedCall, method: str, *args: Any, **kwargs: object
    ) -> EmulatedOperation:
        """Tell the timekeeper of an operation, and hand it to gloo.

        The timekeeper forgets an operation that gloo refuses. This rank's clock stands still until
        then, so the refused operation has had no effect on the emulated network.
        """
        machine, what = self._machine, call.what
        if absent.groups_made is not None:
            absent.groups_made.check()
        clock = machine.clocks.mine
        number = next(machine.desk.numbers)
        operation = EmulatedOperation(machine, call, number)
        given = args
        if machine.memory is not None:
            given = operation.carry(machine.memory, method, args)
        if isinstance(clock, LaterClock):
            after, ns = clock.after(), 0
        else:
            after, ns = machine.post(operation, args, by_nccl=self.believed_nccl), clock.now()
        if what.op in ("send", "recv"):
            if what.op == "recv":
                self._await_sources(what.tag)
            if what.op == "recv" and what.peer is None:
                tensors, tag = given
                operation.start_from = lambda source: self._direct(
                    call, "recv", tensors, what.members.index(source), tag
                )
                self._from_anybody.setdefault(tag, []).append(operation)
                machine.desk.when_found(number, operation.source_is_known)
            receives = what.op == "recv"
            message = PostedSend(
                number, ns, what.group, what.peer, what.bytes, what.tag, receives, after
            )
            machine.desk.tell(message)
            if what.op == "send" or what.peer is not None:
                with self._withdrawn_if_refused(message):
                    operation.started_by_gloo(self._direct(call, method, *given, **kwargs))
            machine.note("post", number, *_posted(what, self._members, call.seq))
            return operation
        parts = arguments.unequal_parts(what.op, args, len(self._members))
        if self._absent is not None:
            self._absent.check_parts(what.op, *parts)
            parts = (), ()
        part = PostedCollective(
            *(number, ns, what.group, call.seq, what.op, what.bytes, self._members, what.root),
            *(after, *parts),
        )
        machine.desk.tell(part)
        start = self._start_of_callbacks() if clock.is_later else self._direct
        # gloo's thread would call the counting modes, and lose exceptions that the modes raise.
        unseen = torch_private.unseen_by_modes()
        try:
            with self._withdrawn_if_refused(part):
                operation.started_by_gloo(start(call, method, *given, **kwargs))
        finally:
            del unseen
        if part.sends:
            sends, takes = map(list, parts)
            where = what.group, [*self._members], call.seq
            machine.note("exchange", number, what.op, sends, takes, *where)
        else:
            machine.note("post", number, *_posted(what, self._members, call.seq))
        return operation

    @contextmanager
    def _withdrawn_if_refused(self, post: PostedSend | PostedCollective) -> Iterator[None]:
        """A block in which the timekeeper forgets an operation if gloo refuses the operation."""
        try:
            yield
        except Exception:
            self._machine.desk.tell(Withdrawn(post))
            if self._machine.device is not None:
                self._machine.device.refused(post.number)
            raise

    def _await_sources(self, tag: int) -> None:
        """Start earlier receives from any rank first, if their messages have already arrived."""
        waiting = [each for each in self._from_anybody.pop(tag, []) if not each.started.is_set()]
        while waiting and waiting[0].has_source():
            waiting.pop(0).started.wait()
        if waiting:
            self._from_anybody[tag] = waiting

    def _start_of_callbacks(self) -> Start:
        with self._twin_lock:
            if self._twin is None:
                self._twin = self._make_twin()
            return self._twin


def _posted(what: Call, members: tuple[int, ...], seq: int) -> tuple[object, ...]:
    """Return an operation as an entry of a rank's program (see `Machine.noting`)."""
    return what.op, what.bytes, what.group, [*members], seq, what.root, what.peer, what.tag
