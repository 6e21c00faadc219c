"""TorchScript knows torch's functions by identity, also functions that ddpkit replaces."""

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer


@torch.jit.script
def doubled(x):
    y = torch.zeros_like(x) + torch.full((2,), 2.0) * x + torch.zeros(2)
    if torch.is_autocast_enabled():
        y += 1
    return y


dist.init_process_group("gloo")
model = torch.nn.Linear(2, 1)
optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.1)
model(doubled(torch.ones(2))).sum().backward()
optimizer.step()
assert doubled(torch.ones(2)).tolist() == [2, 2]
dist.destroy_process_group()
