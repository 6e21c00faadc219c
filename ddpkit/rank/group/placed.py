"""Marks tensors that a script has put on a stand-in GPU, and serves groups with two backends.

A script of "cpu:gloo,cuda:nccl" has two queues: gloo carries tensors of the host, NCCL carries
tensors of the GPU, and no call of one queue waits for a call of the other queue. Here all tensors
are on the CPU. A mark in a tensor's storage means that the script has put the tensor on the GPU.

The script's moves and constructors set the mark (`rank.script.cuda`). The results of operations on
marked tensors have no mark, because a mode in Python would cost each operation some microseconds.
Only a script with two queues pays this cost: there `following` marks results, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

from ddpkit.rank.callers import sends_an_object
from ddpkit.rank.group import arguments

F = TypeVar("F", bound=Callable[..., object])
MARK = "_ddpkit_on_gpu"


def mark(tensor: torch.Tensor) -> None:
    """Mark a tensor as being on a GPU."""
    setattr(tensor.untyped_storage(), MARK, True)


def unmark(tensor: torch.Tensor) -> None:
    """Mark a tensor as being in the host's memory."""
    if is_marked(tensor):
        delattr(tensor.untyped_storage(), MARK)


def is_marked(tensor: torch.Tensor) -> bool:
    """True if a tensor is marked as being on a GPU."""
    return hasattr(tensor.untyped_storage(), MARK)


def are_of_host(args: tuple[object, ...]) -> bool:
    """True if a group of two backends gives a call with these arguments to gloo.

    Pickled objects are in the host's memory, so gloo sends them. A barrier goes to NCCL.
    """
    if sends_an_object(sys._getframe(1)):
        return True
    tensors = [*arguments.tensors(args)]
    return bool(tensors) and not any(map(_is_on_gpu, tensors))


def _is_on_gpu(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and is_marked(tensor)


def by_place(method: F) -> F:
    """Return a method that passes calls with tensors of the host to a second group, on gloo."""

    @functools.wraps(method)
    def placed(self: Any, *args: object) -> object:
        if self.of_host is not None and are_of_host(args):
            return getattr(self.of_host, method.__name__)(*args)
        return method(self, *args)

    return cast(F, placed)
