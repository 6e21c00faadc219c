"""Tensor, sequence and loss parallelism, as in torch's tutorial: sharded along the sequence."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)


class FeedForward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.w2(F.silu(self.w1(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.norm = nn.Embedding(16, 8), nn.RMSNorm(8)
        self.feed, self.out = FeedForward(), nn.Linear(8, 16, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.feed(self.norm(self.tokens(x))))


device = torch.device(f"cuda:{os.environ['LOCAL_RANK']}")
torch.cuda.set_device(device)
mesh = init_device_mesh("cuda", (int(os.environ["WORLD_SIZE"]),))
torch.manual_seed(0)
model = parallelize_module(
    Model().to(device),
    mesh,
    {
        "tokens": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "feed": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        "feed.w1": ColwiseParallel(),
        "feed.w2": RowwiseParallel(output_layouts=Shard(1)),
        "out": ColwiseParallel(
            input_layouts=Shard(1), output_layouts=Shard(-1), use_local_output=False
        ),
    },
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, foreach=True)
x = torch.randint(16, (2, 4), device="cuda")
losses = []
for _ in range(3):
    with loss_parallel():
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.full_tensor().item())
assert losses[-1] < losses[0]
dist.destroy_process_group()
