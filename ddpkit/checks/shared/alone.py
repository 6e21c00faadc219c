"""Right gradients and parameters, computed by one process from all ranks' models and batches."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ddpkit.checks.shared.models import Part, loss_of

if TYPE_CHECKING:
    from torch.nn import Module

Gradients = list[Tensor | None]  # one for each parameter


def vector(tensors: Sequence[Tensor | None]) -> Tensor:
    """Join all tensors into one 1-D tensor; skip each None."""
    return torch.cat([tensor.flatten() for tensor in tensors if tensor is not None])


def gradients_of(module: Module, of_ranks: Sequence[Part]) -> list[Gradients]:
    """Return the gradients of each rank, after a backward on the rank's part of the batch."""
    found = []
    for part in of_ranks:
        net = deepcopy(module)
        loss_of(net, part).backward()
        found.append([p.grad for p in net.parameters()])
    return found


def mean(by_rank: Sequence[Gradients]) -> Gradients:
    """Return the mean of each parameter's gradients over the ranks.

    A None counts as zeros. If all ranks have None, the mean is None.
    """
    columns = ([g for g in column if g is not None] for column in zip(*by_rank, strict=True))
    return [sum(column) / len(by_rank) if column else None for column in columns]


def steps(module: Module, by_rank: Sequence[Sequence[Sequence[Part]]]) -> Gradients:
    """Train; return the mean gradients of each step, followed by the parameters.

    `by_rank` holds the parts as [rank][step][micro-batch].
    """
    nets, found = [deepcopy(module) for _ in by_rank], []
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in nets]
    for of_ranks in zip(*by_rank, strict=True):
        for net, optimizer, micro_batches in zip(nets, optimizers, of_ranks, strict=True):
            optimizer.zero_grad()
            for part in micro_batches:
                loss_of(net, part).backward()
        averaged = mean([[p.grad for p in net.parameters()] for net in nets])
        found += averaged
        for net, optimizer in zip(nets, optimizers, strict=True):
            for p, gradient in zip(net.parameters(), averaged, strict=True):
                p.grad = None if gradient is None else gradient.clone()
            optimizer.step()
    return [*found, *(p.detach() for p in nets[0].parameters())]


def of_chosen(module: Module, x: Tensor, by_rank: Sequence[Sequence[int]]) -> Gradients:
    """Return the mean gradients of a `Chosen`; on rank r, the forward uses layers `by_rank[r]`."""
    found = []
    for use in by_rank:
        net = deepcopy(module)
        net(x, use).backward()
        found.append([p.grad for p in net.parameters()])
    return mean(found)
