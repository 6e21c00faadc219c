"""Refuses tensors that a backend would move wrongly because of their layout in memory.

A backend moves most tensors in memory order, from the first element on. In some calls, a backend
first copies the tensors by their shapes and strides: gloo does so in all calls that are not in
`AS_THEY_LIE`. tests/rank/test_layout.py tests gloo itself with every call and layout. In
collectives NCCL accepts only contiguous and channels_last tensors; in messages NCCL accepts any
tensor, and warns.

ddpkit refuses a tensor with gaps between its elements, or with several elements at one address. A
dense tensor may have a memory order that differs from its shape's order (transposed,
channels_last). The tensors of one call must have one order; `order` lets the launcher compare the
ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch

from ddpkit.protocol.call import ASYNCHRONOUS
from ddpkit.rank.group import arguments
from ddpkit.rank.where import user_call

IN_PLACE = ("all_reduce", "all_reduce_coalesced", "broadcast", "reduce")
# In these calls, gloo moves tensors in the order of memory.
AS_THEY_LIE = (
    "all_reduce",
    "broadcast",
    "reduce",
    "scatter",
    "reduce_scatter",
    "all_to_all_single",
)
# Every backend copies these tensors element by element, so gaps are harmless.
COPIED_INPUTS = ("reduce_scatter",)
COPIED_OUTPUTS = ("all_gather", "all_gather_coalesced")
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def order(op: str, args: Sequence[object], as_nccl: bool) -> tuple[int, ...]:
    """Return the strides of a call's first tensor, if it is dense and not contiguous.

    The tuple is empty for a contiguous tensor, and for a call with tensors that the backend copies.
    Raises ValueError for a call that would move memory outside its tensors.

    op       torch.distributed's name of the collective
    args     the arguments of the group's method
    as_nccl  True if NCCL executes the call, or if the script has requested NCCL
    """
    if not (as_nccl or op in AS_THEY_LIE):
        return ()
    outputs = strided(args[:1])
    inputs = [] if op in IN_PLACE else strided(args[1:2])
    found = [*outputs, *inputs]
    if all(each.is_contiguous() for each in found):
        return ()
    fits = _is_regular if as_nccl or op == "all_to_all_single" else is_dense
    for tensors, copied, name in (
        (outputs, COPIED_OUTPUTS, "tensor" if op in IN_PLACE else "output"),
        (inputs, COPIED_INPUTS, "input"),
    ):
        for number, each in enumerate(tensors):
            if op not in copied and not fits(each):
                numbered = f"{name} {number}" if len(tensors) > 1 else f"the {name}"
                raise ValueError(_not_contiguous(op, numbered, each, writes=name != "input"))
    orders = {strides(each): each.stride() for each in found}
    if op not in IN_PLACE and len(orders) > 1:
        one, other, *_ = orders.values()
        raise ValueError(
            f"{op}: every tensor of the call has to be contiguous. The call moves elements in the "
            f"order of memory, and this order differs between tensors with strides {list(one)} and "
            f"{list(other)}. Pass x.contiguous() for each tensor."
        )
    return strides(found[0])


def check_message(op: str, tensor: torch.Tensor, as_nccl: bool) -> None:
    """Raise ValueError for a send or recv that would move memory outside the tensor.

    gloo accepts only a contiguous tensor. NCCL accepts any tensor, and moves a dense one correctly.
    """
    if tensor.layout is not torch.strided or tensor.is_contiguous():
        return
    if not (as_nccl and is_dense(tensor)):
        raise ValueError(_not_contiguous(op, "the tensor", tensor, writes=op == "recv"))


def strided(value: object) -> list[torch.Tensor]:
    """Return the tensors in nested lists, without sparse ones."""
    return [each for each in arguments.tensors(value) if each.layout is torch.strided]


def is_dense(tensor: torch.Tensor) -> bool:
    """True if each address from a tensor's first element to its last holds exactly one element."""
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length == 1:
            continue
        if stride != expected:
            return not tensor.numel()
        expected *= length
    return True


def strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of a dense tensor that is not contiguous; () for any other tensor."""
    if tensor.is_contiguous() or not is_dense(tensor):
        return ()
    # The stride of a dimension of length 1 may be any number.
    pairs = zip(tensor.stride(), tensor.shape, strict=True)
    return tuple(stride if length > 1 else 0 for stride, length in pairs)


def _is_regular(tensor: torch.Tensor) -> bool:
    """True if a tensor is contiguous or channels_last."""
    if tensor.is_contiguous():
        return True
    layout = FORMATS.get(tensor.dim())
    return layout is not None and tensor.is_contiguous(memory_format=layout)


def _not_contiguous(op: str, name: str, tensor: torch.Tensor, *, writes: bool) -> str:
    via = user_call(sys._getframe())[1]
    op = via if via in ASYNCHRONOUS else op
    remedy = f"Call {op} with y = x.contiguous(), and then x.copy_(y)."
    return (
        f"{op}: {name} has to be contiguous, but has shape {list(tensor.shape)} and strides "
        f"{list(tensor.stride())}, so the call would move wrong elements of the memory. "
        f"{remedy if writes else 'Pass x.contiguous().'}"
    )
