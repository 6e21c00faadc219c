"""The emulated machine that a rank runs on: its clock, its speed, and its way to the timekeeper."""

from __future__ import annotations

import functools
import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from ddpkit import torch_private
from ddpkit.machine import MachineModel
from ddpkit.protocol.call import Call
from ddpkit.protocol.emulation import (
    GOING,
    MAIN,
    MAY_WAIT,
    MEETING,
    WAITING,
    ClockPage,
    PostedCollective,
    StoreUsed,
)
from ddpkit.rank.emulation.clock import Clocks
from ddpkit.rank.emulation.desk import Desk
from ddpkit.rank.emulation.seen import seen
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import HOST, Ends
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.where import user_call

if TYPE_CHECKING:  # loads a part of torch that other machines do not need
    from ddpkit.rank.emulation.counted import Counted
    from ddpkit.rank.emulation.memory import Memory


class Awaited(Ends, Protocol):
    """An operation whose future somebody has taken."""

    call: Any  # the record of it
    answer: Any  # what the timekeeper has said, if anybody has waited for it

    @property
    def over_ns(self) -> int:
        """When it is done, and all callbacks that follow it."""

    def release(self) -> None:
        """Let go of its future, which nobody will ask it for again."""


class Machine:
    """The machine of a rank during one run. `epoch_ns` is the date at which its clock is 0.

    ``model`` is the modelled machine by which compute is counted, if it is.
    """

    def __init__(
        self,
        speed: float,
        page: ClockPage,
        desk: Desk,
        epoch_ns: int,
        model: MachineModel | None = None,
        rank: int = 0,
    ) -> None:
        torch_private.require(torch_private.Feature.EMULATED)
        self.clocks, self.desk = Clocks(speed if model is None else math.inf, page), desk
        self._epoch_ns = epoch_ns
        self._counted: Counted | None = None
        if model is not None:
            torch_private.require(torch_private.Feature.COUNTED)
            from ddpkit.rank.emulation.counted import Counted

            self._counted = Counted(model, speed, self.clocks, rank)
        self._in_backward: list[Awaited] | None = None
        self._last_post_ns = 0
        self._runs = False  # the user's function
        self._turns: Counter[tuple[str, tuple[int, ...]]] = Counter()  # of groups, as they are made
        self.given_up: set[Any] = set()  # operations that a wait with a limit gave up
        self._notes: list[list[Any]] | None = None  # a program, as `simulate.claimed` has it

    @contextmanager
    def shown(self, recorder: Recorder) -> Iterator[None]:
        """A block in which this is the machine that the rank's code sees."""
        global _current
        import torch

        _current = self
        recorder.clock = self.clocks
        recorder.host_now = self.clocks.now
        with ExitStack() as undo:
            self._undo, self._recorder = undo, recorder
            undo.enter_context(seen(self.clocks, self._epoch_ns))
            if self._counted is not None:
                undo.enter_context(self._counted.in_threads())
                undo.enter_context(self._counted.workers_free())
            for name in ("backward", "grad"):
                original = getattr(torch.autograd, name)
                undo.callback(setattr, torch.autograd, name, original)
                setattr(torch.autograd, name, self._replayed(original))
            ddp: Any = torch.nn.parallel.DistributedDataParallel
            builtin = getattr(ddp, torch_private.BUILTIN_HOOK)
            undo.callback(setattr, ddp, torch_private.BUILTIN_HOOK, builtin)
            setattr(ddp, torch_private.BUILTIN_HOOK, _in_python(builtin))
            try:
                yield
            finally:
                _current = None

    @contextmanager
    def running(self, recorder: Recorder) -> Iterator[None]:
        """A block in which the main thread's clock goes.

        Afterwards it is known when the operations were done that nobody has waited for.
        """
        clock = self.clocks.main
        with self.counting() if self._counted is None else self._counted.running(recorder):
            self._runs = True
            clock.leave()
            try:
                yield
            finally:
                clock.enter()
                self._runs = False
            for call in recorder.under_way():
                if call.work is not None:
                    call.work.ask(clock.now())

    # The program of a rank

    @contextmanager
    def noting(self) -> Iterator[list[list[Any]]]:
        """A block whose program is written down: all that moves the main thread's clock.

        Only where compute is counted; elsewhere the program stays empty.
        """
        program: list[list[Any]] = []
        if self._counted is None:
            yield program
            return
        self._notes, self._counted.meter.note = program, self._note_work
        try:
            yield program
        finally:
            self._notes = self._counted.meter.note = None

    def note(self, *entry: Any) -> None:
        """Write down what the main thread does, if it is asked for."""
        if self._notes is not None:
            elsewhere = self.clocks.mine is not self.clocks.main
            self._notes.append(["beyond", "a thread of its own"] if elsewhere else [*entry])

    def _note_work(self, kind: str, dtype: str, flops: int, nbytes: int) -> None:
        assert self._notes is not None
        entry = ["work", kind, dtype, flops, nbytes]
        if self._notes and self._notes[-1][:5] == entry and self.clocks.mine is self.clocks.main:
            self._notes[-1][5] += 1
        else:
            self.note(*entry, 1)

    @property
    def memory(self) -> Memory | None:
        """What is alive on the modelled machine; None on one that is not modelled."""
        return None if self._counted is None else self._counted.memory

    def counting(self) -> AbstractContextManager[None]:
        """A block in which what this thread computes is counted, if that is what is charged."""
        return nullcontext() if self._counted is None else self._counted.here()

    def left(self) -> None:
        """Say that the rank does nothing more."""
        self.desk.left()

    def forked(self) -> None:
        """Give a child of the rank, which has been forked, real time, and take what is the rank's.

        The child shares the rank's clock page and its way to the timekeeper.
        """
        global _current
        _current = None
        self._undo.close()
        if self._counted is not None:
            self._counted.stop()
        self._recorder.clock, self._recorder.host_now = HOST, HOST.now
        self.clocks.main.forget_page()
        self.desk.close()

    # Groups

    def meet(self, group: str, members: tuple[int, ...]) -> None:
        """Wait in emulated time until all members of a new group have come.

        Then gloo connects the members, which takes no emulated time. It would be simpler to leave
        the wait to gloo. But then the timekeeper could not tell a rank that waits for a later
        member from a rank that is slow on a busy core.
        """
        clock, thread = self.clocks.mine, threading.get_ident()
        if not self._runs or clock.is_later or len(members) < 2:
            return
        number, before = next(self.desk.numbers), clock.now()
        self._turns[group, members] += 1
        turn = self._turns[group, members]
        (where, via), recorder = user_call(sys._getframe()), self._recorder
        recorder.waits[thread] = RecordedCall(
            Call(via, group, where, members=members if group else ())
        )
        made = f"{group} is made by {members}"
        self.desk.tell(PostedCollective(number, before, made, turn, MEETING, 0, members, None))
        try:
            due = self.desk.ask(((number, 0),), before)
        finally:
            recorder.wait_over(thread)
        clock.jump(max(due.done_ns or 0, due.now_ns))
        if clock.now() > before:
            self.note("beyond", "a group to which ranks come at different times")

    # Stores

    @property
    def runs(self) -> bool:
        """True while the user's function runs."""
        return self._runs

    @contextmanager
    def turn_at_store(self, *, changes: bool) -> Iterator[None]:
        """A block in which the thread uses a store, at its time: no rank can do anything earlier.

        The thread of callbacks has no time that is known already, and takes no turn.
        """
        clock = self.clocks.mine
        if clock.is_later:
            yield
            if changes:
                self.desk.tell(StoreUsed(MAIN, None, changed=True))
            return
        with clock.stopped(), self.desk.turn_at_store(clock.now(), changes=changes) as now_ns:
            clock.jump(now_ns)
            yield

    def wait_for_store(self, is_there: Callable[[], bool], seconds: float, look: float) -> bool:
        """Wait until something is there in a store; False if it is not after so many seconds.

        ``look`` is the real time between two looks for what nobody has told of.
        """
        clock = self.clocks.mine
        with clock.stopped():
            before = clock.now()
            limit = None if math.isinf(seconds) else before + round(seconds * 1e9)
            while True:
                with self.turn_at_store(changes=False):
                    if is_there():
                        break
                if limit is not None and clock.now() >= limit:
                    return False
                due = self.desk.ask_for_change(clock.now(), limit, is_there, look)
                until = limit if due.done_ns is None else due.done_ns
                assert until is not None
                clock.jump(max(due.now_ns, until))
            if clock.now() > before:
                self.note("beyond", "a store, in which a rank waits for what another one sets")
            return True

    # DDP's wait

    @property
    def in_backward(self) -> bool:
        """Whether a backward of the main thread is under way."""
        return self._in_backward is not None

    def future_taken(self, operation: Awaited) -> None:
        """Note that somebody may wait for an operation by its future."""
        if self._in_backward is not None and self.clocks.mine is self.clocks.main:
            self._in_backward.append(operation)
            self.note("beyond", "DistributedDataParallel of torch's, which waits in C++")
            self._last_post_ns = self.clocks.main.now()
            self.clocks.main.how = MAY_WAIT
            self._say_when_it_waits()

    def _say_when_it_waits(self) -> None:
        """Let the clock's page say that the reducer waits, once the backward has no more to do.

        What is queued here comes before the reducer's own end of the backward, which it queues with
        the last bucket; but not in the first step of a static graph.
        """

        def waits() -> None:
            self.clocks.main.how = WAITING
            self.clocks.main.say_how()

        torch_private.after_backward(waits)

    def _replayed(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """A backward whose hidden waits are put on the clock when it is over."""

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self._in_backward is not None or self.clocks.mine is not self.clocks.main:
                return original(*args, **kwargs)
            self._in_backward = []
            try:
                result = original(*args, **kwargs)
                self._replay_waits(self._in_backward)
                if self.memory is not None:
                    self.memory.note_gradients()
                return result
            finally:
                self._in_backward, self.clocks.main.how = None, GOING
                self.clocks.main.say_how()

        return backward

    def _replay_waits(self, operations: list[Awaited]) -> None:
        """Set the clock as if the reducer had waited for each bucket in emulated time.

        The reducer waits for the buckets in order, and copies each bucket when the bucket arrives.
        The thread's compute since the last post is the copying, shared among buckets by bytes.
        """
        waited = [operation for operation in operations if operation.answer is None]
        if not waited:
            return
        clock = self.clocks.main
        with clock.stopped():
            copying = clock.now() - self._last_post_ns
            whole = sum(operation.call.what.bytes for operation in waited) or 1
            now = float(self._last_post_ns)
            for operation in waited:
                now = max(now, operation.over_ns) + copying * (operation.call.what.bytes / whole)
            clock.jump(round(now))
        for operation in operations:
            operation.release()


def _in_python(original: Callable[..., Any]) -> Callable[..., Any]:
    """A registration of C++'s hooks that takes Python's where the one in C++ has a callback.

    C++ would run that in gloo's thread, at no emulated time, and on a value of C++'s own alone. The
    other hook, a plain all_reduce, has none.
    """

    @functools.wraps(original)
    def register(ddp: Any, comm_hook_type: Any) -> None:
        from torch.distributed import BuiltinCommHookType
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        if comm_hook_type == BuiltinCommHookType.FP16_COMPRESS:
            ddp.register_comm_hook(ddp.process_group, fp16_compress_hook)
        else:
            original(ddp, comm_hook_type)

    return register


_current: Machine | None = None


def _in_child() -> None:
    if _current is not None:
        _current.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def counted_machine() -> Machine | None:
    """The machine of the run that this process is in, if its compute is counted."""
    return None if _current is None or _current.memory is None else _current


def current() -> Machine | None:
    """The machine of the run that this process is in; None if time is real."""
    return _current
