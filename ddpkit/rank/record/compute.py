"""Records forward, backward and optimizer of a rank, without a change to the student's code.

torch calls a hook for every optimizer of the process, and for every gradient when the gradient is
ready; DDP sends buckets at the same moment. Modules and backward passes are timed in the functions
that torch always calls for them, `Module.__call__` and `autograd.backward`. Global module hooks
would make torch take a slow path through each call, at three times the cost. Full backward hooks
would double a step's time.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from types import SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.clock import Moment
from ddpkit.rank.record.loose import LooseOperations
from ddpkit.rank.record.recorder import Recorder
from ddpkit.rank.where import user_call
from ddpkit.torch_private import own_modules, own_parameters, put_first
from ddpkit.trace import OPTIMIZER


def watch(recorder: Recorder) -> ExitStack:
    """Record the compute of this process from now on, until the returned stack is closed."""
    compute, stack = _Compute(recorder), ExitStack()
    stack.callback(compute.forget_gradients)
    recorder.loose = LooseOperations(recorder.log, compute.is_under_way)
    recorder.log.before_step_ends = recorder.loose.close
    for handle in (
        register_optimizer_step_pre_hook(compute.step_begins),
        register_optimizer_step_post_hook(compute.step_ends),
    ):
        stack.callback(handle.remove)
    home, name = (_way, "leads_to") if _way.laid else (torch.nn.Module, "__call__")
    _replace(stack, home, name, compute.timed_forward)
    _replace(stack, torch.utils, "swap_tensors", compute.swapping)
    for name in ("backward", "grad"):  # Tensor.backward calls `torch.autograd.backward`
        _replace(stack, torch.autograd, name, compute.timed_backward)
    return stack


_way = SimpleNamespace(laid=False, leads_to=torch.nn.Module.__call__)


def lay_the_way() -> None:
    """Route all calls of modules through a function of ddpkit's, which a rank can redirect.

    Setting `Module.__call__` makes Python visit all subclasses, 400 of torch's own, and a rank
    would copy their memory pages. So the forkserver does this once for all its ranks.
    """

    @functools.wraps(_way.leads_to)
    def call(module: torch.nn.Module, *args: object, **kwargs: object) -> object:
        return _way.leads_to(module, *args, **kwargs)

    torch.nn.Module.__call__ = call  # type: ignore[method-assign]
    _way.laid = True


def _replace(stack: ExitStack, home: object, name: str, timed: Callable[..., object]) -> None:
    original = getattr(home, name)
    setattr(home, name, timed(original))
    stack.callback(setattr, home, name, original)


class _Compute:
    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.depth = 0  # number of modules under way, one inside another
        self.now = recorder.clock.now
        self._numbers = count()
        # optimizer -> its number
        self.optimizers: WeakKeyDictionary[torch.optim.Optimizer, int] = WeakKeyDictionary()
        self.stepping: list[tuple[int, Moment]] = []  # id and start of optimizers, outer first
        # id of a parameter with ddpkit's hook -> the parameter, and the hook
        self.hooked: dict[int, tuple[ref[torch.Tensor], Any]] = {}

    def is_under_way(self) -> bool:
        """True while a module, a backward pass, an optimizer or a marked span is being recorded."""
        recorder = self.recorder
        return bool(self.depth or recorder.backward or self.stepping or recorder.spans_open)

    def timed_forward(self, original: Callable[..., object]) -> Callable[..., object]:
        """Return a `__call__` that records each leaf module and each outermost module."""
        hooked, hook = self.hooked, self._hook
        add, now = self.recorder.log.add, self.recorder.clock.now

        @functools.wraps(original)
        def call(module: torch.nn.Module, *args: object, **kwargs: object) -> object:
            for parameter in own_parameters(module).values():
                if id(parameter) not in hooked:
                    hook(parameter)
            shown = not (own_modules(module) and self.depth)
            self.depth += 1
            start = now()
            try:
                return original(module, *args, **kwargs)
            finally:
                self.depth -= 1
                if shown:
                    add(("forward", type(module).__name__, start, now(), 0))

        return call

    def _hook(self, parameter: torch.nn.Parameter | None) -> None:
        """Put a hook on a parameter's gradients. Parameters are compared by id."""
        if parameter is not None and parameter.requires_grad and parameter.is_leaf:
            key = id(parameter)  # Python reuses the id after the parameter's end
            forget = functools.partial(self._forget, key)
            self.hooked[key] = ref(parameter, forget), self._hook_first(parameter)

    def _forget(self, key: int, _: ref[torch.Tensor]) -> None:
        self.hooked.pop(key, None)

    def swapping(self, original: Callable[..., object]) -> Callable[..., object]:
        """Return a `swap_tensors` that first drops hooks and weak references.

        torch refuses to swap a tensor that has a weak reference. `Module.to` and `to_empty` swap
        parameters of subclasses, such as DTensor. The next forward puts the hooks back.
        """

        @functools.wraps(original)
        def swap(one: torch.Tensor, other: torch.Tensor) -> None:
            for tensor in (one, other):
                if (hooked := self.hooked.pop(id(tensor), None)) is not None:
                    hooked[1].remove()
            del hooked
            original(one, other)

        return swap

    def _hook_first(self, parameter: torch.nn.Parameter) -> object:
        """Put ddpkit's hook before all other hooks of a parameter, such as DDP's.

        So ddpkit records that a gradient is ready before DDP sends the gradient.
        """
        handle = parameter.register_post_accumulate_grad_hook(self._ready(parameter.nbytes))  # type: ignore[no-untyped-call]
        put_first(parameter, handle)
        return handle

    def forget_gradients(self) -> None:
        for _, handle in list(self.hooked.values()):
            handle.remove()

    def _ready(self, nbytes: int) -> Callable[[torch.Tensor], None]:
        """Return a hook for a parameter's gradient: a short hook, since each gradient calls it."""
        recorder, now = self.recorder, self.now

        def ready(_: torch.Tensor) -> None:
            if (backward := recorder.backward) is not None:
                backward.ready.append((now(), nbytes))

        return ready

    def timed_backward(self, original: Callable[..., object]) -> Callable[..., object]:
        recorder, now, called = self.recorder, self.now, original.__name__

        @functools.wraps(original)
        def backward(*args: object, **kwargs: object) -> object:
            if recorder.backward is not None:  # a backward inside a backward, as in checkpointing
                return original(*args, **kwargs)
            recorder.backward = Backward(user_call(sys._getframe(1), called), now())
            try:
                return original(*args, **kwargs)
            finally:
                recorder.backward.end = now()
                recorder.backward_ends()

        return backward

    def step_begins(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._forget_step(id(optimizer))  # an earlier step may have raised, and so have no end
        self.stepping.append((id(optimizer), self.now()))

    def step_ends(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        """Record a step, unless it runs inside another optimizer's step (sharded optimizers)."""
        start = self._forget_step(id(optimizer))
        if start is not None and not self.stepping:
            name = type(optimizer).__name__
            if optimizer not in self.optimizers:
                self.optimizers[optimizer] = next(self._numbers)
            number = self.optimizers[optimizer]
            which = {OPTIMIZER: number} if number else {}
            self.recorder.log.end_step("optimizer", name, start, self.now(), **which)

    def _forget_step(self, optimizer: int) -> Moment | None:
        """Return the start of an optimizer's step; forget this step and the steps inside it."""
        at = next((i for i, (key, _) in enumerate(self.stepping) if key == optimizer), None)
        if at is None:
            return None
        start = self.stepping[at][1]
        del self.stepping[at:]
        return start
