"""Models and batches for a DistributedDataParallel, drawn by the check and shipped to ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

Part = tuple[Tensor, Tensor]  # a rank's images and classes

WIDTHS = (6, 10, 14, 3)
CAP_MB = 0.0001  # 105 bytes: DDP cuts the gradients of `model` into 4 buckets


def model(seed: int) -> Any:
    """Return three layers of different sizes, with a batch norm and a frozen parameter."""
    a, b, c, d = WIDTHS
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.Linear(b, c), nn.Linear(c, d))
        net.fixed = nn.Parameter(torch.rand(2), requires_grad=False)
    return net


def linear(seed: int) -> nn.Sequential:
    """Return two layers without a batch norm, which would depend on a rank's part of the batch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(WIDTHS[0], 5), nn.Tanh(), nn.Linear(5, WIDTHS[-1]))


class Chosen(nn.Module):
    """A model in which each forward uses only some layers, in an order given by the caller.

    The backward computes the gradients of the last used layer first.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, use: Sequence[int]) -> Any:
        return sum(self.layers[i](x + i).sum() for i in use)


def three_layers(seed: int) -> nn.ModuleList:
    """Return three layers for a `Chosen`; a forward may skip some of the layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.ModuleList(nn.Linear(4, 4) for _ in range(3))


def batches(seed: int, count: int) -> list[Part]:
    """Draw `count` parts of batches, each with 4 images and their classes."""
    generator = torch.Generator().manual_seed(seed)
    return [
        (
            torch.randn(4, WIDTHS[0], generator=generator),
            torch.randint(WIDTHS[-1], (4,), generator=generator),
        )
        for _ in range(count)
    ]


def loss_of(ddp: nn.Module, part: Part) -> Any:
    x, y = part
    return nn.functional.cross_entropy(ddp(x), y)
