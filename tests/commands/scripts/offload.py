"""FSDP2 with the parameters on the device or on the host; writes the device's bytes to a file."""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank())
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
offloads = sys.argv[1] != "none"
policy = CPUOffloadPolicy(pin_memory=sys.argv[1] == "pinned") if offloads else OffloadPolicy()
model = nn.Sequential(*(nn.Linear(500, 500, bias=False) for _ in range(4)))
for layer in model:
    fully_shard(layer, mesh=mesh, offload_policy=policy)
fully_shard(model, mesh=mesh, offload_policy=policy)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(8, 500, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.cuda.synchronize()
Path(f"bytes of rank {dist.get_rank()}").write_text(
    f"{torch.cuda.memory_allocated()} {torch.cuda.max_memory_allocated()}"
)
for parameter in model.parameters():
    assert parameter.to_local().is_cuda is not offloads
