"""An operation of an emulated group: gloo moves the bytes, the timekeeper sets the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch

from ddpkit import torch_private
from ddpkit.protocol.call import Call
from ddpkit.protocol.emulation import After, Due
from ddpkit.rank.emulation.clock import LaterClock
from ddpkit.rank.emulation.machine import Machine
from ddpkit.rank.group.ended import Carried, EndedCollective
from ddpkit.rank.group.futures import EmulatedFuture
from ddpkit.rank.group.uncarried import Uncarried, carried_for
from ddpkit.rank.group.work import RecordedWork, alive
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import DeviceMoment
from ddpkit.rank.record.recorder import Recorder

if TYPE_CHECKING:
    import torch.distributed as dist

if TYPE_CHECKING:  # the import loads a part of torch that only machines with a device need
    from ddpkit.rank.emulation.device import Device
    from ddpkit.rank.emulation.held import Held
    from ddpkit.rank.emulation.memory import Memory

# Operations that sum over all ranks -> the position of the input, which in a backward is a bucket.
SUMS = {"all_reduce": 0, "reduce": 0, "reduce_scatter_tensor": 1, "reduce_scatter": 1}
# A look that finds an operation under way costs LOOK_NS plus 1/SHARE of the time since the first
# look, in emulated time, but at most LOOK_AT_MOST_NS: an endless loop's clock stays finite.
LOOK_NS = 1_000
SHARE = 64
LOOK_AT_MOST_NS = 1_000_000_000


def _of_its_own(value: Any) -> Any:
    """Return a value in which each dense tensor is replaced by a new tensor on the same storage."""
    if isinstance(value, list):
        return [*map(_of_its_own, value)]
    if isinstance(value, tuple):
        return tuple(map(_of_its_own, value))
    is_dense = isinstance(value, torch.Tensor) and value.layout is torch.strided
    # `detach()` would share the version: a late copy of gloo's would look like the program's.
    return value.data if is_dense else value


class EmulatedOperation:
    """An operation that runs on the emulated network and in gloo."""

    def __init__(self, machine: Machine, call: RecordedCall, number: int) -> None:
        self._machine, self.call, self.number = machine, call, number
        self.inner: Any = None  # gloo's handle
        self.answer: Due | None = None  # the timekeeper's answer, once it is known
        self.future: EmulatedFuture | None = None
        self.bucket: list[torch.Tensor] = []  # tensors of DDP's reducer, until a future is taken
        self.followed_by: list[tuple[int, int]] = []  # on a device: last launches of callbacks
        self.tensors: list[torch.Tensor] = []  # on a device; emptied when gloo's bytes are here
        self._carried: list[Held] = []
        # Results for which gloo carries small tensors, and all arguments of the call.
        self._uncarried: tuple[list[torch.Tensor], tuple[object, ...]] = [], ()
        self._in_gloo: Carried | None = None
        self._looked_since: int | None = None
        self._source = -1
        self._here = False  # True once the operation's bytes are here
        # starts a receive from any rank, given its source
        self.start_from: Callable[[int], object] | None = None
        self.started = threading.Event()  # set when gloo has a receive from any rank, or refused it
        self._error: Exception | None = None  # gloo's error at the start of such a receive

    def carry(self, memory: Memory, method: str, args: tuple[Any, ...]) -> tuple[object, ...]:
        """Record the tensors of an operation, for the memory levels; return the arguments for gloo.

        On a device the program uses the tensors while gloo still reads or writes them. So gloo gets
        new tensors on the same storages: a raised reference count shows that gloo still holds a
        tensor.
        """
        if self._machine.backward.is_under_way and self.call.what.op in SUMS:
            memory.note_reduced(args[SUMS[self.call.what.op]])
        self._carried = memory.carried(args)
        if self._machine.device is not None:
            self.tensors = memory.tensors_in(args)
        given, uncarried = args, list[torch.Tensor]()
        if self._machine.uncomputed is not None:
            given, uncarried = carried_for(method, args, self.call.what)
            self._uncarried = uncarried, args
        if self.call.what.op in ("send", "recv"):  # no gloo thread takes part in messages
            return given
        if self._machine.device is not None and not uncarried:
            given = _of_its_own(args)
        self._in_gloo = Carried(memory.tensors_in(given), memory.tensors_in(args[:1]))
        return given

    def started_by_gloo(self, handle: dist.Work) -> None:
        """Store gloo's handle of the started operation."""
        results, args = self._uncarried
        self.inner = Uncarried(handle, results, args) if results else handle
        self._uncarried = [], ()

    def release(self) -> None:
        """Drop the future, because no code will use the future again."""
        self.future = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operation is done in emulated time, and gloo has moved its bytes."""
        clock = self._machine.clocks.mine
        if isinstance(clock, LaterClock):
            self._take_bytes()
            clock.follow(self)
            return True
        device = self._machine.device
        if device is not None and timeout is None and self.start_from is None:
            return self._let_stream_wait(device)
        limit = None if timeout is None else clock.now() + int(timeout.total_seconds() * 1e9)
        if not self._is_done(limit):
            assert limit is not None
            clock.jump(limit)
            # keeps the receive: otherwise gloo reads nothing more from that peer
            self._machine.given_up.add(self)
            raise RuntimeError(f"Timed out waiting {timeout} for the operation to complete")
        clock.jump(self.done_ns)
        self._machine.note("wait", self.number)
        return self.take_bytes()

    def _let_stream_wait(self, device: Device) -> bool:
        """Make the current stream wait. The host waits only for a barrier."""
        device.waited(self.number)
        device.follow(self.follows())
        if self.call.what.op == "barrier":
            device.wait(why="barrier")
            return self.take_bytes()
        if _gloo_may_refuse(self.call.what):
            return self.take_bytes()
        device.carried.add(self.tensors, self)
        return True

    def follows(self) -> After:
        """Return the operations for which a stream waits: this operation and its callbacks."""
        return ((self.number, 0), *self.followed_by)

    def take_bytes(self) -> bool:
        """Wait until gloo has moved the bytes, in no emulated time; release the tensors."""
        clock, device = self._machine.clocks.mine, self._machine.device
        if device is not None:
            device.waited(self.number)
            if not self._here:
                device.meet(self.number, self.call)
        with nullcontext() if device is None else device.said(self.call):
            done = self._take_bytes()
        self.tensors = []
        for held in self._carried:
            held.collected_ns = clock.now()
        if self.future is not None:  # c10d reads the future's value right after the wait
            self.future.wait_for_gloo()
        if self._in_gloo is not None and (self.future is None or self.future.is_results):
            carried, self._in_gloo = self._in_gloo, None
            self.inner = EndedCollective(carried.results)
            carried.wait_for_gloo()
        return done

    def is_completed(self) -> bool:
        """True if the operation is done. A check before its end costs a little emulated time."""
        clock = self._machine.clocks.mine
        if isinstance(clock, LaterClock):
            return self.inner is not None and bool(self.inner.is_completed())
        with clock.stopped():
            if self._is_done(clock.now()):
                self._take_bytes()
                return True
            if self._looked_since is None:
                self._looked_since = clock.now()
            share = (clock.now() - self._looked_since) // SHARE
            clock.pass_by(min(LOOK_NS + share, LOOK_AT_MOST_NS))
            return False

    def _take_bytes(self) -> bool:
        """Wait for gloo only once, because a second wait would wait for the next message."""
        if not self._here:
            self._wait_for_source()
            self._here = bool(self.inner.wait())
            self._machine.given_up.discard(self)
        return self._here

    def get_future(self) -> EmulatedFuture:
        """Return the operation's future, which runs callbacks at the operation's emulated end."""
        if self.future is None:
            bucket, self.bucket = self.bucket, []
            self.future = EmulatedFuture(self._machine, self, self.inner, results=bucket)
            device = self._machine.device
            if bucket and device is not None:
                device.carried.add(bucket, self, reduces=True)
                device.waited(self.number)
                self.call.blocked = DeviceMoment(self.number, waits=True)
            self._machine.backward.future_taken(self)
        return self.future

    def ask(self, ns: int) -> None:
        """Ask the timekeeper whether the operation has ended by `ns`, and store the end."""
        self._is_done(ns)

    @property
    def done_ns(self) -> int:
        """The end of the operation in ns. The property waits until the timekeeper knows the end."""
        if self.answer is None or self.answer.done_ns is None:
            self._is_done(None)
        done = None if self.answer is None else self.answer.done_ns
        assert done is not None
        return done

    @property
    def over_ns(self) -> int:
        """The time in ns at which the operation and all callbacks attached to it are done."""
        moments = [] if self.future is None else self.future.chain.moments
        return max([self.done_ns, *(moment.ns() for moment in moments)])

    def _is_done(self, limit_ns: int | None) -> bool:
        """True if the operation is done at `limit_ns`; store the timekeeper's answer."""
        if self.answer is None or self.answer.done_ns is None:
            machine = self._machine
            now = machine.clocks.mine.now()
            self.answer = machine.desk.ask(((self.number, 0),), now, limit_ns)
            machine.clocks.mine.jump(self.answer.now_ns)
            if self.answer.done_ns is not None:
                self._write_down(self.answer)
        done = self.answer.done_ns
        return done is not None and (limit_ns is None or done <= limit_ns)

    def _write_down(self, answer: Due) -> None:
        assert answer.done_ns is not None
        self.call.done = answer.done_ns
        self._wait_for_source()

    # A receive from any rank

    def has_source(self) -> bool:
        """True if the timekeeper already knows the sender of the message."""
        self._is_done(self._machine.clocks.mine.now())
        return self.answer is not None and self.answer.source >= 0

    def source_is_known(self, rank: int) -> None:
        """Give the receive to gloo as a receive from `rank`. A thread of ddpkit calls this."""
        assert self.start_from is not None
        try:
            self._source = self.call.what.members.index(rank)
            self.inner = self.start_from(rank)
        except Exception as error:
            self._error = error
        self.start_from = None
        self.started.set()

    def _wait_for_source(self) -> None:
        if self.inner is None:
            self.started.wait()
            if self._error is not None:
                raise self._error

    def _source_rank(self) -> int:
        return self._source if self._source >= 0 else torch_private.source_of(self.inner)

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)


