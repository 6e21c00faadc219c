"""Make calls, some of which fail on GPUs; print rank 0's errors as JSON, "" for no error."""

import json
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.tensor as dtensor
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.sharding_spec import ChunkShardingSpec
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffload
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
x = torch.ones(4, device="cuda")
i = torch.full((2,), 1j * (rank + 1), device="cuda")
mesh = init_device_mesh("cuda", (size,))
assert torch.backends.cudnn.is_available()
assert torch.backends.cuda.is_built()
assert dist.get_backend_config() == "cuda:nccl"


def gather_complex() -> None:
    found = [torch.empty_like(i) for _ in range(size)]
    dist.all_gather(found, i)
    assert found[-1].tolist() == [1j * size] * 2


def by_library() -> None:
    objects = [None] * size
    dist.all_gather_object(objects, torch.ones(2))


def bf16_hook() -> None:
    model = DDP(torch.nn.Linear(4, 4).cuda(), device_ids=[rank])
    model.register_comm_hook(None, bf16_compress_hook)
    model(x).sum().backward()
    assert bf16_compress_hook.__name__ == "bf16_compress_hook"


def sharded() -> None:
    spec: Any = ChunkShardingSpec(0, [f"rank:{each}/cpu" for each in range(size)])
    assert sharded_tensor.ones(spec, 4).device.type in ("cpu", "cuda")


calls = {
    "bf16_hook": bf16_hook,
    "sharded": sharded,
    "offload": lambda: FSDP(torch.nn.Linear(4, 4), cpu_offload=CPUOffload(offload_params=True)),
    "numpy": lambda: x.numpy(),
    "np.asarray": lambda: np.asarray(x),
    "cpu().numpy": lambda: x.cpu().numpy(),
    "all_reduce of the host": lambda: dist.all_reduce(torch.ones(2)),
    "broadcast of the host": lambda: dist.broadcast(torch.tensor(x.sum().item()), 0),
    "all_reduce of the device": lambda: dist.all_reduce(torch.tensor(1.0, device="cuda")),
    "objects": by_library,
    "int16": lambda: dist.all_reduce(x.short()),
    "uint16": lambda: dist.broadcast(x.to(torch.uint16), 0),
    "complex": gather_complex,
    "new_subgroups": lambda: dist.new_subgroups(),
    "ipc_handle": lambda: torch.cuda.Event(interprocess=True).ipc_handle(),
    "rand": lambda: dtensor.rand((2, 2), device_mesh=mesh),
}
said = {}
for name, call in calls.items():
    try:
        call()
        said[name] = ""
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
if rank == 0:
    print(json.dumps(said))
