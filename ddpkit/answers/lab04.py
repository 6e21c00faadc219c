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

    Includes frozen parameters, and buffers of any dtype, even buffers that state_dict() leaves out.
    Works in place: an optimizer may hold these tensors, and a view of a tensor shows the new
    values. The modules of all ranks have the same structure.
    """
    for tensor in [*module.parameters(), *module.buffers()]:
        dist.broadcast(tensor.detach(), src)


def shard(n: int, batch_size: int, epoch: int, rank: int, world_size: int) -> list[torch.Tensor]:
    """Return `rank`'s part of each batch of an epoch: a list or tuple of int64 tensors.

    The list has one part for each step. In each step, the parts of all ranks form one batch:
    `batch_size` of the numbers 0 to n - 1, or the rest in the last batch. The lengths of these
    parts differ by at most 1; the list includes empty parts. An epoch has each number once. Each
    epoch has a shuffled order of its own, which all ranks compute from the number of the epoch.
    Leave torch's global seed alone.
    """
    batches = minibatches(n, batch_size, seed=epoch)
    return [batch.tensor_split(world_size)[rank] for batch in batches]


def gradients_of(module: nn.Module) -> list[torch.Tensor]:
    """Return the gradients that the ranks average: a list or tuple, equally long on all ranks.

    It has one gradient for each parameter that requires a gradient, in the order of
    module.parameters(), which lists a shared (tied) parameter once. If .grad is None, first set
    .grad to zeros. Return the .grad tensors themselves, no copies: a change in place then
    changes the gradient.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    return [p.grad for p in parameters]


def average_by_gather(module: nn.Module) -> None:
    """Replace each gradient by its mean over all ranks: for each parameter, one dist.gather to
    rank 0 and one dist.scatter from rank 0.

    This function and the next two promise: a missing gradient counts as zeros, and is the mean
    afterwards, on every rank. Frozen parameters stay without a gradient. A shared parameter is
    averaged once. Every gradient keeps its dtype.
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
    """Replace each gradient by its mean over all ranks: one dist.all_reduce for each parameter.

    The promises are those of average_by_gather.
    """
    for gradient in gradients_of(module):
        dist.all_reduce(gradient)
        gradient /= dist.get_world_size()


def average_flat(module: nn.Module) -> None:
    """Replace each gradient by its mean over all ranks: one dist.all_reduce for each dtype.

    The promises are those of average_by_gather.
    """
    gradients = gradients_of(module)
    for dtype in dict.fromkeys(g.dtype for g in gradients):  # each dtype once, in a fixed order
        members = [g for g in gradients if g.dtype == dtype]
        flat = torch.cat([g.flatten() for g in members])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for g, mean in zip(members, flat.split([g.numel() for g in members])):
            g.copy_(mean.view_as(g))


def train(model: nn.Module, batches, lr: float, momentum: float = 0.0) -> None:
    """Train `model` on all ranks, so that it equals the model of one process with whole batches.

    All ranks start from rank 0's model. `batches` is a generator of this rank's parts (x, y), one
    for each step; take the next part when the previous step is done. A part may be shorter than
    the parts of other ranks, or empty. The loss is the mean cross entropy over all images of the
    whole batch. The step is SGD with momentum (torch.optim.SGD, or your sgd_step of lab 01). The
    model stays in training mode.
    """
    broadcast_parameters(model)
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum)
    for x, y in batches:
        images = torch.tensor(len(y))
        dist.all_reduce(images)  # images of the whole batch
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum")
        optimizer.zero_grad()
        (loss * dist.get_world_size() / images).backward()
        average_flat(model)
        optimizer.step()
