"""Makes gloo execute calls that only NCCL accepts, for a script that is told that it has NCCL.

Without a GPU, `ddpkit run` uses the CPU in place of "cuda", and gloo executes the calls that the
script makes to NCCL. NCCL compares numbers of elements where gloo compares shapes, and moves types
that gloo does not know. So gloo gets views of the tensors, with the same bytes, in a type and shape
that gloo accepts. The record of the call describes the script's own tensors.

Calls that NCCL also refuses (an average of integers, a gather of unequal parts) are refused by gloo
too.
"""

from __future__ import annotations

import sys
from contextlib import nullcontext
from datetime import timedelta
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist

from ddpkit import torch_private
from ddpkit.rank.callers import below_the_user, module_of, sends_an_object
from ddpkit.rank.emulation import machine
from ddpkit.rank.group import arguments
from ddpkit.rank.group.staged import MESSAGES, Landing
from ddpkit.torch_private import ALL_GATHER, REDUCE_SCATTER

GATHERS = (ALL_GATHER, "all_gather_single")
SCATTERS = (REDUCE_SCATTER, "reduce_scatter_single")
REDUCES = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", *SCATTERS)
FLOAT8 = frozenset(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
)


UNKNOWN_TO_NCCL = frozenset(
    getattr(torch, name)
    for name in ("int16", "uint16", "uint32", "uint64", "complex32")
    if hasattr(torch, name)
)
DIRECT = ("torch.distributed.distributed_c10d", "torch.distributed.c10d_logger", "contextlib")


def check(method: str, args: tuple[object, ...]) -> None:
    """Raise for tensors that NCCL refuses, because of their type or because they lie on the host.

    Tensors of the host are known only on a machine with a device. They are refused only in the
    script's direct calls, because libraries move their tensors to a device that is the CPU here.

    Raises:
        TypeError: A tensor has a type that NCCL does not have.
        RuntimeError: A tensor lies in the host's memory; the message is torch's.
    """
    for each in arguments.tensors(args):
        if each.dtype in UNKNOWN_TO_NCCL:
            name = str(each.dtype).removeprefix("torch.")
            raise TypeError(f"{method} of {name}: NCCL has no such type. Pass x.to(torch.int32).")
    emulated = machine.current()
    tensor = None if emulated is None else emulated.tensor_of_host(args)
    if tensor is not None and _is_direct(sys._getframe(1)):
        raise RuntimeError(
            f"No backend type associated with device type cpu: {method} of a tensor of shape "
            f"{tuple(tensor.shape)} in the memory of the host, in a group of NCCL. Move the tensor "
            'to the GPU first, or make the group with backend "cpu:gloo,cuda:nccl".'
        )


def _is_direct(frame: FrameType | None) -> bool:
    """True if the user's code calls torch.distributed directly, and sends no pickled object."""
    if sends_an_object(frame):
        return False
    below = [*below_the_user(frame)]
    modules = {module_of(each) for each in below if module_of(each).split(".")[0] != "ddpkit"}
    return bool(below) and below[-1].f_back is not None and modules <= {*DIRECT}


def fitted(method: str, args: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """Return the arguments of a group's method in a form that gloo accepts.

    size  the number of ranks in the group

    Raises TypeError for a reduction of tensors that have a type in which gloo cannot add.
    """
    args = torch_private.tree_map(_as_real, args)
    args = _scaled_before(method, args)
    if method in GATHERS or method in SCATTERS:
        output, input, *rest = args
        small, large = (input, output) if method in GATHERS else (output, input)
        if _one_after_the_other(small, large) and large.numel() == size * small.numel():
            args = (output.view(-1), input.view(-1), *rest)
    elif method == "allgather":
        (outputs,), (input,), *rest = args
        if _one_after_the_other(input, *outputs) and {each.numel() for each in outputs} == {
            input.numel()
        }:
            args = ([[each.view(-1) for each in outputs]], [input.view(-1)], *rest)
    elif method in MESSAGES:
        args = ([_as_it_lies(each) for each in args[0]], *args[1:])
    fitting: tuple[object, ...] = _bytes_of_float8(method, args)
    return fitting


def _scaled_before(method: str, args: tuple[object, ...]) -> tuple[Any, ...]:
    """Scale the inputs of NCCL's PREMUL_SUM, and return arguments for a plain sum."""
    options = arguments.options(args)
    if arguments.reduction(options) != "PREMUL_SUM":
        return args
    factor = options.reduceOp.__getstate__()[1]
    plain = type(options)()
    for name in ("timeout", "asyncOp", "rootRank", "rootTensor"):
        if hasattr(options, name):
            setattr(plain, name, getattr(options, name))
    plain.reduceOp = dist.ReduceOp.SUM
    with torch.no_grad():
        if method in ("allreduce", "allreduce_coalesced", "reduce"):  # in place
            for each in arguments.tensors(args[0]):
                each.mul_(factor)
            scaled = args[:1]
        else:
            scaled = (args[0], torch_private.tree_map(lambda each: each * factor, args[1]))
    return *scaled, *(plain if each is options else each for each in args[len(scaled) :])


def _as_real(value: object) -> object:
    """Return a complex tensor as a real tensor of pairs; return any other value unchanged."""
    if isinstance(value, torch.Tensor) and value.is_complex() and value.layout == torch.strided:
        return torch.view_as_real(value)
    return value


def _as_it_lies(tensor: torch.Tensor) -> torch.Tensor:
    """Return a dense tensor's elements as a vector in memory order, which NCCL uses."""
    if tensor.layout != torch.strided or tensor.is_contiguous():
        return tensor
    return tensor.as_strided((tensor.numel(),), (1,))


def _one_after_the_other(*tensors: torch.Tensor) -> bool:
    """True if all tensors are dense and contiguous, so that each can be viewed as a vector."""
    return all(each.layout == torch.strided and each.is_contiguous() for each in tensors)


def _bytes_of_float8(method: str, value: object) -> Any:
    """Return a value in which each tensor of 8-bit floats is viewed as a tensor of bytes."""
    if isinstance(value, torch.Tensor) and value.dtype in FLOAT8:
        if method in REDUCES:
            raise TypeError(
                f"{method} of {str(value.dtype).removeprefix('torch.')}: NCCL adds 8-bit floats on "
                "an H100 or a later GPU, but the CPU cannot. Convert the tensor to bfloat16 for "
                "this call."
            )
        return value.view(torch.uint8)
    if isinstance(value, list | tuple):
        return type(value)(_bytes_of_float8(method, each) for each in value)
    return value


def unlike(tensors: list[torch.Tensor]) -> bool:
    """True if tensors have different numbers of elements."""
    return len({each.numel() for each in tensors}) > 1


class ExchangedLists(Landing):
    """An exchange of lists of unequal tensors; its wait copies each received part to its tensor."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        emulated = machine.current()
        # NCCL writes into the tensors themselves: the copy is the kit's, and takes no time.
        with emulated.clocks.mine.stopped() if emulated else nullcontext():
            return super().wait(timeout)
