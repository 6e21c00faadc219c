"""Forward, backward and optimizer of a rank, seen without a change to the student's code.

torch calls a hook for every optimizer of the process, and for every gradient that is ready: the
moment that DDP itself goes by. Modules and backward are timed around the functions that all of them
pass, `Module.__call__` and `autograd.backward`. Global module hooks would take torch's slow way
through each call, three times the cost; full backward hooks would double a step's time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from weakref import ref

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpkit.rank.clock import HOST, Moment, Read
from ddpkit.rank.record import Recorder


def watch(recorder: Recorder) -> ExitStack:
    """Record the compute of this process from now on, until the returned stack is closed."""
    compute, stack = _Compute(recorder), ExitStack()
    stack.callback(compute.forget_gradients)
    for handle in (
        register_optimizer_step_pre_hook(compute.step_begins),
        register_optimizer_step_post_hook(compute.step_ends),
    ):
        stack.callback(handle.remove)
    _replace(stack, torch.nn.Module, "__call__", compute.timed_forward)
    for name in ("backward", "grad"):  # Tensor.backward calls the first of them
        _replace(stack, torch.autograd, name, compute.timed_backward)
    return stack


def _replace(stack: ExitStack, home: Any, name: str, timed: Callable[..., Any]) -> None:
    original = getattr(home, name)
    setattr(home, name, timed(original))
    stack.callback(setattr, home, name, original)


class _Compute:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.depth = 0  # of the modules we are inside of
        self.now = recorder.clock.now
        self.step_start: Moment = 0
        # When each gradient became ready in this backward, and its bytes.
        self.gradients: list[tuple[Moment, int]] | None = None
        # Each parameter that has our hook, by its id, and the hook.
        self.hooked: dict[int, tuple[ref[torch.Tensor], Any]] = {}

    def timed_forward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Each leaf module is a span, and so is the outermost one, for what lies between them."""
        hook, add, now = self._hook, self.recorder.log.add, self.recorder.clock.now

        @functools.wraps(original)
        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if module._parameters:
                hook(module._parameters)
            shown = not (module._modules and self.depth)
            self.depth += 1
            start = now()
            try:
                return original(module, *args, **kwargs)
            finally:
                self.depth -= 1
                if shown:
                    add(("forward", type(module).__name__, start, now(), 0))

        return call

    def _hook(self, parameters: dict[str, torch.nn.Parameter | None]) -> None:
        """Hear of their gradients. Known by identity: `==` of tensors goes element by element."""
        for parameter in parameters.values():
            if parameter is None or not parameter.requires_grad:
                continue
            known = self.hooked.get(id(parameter))
            if known is not None and known[0]() is parameter:  # an id is used again after its owner
                continue
            if parameter.is_leaf:
                self.hooked[id(parameter)] = ref(parameter), self._hook_first(parameter)

    def _hook_first(self, parameter: torch.nn.Parameter) -> Any:
        """A gradient is ready before anybody acts on it, as a DDP does that was there earlier."""
        handle = parameter.register_post_accumulate_grad_hook(self.gradient_ready)  # type: ignore[no-untyped-call]
        hooks: Any = parameter._post_accumulate_grad_hooks
        for earlier in [key for key in hooks if key != handle.id]:
            hooks[earlier] = hooks.pop(earlier)  # to the end
        return handle

    def forget_gradients(self) -> None:
        for _, handle in self.hooked.values():
            handle.remove()

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        if self.gradients is not None:
            self.gradients.append((self.now(), parameter.nbytes))

    def timed_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.gradients is not None:  # a backward inside a backward: checkpointing does that
                return original(*args, **kwargs)
            self.gradients, start, before = [], self.now(), self.recorder.log.added
            try:
                return original(*args, **kwargs)
            finally:
                ready, self.gradients = self.gradients, None
                self.backward_ends(start, ready, before)

        return backward

    def backward_ends(
        self, start: Moment, ready: list[tuple[Moment, int]], added_before: int
    ) -> None:
        """One span for each gradient that became ready, and one for what came after the last."""
        now = self.now()
        if self.recorder.clock is HOST:  # a GPU's backward has a thread of its own
            ready.sort()
        last_gradient = ready[-1][0] if ready else start
        starts = [start, *(end for end, _ in ready)]
        pieces = zip(starts, [*ready, (now, 0)], strict=True)
        self._find_hidden_wait(last_gradient, added_before)
        self.recorder.log.add(
            *[("backward", "backward", start, end, nbytes) for start, (end, nbytes) in pieces]
        )

    def _find_hidden_wait(self, last_gradient: Moment, added_before: int) -> None:
        """DDP's reducer waits in C++ at the end of backward, where no Python sees it begin.

        It begins when there is nothing left to do: the last gradient is ready and the last bucket
        has been posted.
        """
        recorder = self.recorder
        under_way = recorder.under_way()
        for call in under_way:
            future = call.future
            if future is not None and future.done():  # and its callback waits for the GIL
                recorder.done(call)
        new = recorder.log.calls_since(added_before)

        def find(read: Read) -> None:
            idle_from = read(last_gradient)
            for call in (*new, *under_way):
                idle_from = max(idle_from, read(call.posted))
            for call in new:
                if call.blocked is None and read(call.done) > idle_from:
                    call.blocked = idle_from

        if new:
            recorder.when_known(find)

    def step_begins(self, *_: Any) -> None:
        self.step_start = self.now()

    def step_ends(self, optimizer: Any, *_: Any) -> None:
        self.recorder.step_ends("optimizer", type(optimizer).__name__, self.step_start)
