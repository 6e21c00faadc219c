"""Backward passes of the main thread: the clock or a stream gets the time of DDP's waits in C++."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from ddpkit import torch_private
from ddpkit.protocol.emulation import GOING, MAY_WAIT, WAITING, After
from ddpkit.rank.emulation.clock import Clocks
from ddpkit.rank.record.clock import Ends

if TYPE_CHECKING:
    from torch import nn

    from ddpkit.rank.record.call import RecordedCall

if TYPE_CHECKING:  # the imports load a part of torch that not every machine needs
    from ddpkit.rank.emulation.device import Device
    from ddpkit.rank.emulation.memory import Memory


class Awaited(Ends, Protocol):
    """An operation whose future has been requested by DDP's reducer or by other code."""

    call: RecordedCall  # the record of the operation
    answer: Any  # the timekeeper's answer after the first wait; None before

    @property
    def over_ns(self) -> int:
        """The time in ns at which the operation and all its callbacks are done."""

    def follows(self) -> After:
        """Return the operations for which a stream must wait: this operation and its callbacks."""

    def release(self) -> None:
        """Drop the operation's future, because no code will use the future again."""


class EmulatedBackward:
    """The backward passes of a rank during one run."""

    def __init__(
        self,
        clocks: Clocks,
        device: Device | None,
        memory: Memory | None,
        note: Callable[..., None],
    ) -> None:
        self._clocks, self._device, self._memory, self._note = clocks, device, memory, note
        self._taken: list[Awaited] | None = None  # operations, while a backward is under way
        self._last_post_ns = 0

    @contextmanager
    def replayed(self) -> Iterator[None]:
        """A block in which a backward pass ends, in emulated time, when the reducer's waits end."""
        import torch

        with ExitStack() as undo:
            for name in ("backward", "grad"):
                original = getattr(torch.autograd, name)
                undo.callback(setattr, torch.autograd, name, original)
                setattr(torch.autograd, name, self._replayed(original))
            ddp: Any = torch.nn.parallel.DistributedDataParallel
            builtin = getattr(ddp, torch_private.BUILTIN_HOOK)
            undo.callback(setattr, ddp, torch_private.BUILTIN_HOOK, builtin)
            setattr(ddp, torch_private.BUILTIN_HOOK, _in_python(builtin))
            yield

    @property
    def is_under_way(self) -> bool:
        """True while a backward pass of the main thread is under way."""
        return self._taken is not None

    def future_taken(self, operation: Awaited) -> None:
        """Record that code may wait for an operation through the operation's future."""
        if self._taken is not None and self._clocks.mine is self._clocks.main:
            self._taken.append(operation)
            if self._device is not None:
                return
            self._note("beyond", "torch's DistributedDataParallel, which waits in C++")
            self._last_post_ns = self._clocks.main.now()
            self._clocks.main.how = MAY_WAIT
            self._say_when_it_waits()

    def _say_when_it_waits(self) -> None:
        """Write on the clock's page that the reducer waits, once autograd has no work left.

        The callback that is queued here runs before the reducer's own callback, which the reducer
        queues with the last bucket. In the first step of a static graph, the order is reversed.
        """

        def waits() -> None:
            self._clocks.main.how = WAITING
            self._clocks.main.say_how()

        torch_private.after_backward(waits)

    def _replayed(self, original: Callable[..., object]) -> Callable[..., object]:
        """Return a `backward` that, at its end, adds the reducer's hidden waits to the clock."""

        @functools.wraps(original)
        def backward(*args: object, **kwargs: object) -> object:
            if self._taken is not None or self._clocks.mine is not self._clocks.main:
                return original(*args, **kwargs)
            self._taken = []
            try:
                result = original(*args, **kwargs)
                if self._device is not None:
                    self._follow(self._device, self._taken)
                else:
                    self._replay_waits(self._taken)
                if self._memory is not None:
                    self._memory.note_gradients()
                return result
            finally:
                self._taken, self._clocks.main.how = None, GOING
                self._clocks.main.say_how()

        return backward

    @staticmethod
    def _follow(device: Device, operations: list[Awaited]) -> None:
        """Make the current stream wait for all buckets, as DDP's reducer does after a backward."""
        device.backward_ends()
        for operation in operations:
            device.queues.follow(operation.follows())
            operation.release()

    def _replay_waits(self, operations: list[Awaited]) -> None:
        """Set the clock as if the reducer had waited for each bucket in emulated time.

        The reducer waits for the buckets in order, and copies each bucket when the bucket arrives.
        The thread's compute since the last post counts as this copying, divided among the buckets
        by bytes.
        """
        waited = [operation for operation in operations if operation.answer is None]
        if not waited:
            return
        clock = self._clocks.main
        with clock.stopped():
            copying = clock.now() - self._last_post_ns
            whole = sum(operation.call.what.bytes for operation in waited) or 1
            now = float(self._last_post_ns)
            for operation in waited:
                now = max(now, operation.over_ns) + copying * (operation.call.what.bytes / whole)
            clock.jump(round(now))
        for operation in operations:
            operation.release()


def _in_python(original: Callable[..., object]) -> Callable[..., object]:
    """Return a function that registers DDP's built-in hooks.

    For float16, it registers a Python hook in place of the C++ hook. The C++ hook has a callback,
    and gloo's thread would run this callback outside of emulated time. The other built-in hook, a
    plain all_reduce, has no callback.
    """

    @functools.wraps(original)
    def register(ddp: nn.parallel.DistributedDataParallel, comm_hook_type: object) -> None:
        from torch.distributed import BuiltinCommHookType
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

        if comm_hook_type == BuiltinCommHookType.FP16_COMPRESS:
            ddp.register_comm_hook(ddp.process_group, fp16_compress_hook)
        else:
            original(ddp, comm_hook_type)

    return register
