"""Calls on large tensors without values: gloo moves a few elements in place of each tensor.

A rank without values has nothing to send. But a call still has to wait for the call of its peers,
to fail where a peer fails, and to have a future. So gloo moves one element for each part of a
tensor, and waits, fails and makes futures as usual. The timekeeper computes the times for the whole
tensor.

What must hold: for one call, either gloo moves the values on all ranks, or on no rank. So the
decision depends only on the shape and the dtype that all ranks must share.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from ddpkit.protocol.call import Call
from ddpkit.protocol.not_computed import (
    is_marked,
    mark,
    most_computed,
    zero_if_untouched,
)
from ddpkit.rank.callers import sends_an_object
from ddpkit.rank.group import arguments
from ddpkit.rank.group.believed import GATHERS, SCATTERS

if TYPE_CHECKING:
    import torch.distributed as dist

EXCHANGES = ("alltoall_base", "all_to_all_single")


def carried_for(
    method: str, args: tuple[object, ...], call: Call
) -> tuple[tuple[object, ...], list[torch.Tensor]]:
    """Return the arguments for gloo, and a list of the tensors that small tensors replace in gloo.

    The list is empty if gloo moves the tensors themselves. The results of a call are marked as not
    computed if this rank's inputs were not computed.
    """
    tensors = list(arguments.tensors(args))
    if any(each.layout is not torch.strided for each in tensors):
        return args, []
    unknown = any(map(is_marked, tensors))
    results = [] if call.op == "send" else list(arguments.tensors(args[:1]))
    short = _short(method, args, call.group_size) if _is_large(method, args, call) else None
    if short is None:
        for each in tensors:
            zero_if_untouched(each)
    if short is not None or unknown:
        for each in results:
            mark(each)
    return (args, []) if short is None else (short, results or tensors)


def _is_large(method: str, args: tuple[object, ...], call: Call) -> bool:
    """True if the tensors of a call are so large that gloo does not move them."""
    first = arguments.tensor(args)
    if first is None:
        return False
    # in these calls each rank may have parts of different sizes
    if not (method in EXCHANGES and any(args[2:4])):
        limit = most_computed(first.dtype)
        if torch.Size(call.shape).numel() <= limit:
            return False
    return not (first.dtype is torch.uint8 and sends_an_object(sys._getframe(1)))


def _short(method: str, args: tuple[Any, ...], size: int) -> tuple[object, ...] | None:
    """Return arguments with one element for each part; None if gloo would refuse the sizes.

    size  the number of ranks in the group
    """
    first, second, *rest = (*args, None, None)[: max(len(args), 2)]
    if method in GATHERS:
        fits = first.numel() == size * second.numel()
        return (first.new_empty(size), second.new_empty(1), *rest) if fits else None
    if method in SCATTERS:
        fits = second.numel() == size * first.numel()
        return (first.new_empty(1), second.new_empty(size), *rest) if fits else None
    if method in EXCHANGES:
        for tensor, parts in zip((first, second), args[2:4], strict=True):
            rows = tensor.shape[0] if tensor.dim() else 0
            if (sum(parts) != rows or len(parts) != size) if parts else rows % size:
                return None
        return (first.new_empty(size), second.new_empty(size), [], [], *args[4:])
    if not method.endswith("_coalesced") and not _alike(arguments.tensors(args)):
        return None
    return tuple(map(_of_one_element, args))


def _alike(tensors: Sequence[torch.Tensor]) -> bool:
    return len({each.numel() for each in tensors}) <= 1


def _of_one_element(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return value.new_empty(1)
    if isinstance(value, list):
        return [*map(_of_one_element, value)]
    return tuple(map(_of_one_element, value)) if isinstance(value, tuple) else value


class Uncarried:
    """gloo's handle of a call in which gloo moves small tensors in place of large results.

    The handle's future is gloo's future, and has the small tensors as its value. `EmulatedFuture`
    replaces the small tensors by the results. A callback of gloo's future must not hold the
    results, because then one of gloo's threads could free them. The handle holds all arguments of
    the call, as gloo's own handle would.
    """

    def __init__(
        self, inner: dist.Work, results: Sequence[torch.Tensor], args: tuple[object, ...]
    ) -> None:
        self._inner, self.results, self._args = inner, list(results), args

    def result(self) -> list[torch.Tensor]:
        return self.results

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)
