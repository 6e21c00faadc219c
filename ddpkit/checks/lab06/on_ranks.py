"""Lab 06: what runs on each rank: answers put through their paces, beside torch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddpkit.checks.lab06.models import Chosen, batch, linear, loss_of, model, three_layers
from ddpkit.exercises.compare import same
from ddpkit.exercises.raised import named

Answer = Callable[..., Any]
CAP_MB = 0.0001  # 105 bytes: `model` gets 4 buckets
SIZES = (8, 16, 24, 32)  # of the layers of `other_order`, in elements

torchs = partial(DistributedDataParallel, gradient_as_bucket_view=True)


# average, rebuilt_buckets, no_sync


def started(average: Answer, flat: Any) -> Any:
    """The buffer, averaged.

    Each rank begins when the one before has its Work: who waits inside waits for ever.
    """
    rank = dist.get_rank()
    bucket = SimpleNamespace(buffer=lambda: flat, index=lambda: 0, is_last=lambda: True)
    if rank:
        dist.recv(torch.zeros(1), src=rank - 1)
    work = average(bucket)
    if rank < dist.get_world_size() - 1:
        dist.send(torch.zeros(1), dst=rank + 1)
    work.wait()
    return flat


def rebuilt(rebuilt_buckets: Answer, order: list[int], *caps_mb: float | None) -> list[list[int]]:
    """Which parameters are in each bucket, where parameter i has i + 1 times 512 bytes."""
    parameters = [nn.Parameter(torch.zeros(128 * (i + 1))) for i in range(len(order))]
    number = {id(p): i for i, p in enumerate(parameters)}
    return [
        [number[id(p)] for p in bucket] for bucket in rebuilt_buckets(parameters, order, *caps_mb)
    ]


def accumulated(no_sync: Answer) -> Any:
    """The gradient after backwards of 1 + rank, 2 + rank and 3.5 + rank, two of them inside."""
    ddp = torchs(nn.Linear(2, 1, bias=False))
    *inside, last = (torch.full((1, 2), value + dist.get_rank()) for value in (1.0, 2.0, 3.5))
    with no_sync(ddp):
        for x in inside:
            ddp(x).sum().backward()
    ddp(last).sum().backward()
    return ddp.module.weight.grad[0].tolist()


# DistributedDataParallel


def gradients(ddp: Any) -> list[Any]:
    return [None if p.grad is None else p.grad.clone() for p in ddp.parameters()]


def start(answer: Answer) -> bool:
    """Whether a rank begins with the parameters and buffers of rank 0, whose seed is 0."""
    mine = model(seed=dist.get_rank())
    mine[0].requires_grad_(False)
    mine[1].running_mean += dist.get_rank()
    with torch.no_grad():
        wrapped = answer(mine, bucket_cap_mb=CAP_MB, broadcast_buffers=False)
    return same([*wrapped.module.state_dict().values()], [*model().state_dict().values()])


def one_backward(answer: Answer) -> list[Any]:
    """The gradients after one backward from rank 0's start."""
    ddp = answer(linear(seed=dist.get_rank()))
    loss_of(ddp, 0).backward()
    return gradients(ddp)


def two_forwards(answer: Answer) -> tuple[list[Any], list[Any]]:
    """The gradients after their two backwards, and what a third one adds."""
    ddp = answer(linear(), bucket_cap_mb=CAP_MB)
    losses = [loss_of(ddp, step) for step in range(2)]
    for loss in losses:
        loss.backward(retain_graph=True)
    both = gradients(ddp)
    losses[0].backward()
    return both, [now - before for now, before in zip(gradients(ddp), both, strict=True)]


def three_steps(answer: Answer, micro_batches: int) -> tuple[list[Any], int]:
    """The gradients of each step with the parameters at the end, and in how much memory they lie.

    Memory is counted in pieces. All but the last of a step's micro-batches are inside `no_sync`.
    """
    ddp, found = answer(model(seed=dist.get_rank()), bucket_cap_mb=CAP_MB), []
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(3):
        optimizer.zero_grad()
        for micro in range(micro_batches - 1):
            with ddp.no_sync():
                loss_of(ddp, 10 * step + micro).backward()
        loss_of(ddp, 10 * step + 9).backward()
        found += gradients(ddp)
        optimizer.step()
    trained = [p for p in ddp.parameters() if p.requires_grad]
    storages = len({p.grad.untyped_storage().data_ptr() for p in trained})
    return [*found, *ddp.parameters()], storages


def beside_torchs(answer: Answer, micro_batches: int) -> tuple[bool, int]:
    """Whether gradients and parameters are torch's, and how many pieces of memory they lie in."""
    mine, theirs = three_steps(answer, micro_batches), three_steps(torchs, micro_batches)
    return same(mine[0], theirs[0]), mine[1]


def late(answer: Answer) -> list[Any]:
    """The gradients as they are when backward returns on two ranks, of which rank 1 is late.

    Rank 1 begins its own when rank 0 has made all its gradients: whoever waits inside a hook waits
    for ever, for rank 1's buckets come later.
    """
    rank, token = dist.get_rank(), torch.zeros(1)
    x, y = batch(0, rank)
    gate = x.requires_grad_().clone()  # its backward comes after those of all layers
    if rank == 0:
        gate.register_hook(lambda _: dist.send(token, dst=1))
    ddp = answer(model(), bucket_cap_mb=CAP_MB, broadcast_buffers=False)
    loss = nn.functional.cross_entropy(ddp(gate), y)
    if rank == 1:
        dist.recv(token, src=0)
    loss.backward()  # type: ignore[no-untyped-call]
    return gradients(ddp)


def default_caps(answer: Answer) -> None:
    """A backward of more than 1 MB."""
    layers = nn.Linear(1, 1024), nn.Linear(1024, 256, bias=False), nn.Linear(256, 1)
    answer(nn.Sequential(*layers))(torch.ones(1, 1)).sum().backward()


def other_order(answer: Answer) -> None:
    """Three steps; the four layers, of 32 to 128 bytes, are not used in their order."""
    ddp = answer(Chosen(*(nn.Linear(1, size, bias=False) for size in SIZES)), bucket_cap_mb=0)
    for _ in range(3):
        ddp.zero_grad()
        ddp(torch.ones(1, 1), (2, 0, 3, 1)).backward()
        torch.optim.SGD(ddp.parameters(), lr=0.0).step()


def two_backwards(answer: Answer, use: Sequence[int]) -> list[Any]:
    """The gradients after backwards which use only some layers."""
    ddp = answer(three_layers(), bucket_cap_mb=0, find_unused_parameters=True)
    for step in range(2):
        ddp.zero_grad()
        ddp(torch.full((1, 4), step + 1.0), use).backward()
    return gradients(ddp)


def partly_used(answer: Answer, use: Sequence[int]) -> tuple[bool, list[int]]:
    """Whether gradients are torch's where some layers are not used; which layers have none."""
    mine = two_backwards(answer, use)
    return same(mine, two_backwards(torchs, use)), [i for i in range(3) if mine[2 * i] is None]


def said_of_missing(answer: Answer) -> str:
    """What backward names when a layer is left out on all ranks: its error has to name that one."""
    ddp = answer(three_layers(), bucket_cap_mb=0)
    try:
        ddp(torch.ones(1, 4), [0, 2]).backward()
    except RuntimeError as error:
        if "layers.1.weight" not in named(error, dict(ddp.module.named_parameters())):
            raise
        return "names layers.1"
    return "nothing"
