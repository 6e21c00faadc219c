"""Tensors that a script has put on a GPU, where there is none, and groups with two backends.

A script of "cpu:gloo,cuda:nccl" has two queues: gloo carries tensors of the host, NCCL carries
tensors of the GPU, and no call of one queue waits for a call of the other queue. Here all tensors
are on the CPU. A mark in its storage says that a tensor is on the GPU, as the script sees it.

The script's moves and constructors set the mark (`rank.script.cuda`). The results of operations on
marked tensors have no mark, because a mode in Python would cost each operation some microseconds.
Only a script with two queues pays: there `following` marks results, too.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, TypeVar, cast

import torch

from ddpkit.rank.callers import sends_an_object
from ddpkit.rank.group import arguments
from ddpkit.rank.mode import PlainMode
from ddpkit.torch_private import schema_of, tree_leaves

F = TypeVar("F", bound=Callable[..., Any])
MARK = "_ddpkit_on_gpu"
# Operations that may bring values of a GPU to the host.
_COPIES = ("aten::copy_", "aten::_foreach_copy_", "aten::_to_copy", "aten::_copy_from")


def mark(tensor: torch.Tensor) -> None:
    """Note that a tensor is on a GPU."""
    setattr(tensor.untyped_storage(), MARK, True)


def unmark(tensor: torch.Tensor) -> None:
    """Note that a tensor is in the host's memory."""
    if is_marked(tensor):
        delattr(tensor.untyped_storage(), MARK)


def is_marked(tensor: torch.Tensor) -> bool:
    """True if a tensor is on a GPU."""
    return hasattr(tensor.untyped_storage(), MARK)


def are_of_host(args: Any) -> bool:
    """True if gloo would carry a call with these arguments in a group of two backends.

    Pickled objects are in the host's memory. A barrier is NCCL's.
    """
    if sends_an_object(sys._getframe(1)):
        return True
    tensors = [*arguments.tensors(args)]
    return bool(tensors) and not any(map(_is_on_gpu, tensors))


def _is_on_gpu(tensor: Any) -> bool:
    return tensor.layout == torch.strided and is_marked(tensor)


def by_place(method: F) -> F:
    """Let the second group of a group with two backends make a call with tensors of the host."""

    @functools.wraps(method)
    def placed(self: Any, *args: Any) -> Any:
        if self.of_host is not None and are_of_host(args):
            return getattr(self.of_host, method.__name__)(*args)
        return method(self, *args)

    return cast(F, placed)


class Marking(PlainMode):
    """A mode that marks the results of operations on marked tensors."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and schema_of(func).name not in _COPIES:
            given = [*_plain((args, kwargs))]
            if any(map(is_marked, given)):
                for made in _plain(out if out is not None else given):
                    mark(made)
        return out


def _plain(values: Any) -> list[torch.Tensor]:
    return [
        each
        for each in tree_leaves(values)
        if type(each) in (torch.Tensor, torch.nn.Parameter) and each.layout == torch.strided
    ]


class Following:
    """Marks results in all threads of a script with two queues."""

    def __init__(self) -> None:
        self._undo = ExitStack()
        self._on = False

    def begin(self) -> None:
        """Mark results from here on, in this thread and in threads to come."""
        if self._on:
            return
        self._on = True
        self._undo.enter_context(Marking())
        run = threading.Thread.run

        def marked(thread: threading.Thread) -> None:
            with Marking():
                run(thread)

        kind: Any = threading.Thread
        kind.run = marked
        self._undo.callback(setattr, kind, "run", run)

    def end(self) -> None:
        """Mark results no more."""
        self._undo.close()
        self._on = False


following = Following()
