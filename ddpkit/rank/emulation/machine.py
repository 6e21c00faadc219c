"""The emulated machine of a rank: its clock, its speed, and its connection to the timekeeper."""

from __future__ import annotations

import math
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit import torch_private
from ddpkit.machine import MachineModel
from ddpkit.protocol.alike import Alike
from ddpkit.protocol.call import Call
from ddpkit.protocol.emulation import (
    MAIN,
    MEETING,
    After,
    ClockPage,
    PostedCollective,
    StoreUsed,
)
from ddpkit.rank.emulation.backward import EmulatedBackward
from ddpkit.rank.emulation.clock import Clocks
from ddpkit.rank.emulation.desk import Desk
from ddpkit.rank.emulation.seen import seen
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import HOST
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.where import user_call

if TYPE_CHECKING:  # the imports load a part of torch that not every machine needs
    import torch

    from ddpkit.rank.emulation.carried import Carrying
    from ddpkit.rank.emulation.counted import Counted
    from ddpkit.rank.emulation.device import Device
    from ddpkit.rank.emulation.memory import Memory
    from ddpkit.rank.emulation.places import Places
    from ddpkit.rank.emulation.uncomputed import Uncomputed


class Machine:
    """The machine of a rank during one run.

    `epoch_ns` is the date at which the rank's clock shows 0. ``model`` is the modelled machine that
    gives the cost of compute, or None. Without ``values``, operations on large tensors are counted
    and not computed. ``alike`` names the absent ranks.
    """

    def __init__(
        self,
        speed: float,
        page: ClockPage,
        desk: Desk,
        epoch_ns: int,
        model: MachineModel | None = None,
        rank: int = 0,
        *,
        values: bool = True,
        alike: Alike | None = None,
    ) -> None:
        torch_private.require(torch_private.Feature.EMULATED)
        self.clocks, self.desk = Clocks(speed if model is None else math.inf, page), desk
        self._epoch_ns = epoch_ns
        self._counted: Counted | None = None
        self.device: Device | None = None
        self.uncomputed: Uncomputed | None = None
        if model is not None:
            torch_private.require(torch_private.Feature.COUNTED)
            from ddpkit.rank.emulation.counted import Counted
            from ddpkit.rank.emulation.device import Device

            if model.has_device:
                torch_private.require(torch_private.Feature.DEVICES)
                self.device = Device(self.clocks, desk)
            if not values:
                torch_private.require(torch_private.Feature.NO_VALUES)
                from ddpkit.rank.emulation.uncomputed import Uncomputed

                self.uncomputed = Uncomputed()
            self._counted = Counted(model, speed, self.clocks, rank, self.device, self.uncomputed)
        self.backward = EmulatedBackward(self.clocks, self.device, self.memory, self.note)
        self._runs = False  # True while the user's function runs
        # (name of a new group, its ranks) -> number of meetings
        self._turns: Counter[tuple[str, tuple[int, ...]]] = Counter()
        self.alike = alike
        self.given_up: set[object] = set()  # operations that a wait with a limit gave up
        self._notes: list[list[Any]] | None = None  # a program of `simulate.engine.claimed`

    @contextmanager
    def shown(self, recorder: Recorder) -> Iterator[None]:
        """A block in which the rank's code sees this machine in place of the real one."""
        global _current

        _current = self
        recorder.clock = self.clocks
        recorder.host_now = self.clocks.now
        with ExitStack() as undo:
            self._undo, self._recorder = undo, recorder
            undo.enter_context(seen(self.clocks, self._epoch_ns))
            if self._counted is not None:
                undo.enter_context(self._counted.in_threads())
                undo.enter_context(self._counted.workers_free())
            if self.device is not None:
                from ddpkit.rank.emulation.streams import shown
                from ddpkit.rank.emulation.timed import TimedLaunches

                recorder.clock, recorder.host_now = self.device, self.device.moment
                recorder.ends_are_late = True
                if recorder.rank == 0:
                    timed = TimedLaunches(self.device)
                    self.clocks.looked, recorder.timed = timed.looked, timed.text
                recorder.more_spans = partial(self.device.spans, recorder.rank)
                undo.enter_context(shown(self.device))
            undo.enter_context(self.backward.replayed())
            try:
                yield
            finally:
                _current = self.clocks.looked = None

    @contextmanager
    def running(self, recorder: Recorder) -> Iterator[None]:
        """A block in which the main thread's clock runs.

        After the block, the ends of all operations are known, even of operations for which no code
        has waited.
        """
        clock = self.clocks.main
        with self.counting() if self._counted is None else self._counted.running(recorder):
            self._runs = True
            clock.leave()
            returned = False
            try:
                yield
                returned = True
            finally:
                clock.enter()
                self._runs = False
                if self.device is not None:
                    self.device.ended(well=returned)
            for call in recorder.under_way():
                if call.work is not None:
                    call.work.ask(clock.now())

    # The program of a rank

    @contextmanager
    def noting(self) -> Iterator[list[list[object]]]:
        """A block that yields a list, and adds every step of the main thread's clock to the list.

        The list is the program of the block. It stays empty unless compute is counted.
        """
        program: list[list[object]] = []
        if self._counted is None:
            yield program
            return
        if self.device is not None:
            program.append(["beyond", "a machine with a device"])
            yield program
            return
        self._notes, self._counted.meter.note = program, self._note_work
        try:
            yield program
        finally:
            self._notes = self._counted.meter.note = None

    def note(self, *entry: object) -> None:
        """Add an entry to the program in a `noting` block; from another thread, add "beyond"."""
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
        """The live storages of a modelled machine; None for a machine without a model."""
        return None if self._counted is None else self._counted.memory

    def tell_places(self) -> Places | None:
        """Give each of a script's tensors a place, device or host; return None without a device."""
        if self.device is None or self._counted is None:
            return None
        return self._counted.tell_places(self.device)

    def tensor_of_host(self, args: tuple[object, ...]) -> torch.Tensor | None:
        """Return the first tensor of a call that a script keeps in the host's memory, or None."""
        places = None if self._counted is None else self._counted.places
        return None if places is None else places.first_of_host(args)

    def has_tensor_of_device(self, args: tuple[object, ...]) -> bool:
        """True if a script keeps a tensor of a call in the device's memory."""
        places = None if self._counted is None else self._counted.places
        return places is not None and places.any_of_device(args)

    def launch(self, ns: int) -> bool:
        """Launch a kernel of `ns` on the device; return False on a machine without a device."""
        if self.device is None or self._counted is None:
            return False
        self.device.stretch_ends()
        self.device.launch(self._counted.meter.launch_ns, ns)
        return True

    def post(
        self, operation: Carrying, args: tuple[object, ...], *, by_nccl: bool = False
    ) -> After:
        """Launch a call on the device, if there is one; return the operations before the call.

        by_nccl  True if the script has requested NCCL for the call: then the call's tensors, unless
                 known to lie on the host, lie on the device
        """
        if self.device is None or self._counted is None:
            return ()
        self.device.carried.touch(args)
        if self._counted.places is not None and by_nccl:
            self._counted.places.communicated(args)
        self.device.spend(self._counted.meter.launch_ns)
        return self.device.post(operation)

    def counting(self) -> AbstractContextManager[None]:
        """A block in which this thread's compute is counted, on a machine that counts compute."""
        return nullcontext() if self._counted is None else self._counted.here()

    def left(self) -> None:
        """Tell the timekeeper that the rank does nothing more."""
        self.desk.left()

    def forked(self) -> None:
        """Return to real time in a forked child of the rank, and stop using the rank's machine.

        The child shares the rank's clock page and connections to the timekeeper.
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
        """Wait in emulated time until all members of a new group have called `new_group`.

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
        running = members if self.alike is None else self.alike.running(members)
        recorder.waits[thread] = RecordedCall(
            Call(via, group, where, members=running if group else ())
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
        """A block in which the thread uses a store, at the time of the thread's clock.

        The block begins when no rank can still act at an earlier time. The time of the thread that
        runs callbacks is not known yet, so this thread does not wait for a turn.
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
        """Wait until `is_there()` is true; return False if `seconds` of emulated time pass first.

        ``look`` is the real time in seconds between two checks for a change that no rank has
        reported.
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
                self.note("beyond", "a store, in which a rank waits for a key of another rank")
            return True


_current: Machine | None = None


def _in_child() -> None:
    if _current is not None:
        _current.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def counted_machine() -> Machine | None:
    """Return the machine of this process's run if compute is counted, or None."""
    return None if _current is None or _current.memory is None else _current


def current() -> Machine | None:
    """Return the machine of this process's run; None if time is real."""
    return _current