class EmulatedWork(RecordedWork):
    """The Work of an emulated group's call. The rank's clock stands still during the wait."""

    def __init__(
        self, inner: EmulatedOperation, call: RecordedCall, recorder: Recorder, machine: Machine
    ) -> None:
        super().__init__(inner, call, recorder)
        self._clocks, self._device = machine.clocks, machine.device

    def wait(self, timeout: timedelta | None = None) -> bool:
        with self._clocks.mine.stopped():
            if self._device is not None:
                return self._wait_on(self._device, timeout)
            try:
                return super().wait(timeout)
            finally:
                call = self._call
                call.collected = self._recorder.now(call)
                done, blocked = call.done, call.blocked
                if isinstance(done, int) and isinstance(blocked, int) and done <= blocked:
                    call.blocked = None  # the call was done before the wait
                self._recorder.keep(call)

    def _wait_on(self, device: Device, timeout: timedelta | None) -> bool:
        """Make the device's current stream wait, and record the wait for the trace."""
        self._over()
        self._call.blocked = DeviceMoment(self._inner.number, waits=True)
        try:
            return bool(self._inner.wait(timeout or None))  # C++ passes 0 for "no timeout"
        finally:
            alive.waited(self, self._call.what.bytes)

    def get_future(self) -> Any:
        with self._clocks.mine.stopped():
            return super().get_future()


def _gloo_may_refuse(what: Call) -> bool:
    """True for an average of integers.

    NCCL refuses such a call at once, gloo only at the call's end.
    """
    return what.reduce == "AVG" and not what.dtype.startswith(("float", "bfloat", "complex"))
