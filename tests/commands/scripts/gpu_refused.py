"""Make each call that docs/run.md lists as refused; print the names and the errors as JSON."""

import json
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import torch.distributed.tensor as dtensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import flex_attention

dist.init_process_group("nccl")
torch.cuda.set_device(0)
cuda: Any = torch.cuda
x = torch.ones(1, 2, 16, 8, device="cuda")
mesh = init_device_mesh("cuda", (1,))
low = torch.ones(16, 16, device="cuda").to(torch.float8_e4m3fn)
attend: Any = flex_attention


def flash() -> None:
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        torch.nn.functional.scaled_dot_product_attention(x, x, x)


REFUSED = {
    "torch.cuda.CUDAGraph": lambda: cuda.CUDAGraph(),
    "torch.cuda.graph": lambda: cuda.graph(None),
    "caching_allocator_alloc": lambda: cuda.caching_allocator_alloc(8),
    "caching_allocator_delete": lambda: cuda.caching_allocator_delete(8),
    "change_current_allocator": lambda: cuda.memory.change_current_allocator(None),
    "CUDAPluggableAllocator": lambda: cuda.memory.CUDAPluggableAllocator("a.so", "a", "b"),
    "torch.device(0)": lambda: torch.ones(1, device=torch.device(0)),
    "context_parallel": lambda: context_parallel(None, buffers=[x], buffer_seq_dims=[2]),
    "Symmetric memory": lambda: symmetric.empty(8, device="cuda"),
    "all_reduce": lambda: dist.all_reduce(x.to(torch.float8_e4m3fn)),
    "score_mod=": lambda: attend(x, x, x, score_mod=lambda score, *_: score),
    "return_lse=": lambda: attend(x, x, x, return_lse=True),
    "torch.autocast": lambda: torch.autocast("cuda", dtype=torch.float8_e4m3fn),
    "torch.distributed.tensor.rand": lambda: dtensor.rand((2, 2), device_mesh=mesh),
    "torch.distributed.tensor.randn": lambda: dtensor.randn((2, 2), device_mesh=mesh),
    "torch.cuda.Event.ipc_handle": lambda: cuda.Event(interprocess=True).ipc_handle(),
    "int16": lambda: dist.all_reduce(x.short()),
    "shrink_group": lambda: dist.shrink_group([0]),
    "torch.UntypedStorage": lambda: torch.UntypedStorage(3, device="cuda"),
    "torch.cuda.nccl": lambda: cuda.nccl.unique_id(),
    "current_blas_handle": lambda: cuda.current_blas_handle(),
    "torch._scaled_mm": lambda: torch._scaled_mm(low, low.t(), x.sum(), x.sum()),
    "sdpa_kernel": lambda: flash(),
    "torch.cuda.comm": lambda: cuda.comm.broadcast(torch.ones(1), [0]),
    "Methods of a group's backend": lambda: dist.group.WORLD._get_backend(torch.device("cuda")),
    "cuFFT's plans": lambda: torch.backends.cuda.cufft_plan_cache.size,
    "__cuda_array_interface__": lambda: x.__cuda_array_interface__,
}
said = {}
for name, call in REFUSED.items():
    try:
        call()
    except Exception as error:
        said[name] = str(error)
if dist.get_rank() == 0:
    print(json.dumps(said))
