"""FSDP with its parameters on the host, the option by name and by position: the same training."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import CPUOffload, ShardingStrategy
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)


def trained(*args: object, **kwargs: object) -> float:
    """Return the loss after three steps; the arguments are FSDP's options."""
    torch.manual_seed(0)
    model = FSDP(nn.Linear(20, 20), *args, device_id=rank, **kwargs)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(3):
        loss = model(torch.ones(4, 20, device="cuda")).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


on_the_gpu = trained()
offloads = CPUOffload(offload_params=True)
assert trained(None, ShardingStrategy.FULL_SHARD, offloads) == on_the_gpu
assert trained(cpu_offload=offloads) == on_the_gpu
