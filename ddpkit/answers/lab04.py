# mypy: ignore-errors
"""Answers of lab 04 (data_parallel).

Generated from solutions/04_data_parallel.py by `make release`; do not edit.
"""

import torch
import torch.distributed as dist
from torch import nn

from ddpkit.answers import get

minibatches = get("minibatches")


def broadcast_parameters(module: nn.Module, src: int = 0) -> None:
    """Give every rank the parameters and the buffers that `module` has on rank `src`.

    Frozen parameters too, and buffers of any dtype, also those that state_dict() leaves out. In
    place: an optimizer may hold these very tensors, and a view of one shows the new values. All
    ranks have a module of the same build.
    """
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src)


def shard(n: int, batch_size: int, epoch: int, rank: int, world_size: int) -> list[torch.Tensor]:
    """The part of `rank` in each batch of an epoch: a list or tuple of int64 tensors, one a step.

    All ranks' parts of a step together are one batch: `batch_size` of the numbers 0 to n - 1, the
    last one what is left. Their lengths differ by 1 at most; a part may be empty, and is in the
    list all the same. An epoch has each number once, shuffled, and in an order of its own, which
    all ranks know from the number of the epoch. Torch's global seed is left alone.
    """
    batches = minibatches(n, batch_size, seed=epoch)
    return [batch.tensor_split(world_size)[rank] for batch in batches]


def gradients_of(module: nn.Module) -> list[torch.Tensor]:
    """The gradients that the ranks average: a list or tuple, equally long on all of them.

    One for each parameter that requires a gradient, in the order of module.parameters(), which
    names a shared (tied) parameter once. Where .grad is None, this makes it zeros first. These are
    the very .grad tensors: who changes one in place has changed the gradient.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    return [p.grad for p in parameters]


def average_by_gather(module: nn.Module) -> None:
    """Make each gradient its mean over all ranks, on all ranks: for each parameter one dist.gather
    to rank 0 and one dist.scatter from it.

    Promised of this and of the next two: a parameter without a gradient counts as zeros, and has
    the mean afterwards, on every rank. Frozen parameters stay without. A shared one is averaged
    once. Every gradient keeps its dtype.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    for gradient in gradients_of(module):
        parts = None
        if rank == 0:
            parts = [torch.empty_like(gradient) for _ in range(world_size)]
        dist.gather(gradient, parts, dst=0)
        if rank == 0:
            parts = [sum(parts) / world_size] * world_size
        dist.scatter(gradient, parts, src=0)


def average_per_parameter(module: nn.Module) -> None:
    """Make each gradient its mean over all ranks: one dist.all_reduce for each parameter.

    It promises what average_by_gather promises.
    """
    for gradient in gradients_of(module):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def average_flat(module: nn.Module) -> None:
    """Make each gradient its mean over all ranks: one dist.all_reduce for all of a dtype.

    It promises what average_by_gather promises.
    """
    gradients = gradients_of(module)
    for dtype in dict.fromkeys(g.dtype for g in gradients):  # a set, but in order
        members = [g for g in gradients if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in members])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for g, mean in zip(members, flat.split([g.numel() for g in members])):
            g.copy_(mean.view_as(g))


def train(model: nn.Module, batches, lr: float, momentum: float = 0.0) -> None:
    """Train `model` on all ranks: after each step it is what one process makes of whole batches.

    It starts from rank 0's model. `batches` is a generator of this rank's parts, (x, y), one for
    each step; take the next one when the step before is done. A part may be shorter than another
    rank's, or empty. The loss is the cross entropy, its mean over all images of the whole batch.
    The step is SGD with momentum (torch.optim.SGD, or yours of lab 01). The model stays in the
    mode for training.
    """
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        images = torch.tensor(len(y))
        dist.all_reduce(images)  # of the whole batch
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
        optimizer.zero_grad()
        (loss * dist.get_world_size() / images).backward()
        average_flat(model)
        optimizer.step()
