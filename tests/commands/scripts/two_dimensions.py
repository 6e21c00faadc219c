"""Tensor parallel inside a host, sharded data parallel between hosts, by torch.accelerator."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

local_rank, per_host = (int(os.environ[name]) for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
assert torch.accelerator.is_available()
assert torch.accelerator.device_count() == per_host == 2
assert int(os.environ["GROUP_RANK"]) * per_host + local_rank == int(os.environ["RANK"])
device = torch.device(f"{torch.accelerator.current_accelerator()}:{local_rank}")
torch.accelerator.set_device_index(local_rank)
dist.init_process_group(dist.get_default_backend_for_device(device), device_id=device)
mesh = init_device_mesh(device.type, (-(-4 // per_host), per_host), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)).to(device)
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
for _ in range(2):
    model(torch.rand(4, 8, device=device)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
