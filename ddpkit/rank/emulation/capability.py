"""Refuses operations for which a modelled GPU is too old, as torch refuses them on the real GPU.

Before some operations, torch asks the GPU for its compute capability, and raises if the compute
capability is too low. The CPU has these operations, so a script would pass here and fail on its
GPU. Sources of the numbers: NVIDIA's list of GPUs by compute capability, AMD's gfx942; torch,
`cuda/ScaledBlas.cpp`, `cuda/GroupedBlas.cpp` and `transformers/cuda/sdp_utils.cpp`. A machine that
the user describes by numbers, and not by a GPU's name, refuses nothing.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from ddpkit import torch_private

if TYPE_CHECKING:
    from collections.abc import Callable

CAPABILITIES = {
    "K80": (3, 7),
    "V100": (7, 0),
    "T4": (7, 5),
    "A100": (8, 0),
    "H100": (9, 0),
    "H200": (9, 0),
    "B200": (10, 0),
    "GB200": (10, 0),
    "B300": (10, 3),
    "GB300": (10, 3),
    "MI300X": (9, 4),
}
# Names of operations, each with the least capability and a way round.
LEAST = {
    "_scaled_mm": ((8, 9), "convert to bfloat16 and multiply, or take a machine such as H100"),
    "_scaled_mm_v2": ((8, 9), "convert to bfloat16 and multiply, or take a machine such as H100"),
    "_scaled_grouped_mm": ((9, 0), "multiply in bfloat16 by grouped_mm, or take an H100"),
    "_scaled_grouped_mm_v2": ((9, 0), "multiply in bfloat16 by grouped_mm, or take an H100"),
}
FOUR_BITS = ((10, 0), "take 8 bits, or a machine such as B200")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mv", "dot", "convolution")
ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
FLASH = (8, 0)
HALVES = (torch.float16, torch.bfloat16)
asked: list[tuple[str, ...]] = []  # the kernels of attention in the blocks of `sdpa_kernel`


def capability_of(name: str) -> tuple[int, int] | None:
    """Return a machine's compute capability by its name, such as "A100 80GB"; None if unknown."""
    return CAPABILITIES.get(name.partition(" ")[0])


@cache
def asks(func: Callable[..., object]) -> str:
    """Return the name of an operation if some GPUs lack the operation, else ""."""
    name = torch_private.schema_of(func).name.removeprefix("aten::")
    return name if name in LEAST or name in PRODUCTS or name == ATTENTION else ""


def check(machine: str, name: str, args: tuple[object, ...]) -> None:
    """Raise if the modelled GPU lacks an operation.

    machine  the name of the modelled machine
    name     the operation's name, as `asks` returns it
    args     the operation's arguments

    Raises:
        RuntimeError: The GPU lacks the operation; the text names the machine and an alternative.
    """
    found = capability_of(machine)
    if found is None:
        return
    tensors = [each for each in args if isinstance(each, torch.Tensor)]
    if name in LEAST:
        least, way = LEAST[name]
        if any("float4" in str(each.dtype) for each in tensors):
            least, way = FOUR_BITS
        if found < least:
            raise RuntimeError(_too_old(machine, found, f"torch.{name}", least, way))
    elif name in PRODUCTS:
        low = next((each.dtype for each in tensors if "float8" in str(each.dtype)), None)
        if low is not None:
            raise RuntimeError(
                f'"{name}" is not implemented for {low} on a GPU ({machine}). Call '
                "torch._scaled_mm with scales, or convert the tensors to bfloat16 first"
            )
    elif asked and not {*asked[-1]} - {"FLASH_ATTENTION", "CUDNN_ATTENTION"}:
        kernels = " and ".join(asked[-1])
        if found < FLASH:
            way = "add SDPBackend.EFFICIENT_ATTENTION or MATH"
            raise RuntimeError(_too_old(machine, found, f"sdpa_kernel({kernels})", FLASH, way))
        if tensors[0].dtype not in HALVES:
            raise RuntimeError(
                f"no kernel of attention on {machine}: {kernels} in sdpa_kernel takes float16 and "
                f"bfloat16, and these tensors are {tensors[0].dtype}. Convert the tensors, train "
                "under autocast, or add SDPBackend.EFFICIENT_ATTENTION"
            )


def _too_old(
    machine: str, found: tuple[int, int], call: str, least: tuple[int, int], way: str
) -> str:
    has, needs = (".".join(map(str, each)) for each in (found, least))
    return f"{machine} has compute capability {has}, and {call} needs {needs} or more: {way}"
