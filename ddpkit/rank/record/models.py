"""Tells the gradients of several DDP models apart.

The reducers of two models call the same all_reduce, from the line of one `backward()`. If the ranks
use the models in different orders, gradients of different models are summed without an error. So
each call records the number of its model. A reducer sends a bucket as soon as the bucket's last
gradient is ready, so the model of a call is the model of the gradient that has just become ready.

Models of a group are numbered in the order in which DDP wraps them. DDP communicates when it wraps
a model, so the order is the same on all ranks of the group. The numbers start at 0; on a rank with
only one model, the number is 0.
"""

from __future__ import annotations

import functools
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel import DistributedDataParallel

from ddpkit.rank.record.recorder import Recorder

if TYPE_CHECKING:
    from torch import nn

WRAPS = "__init__"  # DDP's method


@contextmanager
def watched(recorder: Recorder) -> Iterator[None]:
    """A block in which `recorder.model` is the number of the model with the newest gradient."""
    original = getattr(DistributedDataParallel, WRAPS)
    models = _Models(recorder)

    @functools.wraps(original)
    def init(ddp: nn.parallel.DistributedDataParallel, *args: object, **kwargs: object) -> None:
        original(ddp, *args, **kwargs)
        models.wrapped(ddp)

    setattr(DistributedDataParallel, WRAPS, init)
    try:
        yield
    finally:
        setattr(DistributedDataParallel, WRAPS, original)


class _Models:
    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._counts: Counter[str] = Counter()  # the number of models, by group
        self._first: weakref.ref[object] | None = None  # the only model so far, without hooks

    def wrapped(self, ddp: nn.parallel.DistributedDataParallel) -> None:
        """Give a model a number. From the second model on, put hooks on all models' gradients."""
        try:
            name = ddp.process_group.group_name
        except (RuntimeError, ValueError):  # a group of the user's own
            return
        number = self._counts[name]
        self._counts[name] += 1
        if self._counts.total() == 1:
            self._first = weakref.ref(ddp)
            return
        if self._first is not None:
            self._listen(self._first(), 0)
            self._first = None
        self._listen(ddp, number)

    def _listen(self, ddp: Any, number: int) -> None:
        for parameter in [] if ddp is None else ddp.module.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._hook(number))

    def _hook(self, number: int) -> Callable[[torch.Tensor], None]:
        recorder = self._recorder

        def ready(_: torch.Tensor) -> None:
            recorder.model = number

        return ready
