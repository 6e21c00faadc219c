"""Counted compute: each of torch's operations takes the time that a modelled machine would need.

A `TorchDispatchMode` sees the operations of the thread in which it is entered: those of forward, of
backward (on the CPU, a backward runs in the calling thread), of optimizers, of DDP's reducer in
C++, and of FSDP2. The mode runs each operation unchanged, counts FLOPs and the bytes that are read
and written, and puts the thread's clock forward by their cost. Nothing else moves the clock: Python
code takes no time.

What must hold: the mode leaves an operation on a subclass of Tensor, such as DTensor, to the
subclass. The subclass calls operations on its local tensors, and the mode counts only these.
What would break it: operations that do not pass the dispatcher (NumPy, loops of a C++ extension).
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpkit import torch_private
from ddpkit.machine import MachineModel
from ddpkit.rank.callers import is_torchs
from ddpkit.rank.emulation import capability
from ddpkit.rank.emulation.clock import Clocks, LaterClock, ThreadClock
from ddpkit.rank.emulation.device import Device
from ddpkit.rank.emulation.held import DEVICE, HOST, UNDECIDED
from ddpkit.rank.emulation.memory import Memory
from ddpkit.rank.emulation.meter import Meter, first_tensor, is_plain, is_traced, rule_of, words
from ddpkit.rank.emulation.shapes_only import shapes_only
from ddpkit.rank.emulation.sharded_lists import each_argument_seen_once
from ddpkit.rank.emulation.uncomputed import Uncomputed, has_a_mask
from ddpkit.rank.mode import PlainMode
from ddpkit.rank.record.loose import LooseOperations
from ddpkit.rank.record.recorder import Recorder
from ddpkit.simulate.engine.device import DOWN

if TYPE_CHECKING:
    from ddpkit.rank.emulation.places import Places

_ITEM = torch.ops.aten._local_scalar_dense.default
_MADE_OF_DATA = torch.ops.aten.lift_fresh.default
# These operations return values, or shapes that depend on values, so on CUDA the host waits.
_FETCH = words(
    "_local_scalar_dense nonzero nonzero_numpy masked_select equal _unique _unique2 unique_dim "
    "unique_consecutive bincount histc repeat_interleave"
)
_MASKED = words("index index_put index_put_ _index_put_impl_")


@cache
def _may_fetch(func: Callable[..., object]) -> str:
    """Return "always" for an operation whose host waits, "masked" if only a mask makes it wait."""
    name = torch_private.schema_of(func).name.removeprefix("aten::")
    return "always" if name in _FETCH else "masked" if name in _MASKED else ""


def _eager(compiles: Callable[..., object], *, says: bool) -> Callable[..., Any]:
    """Return a `torch.compile` that, once called by the user, makes torch run all code eagerly.

    Under a dispatch mode, the compiler skips code anyway, but raises for `fullgraph=True`.

    says  True if the first call also warns
    """
    known = False

    @wraps(compiles)
    def warns_once(*args: object, **kwargs: object) -> object:
        nonlocal known
        first = not known and not is_torchs(sys._getframe(1))
        known = known or first
        if first:
            torch.compiler.set_stance("force_eager")
        if first and says:
            text = (
                "torch.compile: on a modelled machine all code runs eagerly, and each operation "
                "is counted as if nothing were fused"
            )
            warnings.warn(text, stacklevel=2)
        return compiles(*args, **kwargs)

    return warns_once


class Counting(PlainMode):
    """The mode that counts a thread's operations, on its clock or as launches on a device."""

    def __init__(
        self,
        meter: Meter,
        memory: Memory,
        clock: ThreadClock,
        device: Device | None,
        uncomputed: Uncomputed | None,
    ) -> None:
        super().__init__()
        self._uncomputed = uncomputed
        self._meter, self._memory, self._clock, self._device = meter, memory, clock, device
        known = capability.capability_of(memory.model.name)
        self._may_lack = device is not None and known is not None  # some operations
        # gloo's threads inherit the mode of the posting thread, and their copies must not count.
        self._thread = threading.get_ident()
        self.on = True
        self._carried = None if device is None else device.carried
        self.loose: LooseOperations | None = None  # set on the main thread of a recorded run
        self.places: Places | None = None  # tells the places of a script's tensors

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> object:
        kwargs = kwargs or {}
        if types and not all(map(is_plain, types)):
            return func(*args, **kwargs) if any(map(is_traced, types)) else NotImplemented
        if torch_private.fakes():  # torch asks for a shape, as DTensor does
            return func(*args, **kwargs)
        here = self.on and threading.get_ident() == self._thread
        counts = here and not self._clock.stands
        if self._carried is not None and here and self._carried.has_any:
            # wait for bytes that gloo still writes, even if this operation is not counted
            self._carried.touch((*args, *kwargs.values()))
        if counts and self._may_lack and (name := capability.asks(func)):
            self._check(name, func, args, kwargs)
        if self._uncomputed is not None and here:
            out = self._uncomputed.run(func, args, kwargs)
        else:
            out = func(*args, **kwargs)
        if counts:
            if func.is_view:  # a view has a known storage, unless it is a view of a parameter
                if type(args[0]) is torch.nn.Parameter:
                    self._memory.see(args[:1])
                elif func is _MADE_OF_DATA and self._device is not None:
                    if self._memory.steps:
                        self._memory.give_to_host(args[0])
                    elif self.places is not None:
                        self._memory.see(args, self.places.of_data)
                return out
            place = self._place(func, args, kwargs)
            self._memory.see(args)
            self._memory.see((out,), place)
            error = self._memory.overflow()
            if error is not None:
                del out  # otherwise the error would keep the result alive
                raise error
            if self._device is not None:
                self._launch(self._device, place, func, args, kwargs, out)
                return out
            ns = self._meter.ns(func, args, kwargs, out)
            if ns:
                if self.loose is not None:
                    self.loose.add(func, self._clock.now(), ns)
                self._clock.advance(ns)
        return out

    def _check(
        self,
        name: str,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> None:
        """Raise if the modelled GPU lacks an operation that works on the device."""
        if self._place(func, args, kwargs) != HOST:
            capability.check(self._memory.model.name, name, (*args, *kwargs.values()))

    def _launch(
        self,
        device: Device,
        place: str,
        func: Callable[..., object],
        args: tuple[object, ...],
        kwargs: dict[str, object],
        out: object,
    ) -> None:
        """Make the device execute an operation.

        The host waits if the operation returns a value to the host, as `item` does.
        """
        if self.places is not None:
            if self.places.charge(place, func, args, kwargs, out):
                return
            place = DEVICE
        costs = self._meter.host_and_device_ns(func, args, kwargs, out)
        if place == HOST:
            if costs is not None:
                device.spend(costs[0])
            return
        if costs is not None:
            if self.loose is not None:
                self.loose.launch(func, costs[1], device.moment)
            device.launch(*costs)
        elif func is _ITEM:
            device.launch(self._meter.launch_ns, 0, DOWN)
        fetches = _may_fetch(func)
        if fetches and (fetches == "always" or has_a_mask(args[1])):
            device.wait(why="item" if func is _ITEM else torch_private.schema_of(func).name[6:])

    def _place(
        self, func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
    ) -> str:
        """Return the place, device or host, that executes an operation.

        In a Cluster every tensor lies on the device, except an optimizer's step counters: torch's
        optimizers, unless fused, make them on the host by `torch.tensor(0.0)` in the first step.
        """
        if self._device is None:
            return UNDECIDED
        if self.places is not None:
            return self.places.place_of(func, args, kwargs)
        first = args[0] if args else None
        tensor = first if isinstance(first, torch.Tensor) else first_tensor(args)
        if tensor is None or tensor.dim():
            return DEVICE
        tensors = self._memory.tensors_in(args)
        return HOST if all(self._memory.place_of(each) == HOST for each in tensors) else DEVICE


class OperationCount(PlainMode):
    """A dispatch mode that counts in `number` the operations that a modelled machine charges."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        self.number += rule_of(func) is not None
        return func(*args, **(kwargs or {}))


class Counted:
    """Counts the cost of all operations of a rank, in all of the rank's threads."""

    def __init__(
        self,
        model: MachineModel,
        speed: float,
        clocks: Clocks,
        rank: int,
        device: Device | None = None,
        uncomputed: Uncomputed | None = None,
    ) -> None:
        self.meter, self.speed = Meter(model, speed), speed
        self._clocks, self._device = clocks, device
        self._uncomputed = uncomputed
        self.memory = Memory(clocks, rank, model)
        self.places: Places | None = None
        if device is not None:
            device.meter = self.meter
            self.memory.stream = lambda: getattr(device.queues.current, "number", 0)
        self._modes: list[Counting] = []

    def tell_places(self, device: Device) -> Places:
        """Give each of a script's tensors a place, the device or the host; return the places."""
        from ddpkit.rank.emulation.places import Places

        places = self.places = Places(self.memory, device, self.meter, self.speed)
        for mode in self._modes:
            mode.places = places
        return places

    @contextmanager
    def here(self, loose: LooseOperations | None = None) -> Iterator[None]:
        """A block in which the compute of this thread is counted, on the thread's clock."""
        mode = Counting(self.meter, self.memory, self._clocks.mine, self._device, self._uncomputed)
        mode.loose, mode.places = loose, self.places
        self._modes.append(mode)
        try:
            with mode:
                yield
        finally:
            self._modes.remove(mode)

    @contextmanager
    def in_threads(self) -> Iterator[None]:
        """A block in which the compute of threads that the user's code starts is counted.

        A new thread's clock begins at the time of the thread that starts it.
        """
        start, run = threading.Thread.start, threading.Thread.run
        began: dict[threading.Thread, int] = {}

        def started(thread: threading.Thread) -> None:
            clock = self._clocks.mine
            if not thread.name.startswith("ddpkit-") and not isinstance(clock, LaterClock):
                began[thread] = clock.now()
            start(thread)

        def counted(thread: threading.Thread) -> None:
            if (ns := began.pop(thread, None)) is None:
                run(thread)
                return
            self._clocks.use(ThreadClock(self._clocks.speed, ns))
            self._clocks.mine.leave()
            with self.here():
                run(thread)

        kind: Any = threading.Thread
        kind.start, kind.run = started, counted
        try:
            yield
        finally:
            kind.start, kind.run = start, run

    @contextmanager
    def workers_free(self) -> Iterator[None]:
        """A block in which the clock stands still while a DataLoader waits for a worker's batch.

        Worker processes run in real time. So the memory of a batch counts from the moment when the
        program gets the batch, and not from the batch's arrival.
        """
        kind: Any = torch_private.batches_of_workers()
        original = getattr(kind, torch_private.GET_DATA)

        def get_data(loader: object) -> object:
            with self._clocks.mine.stopped():
                return original(loader)

        setattr(kind, torch_private.GET_DATA, get_data)
        try:
            yield
        finally:
            setattr(kind, torch_private.GET_DATA, original)

    @contextmanager
    def running(self, recorder: Recorder) -> Iterator[None]:
        """A block in which the user's function runs.

        After the block, the recorder gets the memory levels.
        """
        read, recorder.counted_ns = self._clocks.ns, self._clocks.main.now
        recorder.log.work = self._facts
        try:
            with ExitStack() as blocks:
                if self._uncomputed is not None:
                    recorder.reads = self._uncomputed.reads
                    blocks.enter_context(self._uncomputed.reads_noted())
                    blocks.enter_context(shapes_only(self._device, lambda: self.places))
                torchs = torch.compile
                blocks.callback(setattr, torch, torchs.__name__, torchs)
                torch.compile = _eager(torchs, says=recorder.rank == 0)
                blocks.enter_context(each_argument_seen_once())
                blocks.enter_context(self.memory.watched())
                blocks.enter_context(self._optimizers_told())
                blocks.enter_context(self.here(recorder.loose))
                yield
        except BaseException:
            # After a failure, operations that callbacks wait for may never be done: use the clock.
            read = lambda moment: moment if isinstance(moment, int) else self._clocks.main.now()  # noqa: E731
            raise
        finally:
            recorder.counted_ns = None
            recorder.memory = self.memory.levels(read)

    @contextmanager
    def _optimizers_told(self) -> Iterator[None]:
        """A block in which the meter is told when an optimizer's step begins and ends."""

        def begins(*_: object) -> None:
            self.meter.optimizing += 1

        def ends(*_: object) -> None:
            self.meter.optimizing = max(0, self.meter.optimizing - 1)

        handles = register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _facts(self) -> dict[str, int]:
        """Return the work of the device and of the host so far, by name."""
        host = {} if self._device is None else self._device.host_facts()
        return {**self.meter.work.facts(), **host}

    def stop(self) -> None:
        """Stop counting forever, in a process that the rank has forked."""
        for mode in self._modes:
            mode.on = False
