"""mp.spawn for two processes, for a single process and for two, without destroy_process_group."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def add(rank: int, world_size: int, folder: str) -> None:
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", "12355"
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    ones = torch.ones(1)
    dist.all_reduce(ones)
    assert ones.item() == world_size == dist.get_world_size()
    Path(folder, f"{rank} of {world_size}").touch()


if __name__ == "__main__":
    folder = sys.argv[1]
    mp.spawn(add, (2, folder), nprocs=2)
    assert os.environ["WORLD_SIZE"] == "2"
    mp.spawn(add, (1, folder), nprocs=1)
    assert Path(folder, "0 of 1").exists()
    mp.spawn(add, (2, folder), nprocs=2)
