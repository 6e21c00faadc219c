"""A script that asks its groups what they are, and makes groups in all ways that torch has."""

import json
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def said(call):
    """Return what a call gives, or the beginning of what it raises."""
    try:
        return str(call())
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:60]}"


def summed(group):
    x = torch.full((3,), 1.0 + dist.get_rank())
    dist.all_reduce(x, group=group)
    return x.tolist()


def answers():
    """Ask all that can be asked."""
    rank, size = dist.get_rank(), dist.get_world_size()
    world = dist.group.WORLD
    named = dist.new_group(backend="gloo")
    pairs, _ = dist.new_subgroups(2)
    enumerated, _ = dist.new_subgroups_by_enumeration([[0, 3], [1, 2]], backend="gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    other = init_device_mesh(
        "cpu", (2, 2), mesh_dim_names=("a", "b"), backend_override={"a": "gloo"}
    )
    groups = {
        "world": world,
        "named": named,
        "pairs": pairs,
        "enumerated": enumerated,
        "tp": mesh["tp"].get_group(),
        "a": other.get_group("a"),
    }
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(2, 2), process_group=named)
    y = torch.zeros(2)
    here, there = (named, (rank + 1) % size)
    ops = [
        dist.P2POp(dist.isend, torch.full((2,), float(rank)), there, here),
        dist.P2POp(dist.irecv, y, (rank - 1) % size, here),
    ]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    return {
        "backends": {name: dist.get_backend(group) for name, group in groups.items()},
        "names": {name: group.name() for name, group in groups.items()},
        "options": {
            name: type(group._get_backend(torch.device("cpu")).options).__name__
            for name, group in groups.items()
        },
        "sums": {name: summed(group) for name, group in groups.items()},
        "ddp": ddp._get_ddp_logging_data()["backend_name"],
        "barrier": said(lambda: dist.monitored_barrier()),
        "barrier of a group": said(lambda: dist.monitored_barrier(named)),
        "split": said(lambda: dist.split_group(split_ranks=[[0, 1], [2, 3]])),
        "came": y.tolist(),
    }


if __name__ == "__main__":
    dist.init_process_group("gloo")
    # torchrun starts Python unbuffered, and then print writes the parts of a line separately.
    sys.stdout.write(f"ANSWERS {json.dumps(answers())}\n")
    dist.destroy_process_group()
