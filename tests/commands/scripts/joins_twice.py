"""Joins, leaves, and joins again, with other groups under the same numbers."""

from datetime import timedelta

import torch
import torch.distributed as dist

for members in ([0, 1], [1, 2]):
    dist.init_process_group("nccl", init_method="env://", timeout=timedelta(minutes=5))
    rank = dist.get_rank()
    group = dist.new_group(members, backend="gloo", timeout=timedelta(seconds=9))
    x = torch.tensor([float(rank)])
    if rank in members:
        dist.all_reduce(x, group=group)
        assert dist.get_backend(group) == "gloo"
        assert x.item() == sum(members)
    dist.barrier()
    assert (dist.get_backend(), dist.get_world_size()) == ("nccl", 3)
    dist.destroy_process_group()
    assert not dist.is_initialized()
print("joined twice")
