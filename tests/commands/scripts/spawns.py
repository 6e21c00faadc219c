"""A script that starts its processes by itself, as in torch's own first tutorial."""

import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


def demo(rank: int, world_size: int) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DDP(nn.Linear(10, 5).to(rank), device_ids=[rank])
    model(torch.randn(20, 10)).sum().backward()
    print(f"rank {rank} of {world_size}")
    dist.destroy_process_group()


if __name__ == "__main__":
    world_size = int(sys.argv[1]) if sys.argv[1:] else torch.accelerator.device_count()
    mp.spawn(demo, args=(world_size,), nprocs=world_size, join=True)
