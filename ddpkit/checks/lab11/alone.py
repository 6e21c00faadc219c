"""Lab 11: the results of one process with the layers and batches of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


def outputs_of(cells: Sequence[nn.Module], xs: Sequence[Tensor], start: Tensor) -> list[Tensor]:
    """Return the outputs of the last layer, by torch's nn.RNN or nn.GRU of len(cells) layers."""
    width = start.shape[-1]
    kind = {"RNNCell": nn.RNN, "GRUCell": nn.GRU}[type(cells[0]).__name__]
    net = kind(width, width, num_layers=len(cells), dtype=start.dtype)
    with torch.no_grad():
        for layer, cell in enumerate(cells):
            for name, value in cell.named_parameters():
                getattr(net, f"{name}_l{layer}").copy_(value)
        outputs, _ = net(torch.stack(list(xs)), torch.stack([start] * len(cells)))
    return list(outputs)


def whole_batch(
    weights: Sequence[Tensor],
    inputs: Sequence[Tensor],
    targets: Sequence[Tensor],
    loss: Callable[[Tensor, Tensor], Tensor],
) -> tuple[float, list[Tensor]]:
    """Return the mean loss over micro-batches, and the gradient for each layer's weights."""
    leaves = [weight.clone().requires_grad_() for weight in weights]
    losses = []
    for x, target in zip(inputs, targets, strict=True):
        for weight in leaves:
            x = torch.tanh(x.to(weight.dtype) @ weight)
        losses.append(loss(x, target))
    mean = torch.stack(losses).mean()
    return mean.item(), list(torch.autograd.grad(mean, leaves))


def split(x: Tensor, gradient: Tensor, weights: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the gradients of `x` and of the weights, for the stage in `on_ranks.both_parts`."""
    x, leaves = x.clone().requires_grad_(), [w.clone().requires_grad_() for w in weights]
    of_x, *of_weights = torch.autograd.grad(
        torch.tanh(x @ leaves[0]) @ leaves[1], [x, *leaves], gradient
    )
    return of_x, of_weights
