"""Calls on large tensors without values: gloo carries a few elements instead of each tensor.

A rank without values has nothing to send. But a call still has to wait for the call of its peers,
to fail where a peer fails, and to have a future. So gloo carries one element for each part of a
tensor, and does all this as usual. The times are the timekeeper's, and are those of the whole
tensor.

What must hold: all ranks of a call agree to carry the values, or all agree not to. So the decision
depends only on the shape and the dtype that all ranks must share.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

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

EXCHANGES = ("alltoall_base", "all_to_all_single")


def carried_for(
    method: str, args: tuple[Any, ...], call: Call
) -> tuple[tuple[Any, ...], list[torch.Tensor]]:
    """Return the arguments for gloo, and a list of the tensors that gloo has small tensors for.

    The list is empty if gloo carries the tensors themselves. The results of a call are marked if
    the values that the rank has given were not computed.
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


def _is_large(method: str, args: tuple[Any, ...], call: Call) -> bool:
    """True if gloo is not to carry the tensors of a call."""
    first = arguments.tensor(args)
    if first is None:
        return False
    # in these calls each rank may have parts of different sizes
    if not (method in EXCHANGES and any(args[2:4])):
        limit = most_computed(first.dtype)
        if torch.Size(call.shape).numel() <= limit:
            return False
    return not (first.dtype is torch.uint8 and sends_an_object(sys._getframe(1)))


def _short(method: str, args: tuple[Any, ...], size: int) -> tuple[Any, ...] | None:
    """Return arguments with one element for each part; None for sizes that gloo refuses.

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


def _alike(tensors: Any) -> bool:
    return len({each.numel() for each in tensors}) <= 1


def _of_one_element(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.new_empty(1)
    if isinstance(value, list):
        return [*map(_of_one_element, value)]
    return tuple(map(_of_one_element, value)) if isinstance(value, tuple) else value


class Uncarried:
    """Gloo's handle of a call in which gloo carries small tensors for large results.

    The handle's future is gloo's, with the small tensors: `EmulatedFuture` replaces them by the
    results. A callback of gloo's future that held the results would let one of gloo's threads free
    them. The handle holds all arguments of the call, as gloo's own handle would.
    """

    def __init__(self, inner: Any, results: Sequence[torch.Tensor], args: tuple[Any, ...]) -> None:
        self._inner, self.results, self._args = inner, list(results), args

    def result(self) -> list[torch.Tensor]:
        return self.results

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
