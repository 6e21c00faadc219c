"""Forward, backward and optimizer of a rank, seen through torch's own global hooks.

A student's code is not touched: torch calls these for every module, every `backward()` and every
optimizer of the process. Full backward hooks would double a step's time; a gradient's moment of
readiness costs a microsecond and is what DDP itself goes by.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from weakref import ref

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpkit.rank.record import Recorder


def watch(recorder: Recorder) -> ExitStack:
    """Record the compute of this process from now on, until the returned stack is closed."""
    compute, stack = _Compute(recorder), ExitStack()
    for handle in (
        register_module_forward_pre_hook(compute.module_begins),
        register_module_forward_hook(compute.module_ends, always_call=True),
        register_optimizer_step_pre_hook(compute.step_begins),
        register_optimizer_step_post_hook(compute.step_ends),
    ):
        stack.callback(handle.remove)
    for name in ("backward", "grad"):  # Tensor.backward calls the first of them
        original = getattr(torch.autograd, name)
        setattr(torch.autograd, name, compute.timed_backward(original))
        stack.callback(setattr, torch.autograd, name, original)
    return stack


class _Compute:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.forwards: list[int] = []  # starts of the modules we are inside of
        self.step_start = 0
        # When each gradient became ready in this backward, and its bytes.
        self.gradients: list[tuple[int, int]] | None = None
        self.hooked: dict[int, ref[torch.Tensor]] = {}  # id of each parameter that has our hook

    def module_begins(self, module: torch.nn.Module, _: Any) -> None:
        for parameter in module._parameters.values():
            if parameter is not None and parameter.requires_grad and not self._has_hook(parameter):
                self.hooked[id(parameter)] = ref(parameter)
                if parameter.is_leaf:
                    parameter.register_post_accumulate_grad_hook(self.gradient_ready)  # type: ignore[no-untyped-call]
        self.forwards.append(time.perf_counter_ns())

    def _has_hook(self, parameter: torch.Tensor) -> bool:
        """By identity: no set can hold tensors, whose `==` goes element by element."""
        known = self.hooked.get(id(parameter))
        return known is not None and known() is parameter  # an id is used again after its owner

    def module_ends(self, module: torch.nn.Module, _inputs: Any, _output: Any) -> None:
        """Each leaf module is a span, and so is the outermost one, for what lies between them."""
        if not self.forwards:
            return
        start = self.forwards.pop()
        if not module._modules or not self.forwards:
            self.recorder.compute("forward", type(module).__name__, start)

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        if self.gradients is not None:
            nbytes = parameter.numel() * parameter.element_size()
            self.gradients.append((time.perf_counter_ns(), nbytes))

    def timed_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            if self.gradients is not None:  # a backward inside a backward: checkpointing does that
                return original(*args, **kwargs)
            self.gradients, start, before = [], time.perf_counter_ns(), self.recorder.spans_made
            try:
                return original(*args, **kwargs)
            finally:
                ready, self.gradients = self.gradients, None
                self.backward_ends(start, ready, before)

        return backward

    def backward_ends(self, start: int, ready: list[tuple[int, int]], spans_before: int) -> None:
        """One span for each gradient that became ready, and one for what came after the last."""
        now = time.perf_counter_ns()
        self._find_hidden_wait(max([start, *(at for at, _ in ready)]), spans_before)
        for end, nbytes in [*ready, (now, 0)]:
            self.recorder.compute("backward", "backward", start, end, bytes=nbytes)
            start = max(start, end)

    def _find_hidden_wait(self, last_gradient: int, spans_before: int) -> None:
        """DDP's reducer waits in C++ at the end of backward, where no Python sees it begin.

        It begins when there is nothing left to do: the last gradient is ready and the last bucket
        has been posted.
        """
        spans, pending = self.recorder.spans, list(self.recorder.pending.values())
        first = max(0, len(spans) - (self.recorder.spans_made - spans_before))
        new = [(i, spans[i]) for i in range(first, len(spans)) if spans[i].is_comm]
        posted = [*(span.start_ns for _, span in new), *(call.posted_ns for call in pending)]
        idle_from = max([last_gradient, *posted])
        for i, span in new:
            if span.blocked_ns is None and span.end_ns > idle_from:
                spans[i] = replace(span, blocked_ns=idle_from)
        for call in pending:  # done, and its callback still waits for the GIL
            if call.future is not None and call.future.done():
                call.blocked_ns = call.blocked_ns or idle_from
                self.recorder.done(call)

    def step_begins(self, *_: Any) -> None:
        self.step_start = time.perf_counter_ns()

    def step_ends(self, optimizer: Any, *_: Any) -> None:
        self.recorder.compute("optimizer", type(optimizer).__name__, self.step_start)
