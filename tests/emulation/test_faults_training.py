"""Training in all ways that torch allows gives the values of plain mode, and ends."""

from __future__ import annotations

import math
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from ddpkit import Cluster

pytestmark = pytest.mark.processes
LINK = "1 Gbit/s, 200 us"


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 1), nn.Linear(8, 1)

    def forward(self, x, left=True):
        x = self.first(x).relu()
        return (self.left if left else self.right)(x)


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def find_unused():
    model = DistributedDataParallel(Branches(), find_unused_parameters=True)
    for step in range(3):
        model(torch.ones(4, 8) * (dist.get_rank() + 1), left=step % 2 == 0).sum().backward()
    return gradients(model)


def no_sync_and_views():
    model = DistributedDataParallel(nn.Linear(8, 8), gradient_as_bucket_view=True)
    for step in range(4):
        with model.no_sync() if step % 2 == 0 else nullcontext():
            model(torch.ones(4, 8) * (dist.get_rank() + step)).sum().backward()
    return gradients(model)


def static_graph_and_checkpoint():
    inner = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    model = DistributedDataParallel(inner, static_graph=True, bucket_cap_mb=0.0001)
    for step in range(3):
        x = (torch.ones(4, 8) * (dist.get_rank() + step)).requires_grad_()
        checkpoint(model, x, use_reentrant=False).sum().backward()
    return gradients(model)


def uneven_inputs():
    model = DistributedDataParallel(nn.Linear(8, 8))
    with model.join():
        for step in range(2 + dist.get_rank()):
            model(torch.ones(4, 8) * step).sum().backward()
    return gradients(model)


def double_backward():
    x = (torch.arange(4.0) + dist.get_rank()).requires_grad_()
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    dist.all_reduce(shared := first.detach().clone())
    (second,) = torch.autograd.grad((first * shared).sum(), x, retain_graph=True)
    (first * shared).sum().backward()
    dist.all_reduce(second)
    return [second, x.grad]


class Nested(torch.autograd.Function):
    """A function with a backward and a collective inside its backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (y**2).sum().backward()
        dist.all_reduce(y.grad)
        return gradient * y.grad


def backward_in_backward():
    x = (torch.arange(4.0) + dist.get_rank()).requires_grad_()
    Nested.apply(x).sum().backward()
    return [x.grad]


def groups_in_flight():
    rank, sums, works = dist.get_rank(), [], []
    members = ([0, 1], [0, 1], [1], [0])
    for number, group in enumerate([dist.new_group(each) for each in members]):
        for k in range(5):
            if rank in members[number]:
                sums.append(torch.full((100,), float(rank + k)))
                works.append(dist.all_reduce(sums[-1], group=group, async_op=True))
    for work in reversed(works):
        work.wait()
    return sums


def functional_collectives():
    import torch.distributed._functional_collectives as functional

    x = torch.arange(4.0) + dist.get_rank()
    group = dist.group.WORLD
    return [
        functional.all_reduce(x, "sum", group) + 0,
        functional.all_gather_tensor(x, 0, group) + 0,
        functional.reduce_scatter_tensor(x, "sum", 0, group) + 0,
    ]


def fully_sharded():
    from torch.distributed.fsdp import fully_shard

    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    for each in model.parameters():
        nn.init.constant_(each, 0.01)
    fully_shard(model)
    for step in range(2):
        model(torch.ones(4, 8) * (dist.get_rank() + step)).sum().backward()
    return [p.grad.full_tensor() for p in model.parameters()]


@pytest.mark.parametrize(
    "training",
    [
        find_unused,
        no_sync_and_views,
        static_graph_and_checkpoint,
        uneven_inputs,
        double_backward,
        backward_in_backward,
        groups_in_flight,
        functional_collectives,
        fully_sharded,
    ],
)
def test_the_values_are_those_of_plain_mode(training):
    plain = Cluster(2).run(training, timeout=120).results
    for speed in (1, math.inf):
        emulated = Cluster(2, link=LINK, speed=speed).run(training, timeout=120).results
        for mine, theirs in zip(emulated, plain, strict=True):
            for value, expected in zip(mine, theirs, strict=True):
                assert (value is None) is (expected is None)
                assert value is None or torch.equal(value, expected)
