"""Rare calls of torch.cuda in scripts; with an argument, a call that ddpkit refuses."""

import sys
import warnings
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.simplefilter("ignore")
dist.init_process_group("nccl")
rank, size = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
cuda: Any = torch.cuda
refused = {
    "graph": lambda: torch.cuda.CUDAGraph(),
    "device": lambda: torch.ones(1, device=torch.device(rank)),
    "backend": lambda: dist.group.WORLD._get_backend(torch.device("cuda")),
    "comm": lambda: cuda.comm.broadcast(torch.ones(1), [0]),
}
if sys.argv[1:] and sys.argv[1] in refused:
    refused[sys.argv[1]]()


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, device="cuda")


def random_numbers() -> None:
    torch.cuda.random.set_rng_state(torch.cuda.random.get_rng_state())
    torch.cuda.default_generators[rank].manual_seed(3)
    first = torch.rand(2, device="cuda")
    torch.cuda.default_generators[rank].manual_seed(torch.cuda.initial_seed())
    assert torch.equal(first, torch.rand(2, device="cuda"))


def tools() -> None:
    assert torch.cuda.nccl.version() >= (2,)
    assert torch.version.cuda.split(".")
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda.profiler.stop()
    cuda.memory._record_memory_history(max_entries=10)
    cuda.memory._dump_snapshot("memory.pickle")
    with torch.autograd.profiler.emit_nvtx():
        cuda._sleep(1000)
    with cuda.use_mem_pool(cuda.MemPool()):
        ones(2)
    assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated()
    assert torch.accelerator.memory.memory_allocated() == torch.cuda.memory_allocated()
    later: Any = torch.cuda.CUDAGraph | None  # in annotations
    assert later is not None
    properties = torch.cuda.get_device_properties(0)
    assert properties.L2_cache_size >= 0
    assert properties.warp_size == 32
    assert torch.get_device_module() is torch.cuda
    torch.cuda.current_stream(device=rank).synchronize()
    event = torch.Event("cuda", enable_timing=True)
    event.record()
    torch.Stream(device="cuda").synchronize()
    assert isinstance(torch.cuda.Stream().cuda_stream, int)
    with torch.cuda.device_of(ones(2)):
        assert torch.ones(2).type("torch.cuda.FloatTensor").sum() == 2


def attention() -> None:
    mesh = init_device_mesh("cuda", (size,))
    whole = torch.arange(2 * 4 * 16 * 8, device="cuda").view(2, 4, 16, 8) / 1000
    expected = F.scaled_dot_product_attention(whole, whole, whole, is_causal=True)
    heads = distribute_tensor(whole, mesh, [Shard(1)]).requires_grad_()
    found = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    found.sum().backward()
    assert found.placements == (Shard(1),)
    torch.testing.assert_close(found.full_tensor(), expected)
    for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION):
        with sdpa_kernel(backend):
            F.scaled_dot_product_attention(*[whole.bfloat16()] * 3)
    torch.backends.cuda.enable_math_sdp(False)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cuda")
    torch.testing.assert_close(flex_attention(whole, whole, whole, block_mask=mask), expected)


def training() -> None:
    FSDP(nn.Linear(8, 8).cuda())(ones(2, 8)).sum().backward()
    model = nn.Linear(8, 8).cuda()
    for optimizer in (
        torch.optim.AdamW(model.parameters(), capturable=True, foreach=True),
        torch.optim.Adam(model.parameters(), lr=torch.tensor(0.1), capturable=True, foreach=False),
    ):
        model(ones(2, 8)).sum().backward()
        optimizer.step()
    graphed = torch.cuda.make_graphed_callables(model, (ones(2, 8),))
    assert graphed(ones(2, 8)).shape == (2, 8)
    # without a modelled machine torch compiles the model, for a while
    if sys.argv[1:] == ["modelled"]:
        torch.compile(model, fullgraph=True)(ones(2, 8)).sum().backward()


def batch_norm() -> None:
    """Train on half of the batch on each rank, and compare with one model on the whole batch."""
    torch.manual_seed(0)
    whole = torch.randn(6, 4, 5, 5).cuda()
    norms = [nn.BatchNorm2d(4), nn.BatchNorm2d(4).cuda()]
    synced = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(norms[0]).cuda(), device_ids=[rank])
    own = slice(0, 2) if rank == 0 else slice(2, 6)
    inputs = [whole[own].clone().requires_grad_(), whole.clone().requires_grad_()]
    outputs = synced(inputs[0]), norms[1](inputs[1])
    for output in outputs:
        (output.square() * torch.arange(5, device="cuda")).sum().backward()
    torch.testing.assert_close(outputs[0], outputs[1][own])
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad[own], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(synced.module.weight.grad * size, norms[1].weight.grad)
    torch.testing.assert_close(synced.module.running_var, norms[1].running_var)


def collectives() -> None:
    half: Any = dist._make_nccl_premul_sum(0.5)
    x, part = ones(4), torch.empty(2, device="cuda")
    dist.all_reduce(x, half)
    dist.reduce_scatter_tensor(part, ones(2 * size), half)
    assert x[0] == part[0] == size / 2
    for call in (
        lambda out: dist.reduce_scatter_tensor(out, ones(2 * size), async_op=True),
        lambda out: dist.reduce_scatter(out, [ones(2)] * size, async_op=True),
    ):
        out = torch.empty(2, device="cuda")
        doubled = call(out).get_future().then(lambda future: future.value()[0] * 2).wait()
        assert doubled.tolist() == [2 * size] * 2
    work = dist.all_reduce(x, async_op=True)
    work.block_current_stream()
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 1
    dist.barrier(dist.new_group(pg_options=options, backend="nccl"))
    mine = dist.split_group(split_ranks=[[0], [1]])
    assert dist.get_process_group_ranks(mine) == [rank]


for each in (random_numbers, tools, attention, training, batch_norm, collectives):
    each()
