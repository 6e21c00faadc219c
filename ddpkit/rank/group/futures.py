"""The futures of an emulated group's operations, and the thread that runs their callbacks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from ddpkit import torch_private
from ddpkit.protocol.emulation import After
from ddpkit.rank.emulation.clock import LaterClock
from ddpkit.rank.emulation.machine import Machine
from ddpkit.rank.record.clock import Ends, Later
from ddpkit.rank.record.recorder import current

if TYPE_CHECKING:  # the import loads a part of torch that only machines with a device need
    from ddpkit.rank.emulation.device import Device


class Chain:
    """The callbacks of one operation's future, and the callbacks of their futures in turn."""

    def __init__(self, operation: Ends) -> None:
        self.operation = operation
        self.open = 0  # number of callbacks that have not run
        self.actor = 0  # the callbacks' number at the timekeeper
        self.lock = threading.Lock()
        self.moments: list[Later] = []  # the moments at which callbacks were done


class EmulatedFuture(torch.futures.Future[Any]):
    """The future of an operation, or of a callback's result. DDP's reducer in C++ may hold it."""

    def __init__(
        self,
        machine: Machine,
        operation: Ends,
        inner: object = None,
        chain: Chain | None = None,
        results: Sequence[torch.Tensor] = (),
    ) -> None:
        super().__init__()
        self._machine, self._operation = machine, operation
        self._results = list(results)  # the value for C++, even if the operation fails
        self._uncarried: list[torch.Tensor] = []
        self.chain = chain or Chain(operation)
        self.moment = Later(((operation, 0),))  # the time at which the future is done
        self.follows: After = ()  # on a device: operations that end before the value is there
        if machine.device is not None:
            self.follows = ((operation.number, 0),)
        # True if the value is the given results, and not gloo's value
        self.is_results = machine.device is not None and bool(results)
        if self.is_results:
            # DDP's reducer waits for this future in C++; on a GPU, only a stream would wait.
            self.set_result(self._results)
        elif inner is not None:
            self._take_from(inner)

    def _take_from(self, inner: Any) -> None:
        """Set this future to the value of gloo's future, once gloo is done."""
        self._uncarried = getattr(inner, "results", [])  # see `uncarried.Uncarried`
        try:
            inner.get_future().add_done_callback(lambda done: self._take(done.value))
        except RuntimeError:  # a call with copies of absent ranks has no future
            threading.Thread(
                target=lambda: self._take(lambda: inner.wait() and inner.result()),
                daemon=True,
                name="ddpkit-wait",
            ).start()

    def _take(self, value: Callable[[], object]) -> None:
        try:
            carried = value()
            self.set_result(self._uncarried or carried)
            self._results = self._uncarried = []
        except Exception as error:
            # C++ takes the error of `set_exception` for a value, and DDP's reducer would read it as
            # tensors. The rank's program gets the error in its wait, or after its backward.
            torch_private.raise_when_read(self, error)
            self.set_result(self._results)

    def wait_for_gloo(self) -> object:
        """Wait until gloo has set the value. The wait takes no emulated time."""
        return super().wait()

    def wait(self) -> object:
        clock, device = self._machine.clocks.mine, self._machine.device
        with clock.stopped(), self._said_to_wait():
            if device is not None:
                device.follow(self.follows)
                device.meet(self._operation.number, self._operation.call)
                return self.wait_for_gloo()
            if not isinstance(clock, LaterClock):  # no future is done before the operation
                clock.jump(self._operation.done_ns)
            clock.wait()
            value = self.wait_for_gloo()
            if isinstance(clock, LaterClock):
                for operation, _ in self.moment.after:
                    clock.follow(operation)
            else:
                clock.jump(self.moment.ns())
            return value

    @contextmanager
    def _said_to_wait(self) -> Iterator[None]:
        """A block in which the agent can report the operation for which the thread waits."""
        recorder, thread = current(), threading.get_ident()
        if recorder is None:
            yield
            return
        recorder.waits[thread] = self._operation.call
        try:
            yield
        finally:
            recorder.wait_over(thread)

    def done(self) -> bool:
        if not super().done():
            return False
        clock, device = self._machine.clocks.mine, self._machine.device
        if device is not None:
            return device.is_done(self.follows)
        return isinstance(clock, LaterClock) or all(
            operation.is_completed() for operation, _ in self.moment.after
        )

    def then(self, callback: Callable[[EmulatedFuture], object]) -> EmulatedFuture:
        result = EmulatedFuture(self._machine, self._operation, chain=self.chain)
        if self._machine.device is not None:
            self._call(self._machine.device, callback, result)
            return result
        callbacks.follow(self._machine, Task(self, callback, result))
        return result

    def add_done_callback(self, callback: Callable[[EmulatedFuture], object]) -> None:
        if self._machine.device is not None:
            self._call(self._machine.device, callback, None)
            return
        callbacks.follow(self._machine, Task(self, callback, None))

    def _call(
        self,
        device: Device,
        callback: Callable[[EmulatedFuture], object],
        result: EmulatedFuture | None,
    ) -> None:
        """Run a callback now, on a new stream that waits for the operation, as on GPUs."""
        device.meet(self._operation.number, self._operation.call)
        with self._machine.clocks.mine.stopped(), suppress(Exception):
            self.wait_for_gloo()  # the callback hears of an error when it asks for the value
        stream = object()
        device.queues.follow(self.follows, stream)
        with device.on(stream):
            try:
                value, error = callback(self), None
            except Exception as raised:
                value, error = None, raised
            follows = device.queues.tail()
        self._operation.followed_by += follows
        if result is None:
            return
        result.follows = follows
        if error is None:
            result.set_result(value)
        else:
            result.set_exception(error)


class Task(NamedTuple):
    """A callback to run when a future is done."""

    future: EmulatedFuture
    callback: Callable[[EmulatedFuture], object]
    result: EmulatedFuture | None


class Callbacks:
    """A thread that runs callbacks in the order in which they were attached."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[Task] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def follow(self, machine: Machine, task: Task) -> None:
        """Run a callback when its future is done."""
        chain = task.future.chain
        with machine.clocks.mine.stopped(), chain.lock:
            if not chain.open:
                chain.actor = machine.desk.follow(chain.operation.number)
            chain.open += 1
            self._tasks.put(task)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, args=(machine,), name="ddpkit-callbacks", daemon=True
                )
                self._thread.start()

    def _run(self, machine: Machine) -> None:
        clock = LaterClock(machine.clocks.speed)
        machine.clocks.use(clock)
        with machine.counting():
            while True:
                self._do(machine, clock, self._tasks.get())

    def _do(self, machine: Machine, clock: LaterClock, task: Task) -> None:
        future, chain = task.future, task.future.chain
        error: Exception | None = None
        value: Any = None
        with suppress(Exception):  # the callback gets the error when it asks for the value
            future.wait_for_gloo()
        clock.begin(future.moment)
        clock.leave()
        try:
            value = task.callback(future)
        except Exception as raised:
            error = raised
        clock.enter()
        moment = clock.moment()
        chain.moments.append(moment)
        if task.result is not None:
            task.result.moment = moment
        with chain.lock:
            chain.open -= 1
            if not chain.open:
                machine.desk.left(chain.actor)
        if task.result is not None and error is not None:
            task.result.set_exception(error)
        elif task.result is not None:
            task.result.set_result(value)


callbacks = Callbacks()
