"""A pipeline of torch.distributed.pipelining: one stage a rank, 1F1B, four micro-batches."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
torch.manual_seed(rank)
module = nn.Sequential(nn.Linear(16, 16), nn.ReLU()).to(device)
stage = PipelineStage(module, rank, size, device)
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
batch = torch.randn(16, 16, device=device)
for _ in range(2):
    optimizer.zero_grad()
    losses: list[torch.Tensor] = []
    last = (
        {"target": torch.zeros(16, 16, device=device), "losses": losses} if rank == size - 1 else {}
    )
    schedule.step(*([batch] if rank == 0 else []), **last)
    optimizer.step()
    if losses:
        print(f"{len(losses)} micro-batches, loss {torch.stack(losses).mean().item():.3f}")
dist.destroy_process_group()
