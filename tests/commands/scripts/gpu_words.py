"""Questions of scripts for GPUs about autocast and memory, and the saving in FSDP's tutorial."""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullStateDictConfig,
    MixedPrecision,
    StateDictType,
)
from torch.distributed.fsdp import (
    FullyShardedDataParallel as FSDP,
)


class Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        assert not torch.is_autocast_enabled("cuda")
        return x @ x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


local_rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
dist.init_process_group("nccl")

assert not torch.is_autocast_enabled()
with torch.autocast("cuda", dtype=torch.bfloat16):
    assert torch.is_autocast_enabled("cuda")
    assert torch.get_autocast_dtype("cuda") == torch.bfloat16
    x = torch.ones(2, 2, device="cuda", dtype=torch.bfloat16)
    assert (x @ x).dtype == torch.bfloat16
    assert Square.apply(x).dtype == torch.float32  # type: ignore[no-untyped-call]

stats = torch.cuda.memory_stats()
assert stats["allocated_bytes.all.peak"] == torch.cuda.max_memory_allocated() >= 8
assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated()
assert not torch.cuda.is_current_stream_capturing()

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
before = {name: value.clone() for name, value in net.state_dict().items()}
half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
model = FSDP(net, device_id=torch.cuda.current_device(), mixed_precision=half)
how = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, how):
    saved = model.state_dict()
model(torch.randn(2, 8).to(local_rank)).sum().backward()
torch.optim.SGD(model.parameters(), lr=0.1).step()
assert len(saved) == (4 if dist.get_rank() == 0 else 0)
for name, value in saved.items():  # the saved values do not follow the training
    torch.testing.assert_close(value, before[name], rtol=0, atol=0)
dist.destroy_process_group()
