"""Lab 11: the results of one process with the layers and batches of all ranks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


def outputs_of(cells: Sequence[Any], xs: Sequence[Any], start: Any) -> list[Any]:
    """Return the outputs of the last layer, by torch's nn.RNN or nn.GRU of len(cells) layers."""
    width = start.shape[-1]
    kind = {"RNNCell": nn.RNN, "GRUCell": nn.GRU}[type(cells[0]).__name__]
    net = kind(width, width, num_layers=len(cells))
    with torch.no_grad():
        for layer, cell in enumerate(cells):
            for name, value in cell.named_parameters():
                getattr(net, f"{name}_l{layer}").copy_(value)
        outputs, _ = net(torch.stack(list(xs)), torch.stack([start] * len(cells)))
    return list(outputs)


def whole_batch(
    weights: Sequence[Any],
    inputs: Sequence[Any],
    targets: Sequence[Any],
    loss: Callable[[Any, Any], Any],
) -> tuple[float, list[Any]]:
    """Return the mean loss over micro-batches, and the gradient for each layer's weights."""
    leaves = [weight.clone().requires_grad_() for weight in weights]
    losses = []
    for x, target in zip(inputs, targets, strict=True):
        for weight in leaves:
            x = torch.tanh(x @ weight)
        losses.append(loss(x, target))
    mean = torch.stack(losses).mean()
    return mean.item(), list(torch.autograd.grad(mean, leaves))


def split(x: Any, gradient: Any, weights: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Return the gradients of `x` and of the weights, for the stage in `on_ranks.both_parts`."""
    x, leaves = x.clone().requires_grad_(), [w.clone().requires_grad_() for w in weights]
    of_x, *of_weights = torch.autograd.grad(
        torch.tanh(x @ leaves[0]) @ leaves[1], [x, *leaves], gradient
    )
    return of_x, of_weights
