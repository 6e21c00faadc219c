"""Calls for NCCL: equal numbers in different shapes, unequal lists, 8-bit floats."""

import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

backend, refuses = sys.argv[1], "refuses" in sys.argv[2:]
dist.init_process_group(backend)
rank, n = dist.get_rank(), dist.get_world_size()
groups = [dist.group.WORLD, dist.new_group(list(range(n)))]


def x(*shape, dtype=torch.float32):
    return torch.full(shape, float(rank + 1), device="cuda").to(dtype)


def each(shape, dtype=torch.float32):
    """Return the tensors of all ranks as one stacked tensor."""
    return torch.stack([torch.full(shape, float(r + 1), device="cuda") for r in range(n)]).to(dtype)


def refused(call, *tensors, group):
    if not refuses:
        call(*tensors, group=group)
        return False
    with pytest.raises(RuntimeError, match=r"invalid tensor size|Check failed"):
        call(*tensors, group=group)
    return True


total = n * (n + 1) / 2
for group in groups:
    for shape in ((n * 12,), (n, 3, 4), (n * 3, 4), (n * 4, 3)):
        for gather in (dist.all_gather_into_tensor, dist._all_gather_base):
            out = torch.empty(shape, device="cuda")
            if shape == (n * 3, 4):
                gather(out, x(3, 4), group=group)
            elif refused(gather, out, x(3, 4), group=group):
                continue
            assert torch.equal(out.view(n, 3, 4), each((3, 4))), shape
        for scatter in (dist.reduce_scatter_tensor, dist._reduce_scatter_base):
            out = torch.empty(3, 4, device="cuda")
            if shape == (n * 3, 4):
                scatter(out, x(*shape), group=group)
            elif refused(scatter, out, x(*shape), group=group):
                continue
            assert torch.equal(out, torch.full((3, 4), total, device="cuda")), shape
    if refuses:
        continue
    # Asynchronous, and coalesced.
    out = torch.empty(n, 5, device="cuda")
    work = dist.all_gather_into_tensor(out, x(5), group=group, async_op=True)
    work.wait()
    assert torch.equal(out, each((5,)))
    outs = [torch.empty(n * 6, device="cuda"), torch.empty(n, 2, 3, device="cuda")]
    with dist._coalescing_manager(group, async_ops=True) as many:
        for each_out in outs:
            dist.all_gather_into_tensor(each_out, x(2, 3), group=group)
    many.wait()
    for each_out in outs:
        assert torch.equal(each_out.view(n, 2, 3), each((2, 3)))
    # Lists: other shapes, and unequal tensors.
    outs = [torch.empty(12, device="cuda") for _ in range(n)]
    dist.all_gather(outs, x(3, 4), group=group)
    assert torch.equal(torch.stack(outs), each((12,)))
    outs = [torch.empty(r + 1, 2, device="cuda") for r in range(n)]
    dist.all_gather(outs, x(rank + 1, 2), group=group)
    assert all(
        torch.equal(out, torch.full((r + 1, 2), r + 1.0, device="cuda"))
        for r, out in enumerate(outs)
    )
    sends = [x((rank + 1) * peer, 2) for peer in range(n)]
    takes = [torch.empty((peer + 1) * rank, 2, device="cuda") for peer in range(n)]
    for asynchronous in (False, True):
        for take in takes:
            take.zero_()
        work = dist.all_to_all(takes, sends, group=group, async_op=asynchronous)
        if asynchronous:
            work.wait()
        assert all(
            torch.equal(take, torch.full_like(take, p + 1.0)) for p, take in enumerate(takes)
        )
    # 8-bit floats move as their bytes; the CPU cannot add them.
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        out = torch.empty(n, 4, device="cuda").to(dtype)
        dist.all_gather_into_tensor(out, x(4, dtype=dtype), group=group)
        assert torch.equal(out.float(), each((4,), dtype).float())
        one = x(4, dtype=dtype)
        dist.broadcast(one, 1, group=group)
        assert torch.equal(one.float(), torch.full((4,), 2.0, device="cuda"))
        if rank == 0:
            dist.send(one, 1, group=group)
        elif rank == 1:
            dist.recv(one, 0, group=group)
        with pytest.raises(TypeError, match="bfloat16"):
            dist.all_reduce(one, group=group)
    gathered = functional.all_gather_tensor(x(2, 3), 0, group)
    assert torch.equal(gathered.view(n, 2, 3), each((2, 3)))
sys.stdout.write("done\n")
