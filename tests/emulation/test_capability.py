"""A modelled GPU refuses operations for which it is too old, as torch does on the real GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ddpkit import Cluster, RankError
from ddpkit.machine import named
from ddpkit.rank.emulation import capability


def _scaled() -> None:
    x = torch.ones(16, 16).to(torch.float8_e4m3fn)
    torch._scaled_mm(x, x.t(), torch.ones(()), torch.ones(()), out_dtype=torch.bfloat16)


@pytest.mark.processes
def test_products_of_8_bits_run_on_gpus_that_have_them() -> None:
    Cluster(1, machine="H100").run(_scaled)
    Cluster(1, machine="device of 1 TFLOP/s, 5 us").run(_scaled)
    with pytest.raises(RankError, match="A100 has compute capability 8.0.*_scaled_mm needs 8.9"):
        Cluster(1, machine="A100").run(_scaled)


@pytest.mark.parametrize(
    ("machine", "name", "dtype", "says"),
    [
        ("A100 80GB", "_scaled_mm", torch.float8_e4m3fn, "needs 8.9 or more: convert to bfloat16"),
        ("H100", "_scaled_mm", torch.float8_e4m3fn, ""),
        ("H100", "_scaled_mm", torch.float4_e2m1fn_x2, "needs 10.0 or more: take 8 bits"),
        ("B200", "_scaled_mm", torch.float4_e2m1fn_x2, ""),
        ("A100", "_scaled_grouped_mm", torch.float8_e4m3fn, "needs 9.0 or more"),
        ("H100", "mm", torch.float8_e4m3fn, "Call torch._scaled_mm with scales"),
        ("H100", "mm", torch.bfloat16, ""),
        ("1 TFLOP/s", "mm", torch.float8_e4m3fn, ""),
    ],
)
def test_each_operation_by_the_capability(
    machine: str, name: str, dtype: torch.dtype, says: str
) -> None:
    tensor: Any = torch.empty(2, 2, dtype=dtype)
    if not says:
        capability.check(machine, name, (tensor, tensor))
        return
    with pytest.raises(RuntimeError, match=says):
        capability.check(machine, name, (tensor, tensor))


def test_each_operation_of_the_list_is_torchs() -> None:
    for name in (*capability.LEAST, *capability.PRODUCTS, capability.ATTENTION):
        if not name.endswith("_v2"):  # newer than the oldest torch of pyproject.toml
            assert capability.asks(getattr(torch.ops.aten, name).default) == name
    assert capability.asks(torch.ops.aten.add.Tensor) == ""


def test_each_named_gpu_has_a_capability() -> None:
    without = [name for name in named() if capability.capability_of(name) is None]
    assert without == ["TPU v5p", "laptop core"]


@pytest.mark.parametrize(
    ("machine", "kernel", "dtype", "says"),
    [
        ("V100", "FLASH_ATTENTION", torch.float16, "V100 has compute capability 7.0"),
        ("A100", "FLASH_ATTENTION", torch.float32, "takes float16 and bfloat16"),
        ("A100", "FLASH_ATTENTION", torch.float16, ""),
        ("V100", "EFFICIENT_ATTENTION", torch.float32, ""),
    ],
)
def test_kernels_of_attention_by_the_capability(
    machine: str, kernel: str, dtype: torch.dtype, says: str
) -> None:
    tensor = torch.empty(1, 1, 2, 2, dtype=dtype)
    capability.asked.append((kernel,))
    try:
        if says:
            with pytest.raises(RuntimeError, match=says):
                capability.check(machine, capability.ATTENTION, (tensor,))
        else:
            capability.check(machine, capability.ATTENTION, (tensor,))
    finally:
        capability.asked.pop()
