"""Lab 06: models and batches for a DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

WIDTHS = (6, 10, 14, 3)


def model(seed: int = 0) -> Any:
    """Three layers of different sizes, a batch norm for its buffers, and a frozen parameter."""
    torch.manual_seed(seed)
    a, b, c, d = WIDTHS
    net = nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.Linear(b, c), nn.Linear(c, d))
    net.fixed = nn.Parameter(torch.rand(2), requires_grad=False)
    return net


def linear(seed: int = 0) -> nn.Module:
    """Two layers, without a batch norm, which would see a part of the whole batch alone."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTHS[0], 5), nn.Tanh(), nn.Linear(5, WIDTHS[-1]))


class Chosen(nn.Module):
    """Layers of which a forward uses those it is told; the last one's gradient comes first."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Any, use: Sequence[int]) -> Any:
        return sum(self.layers[i](x + i).sum() for i in use)


def three_layers() -> Chosen:
    """Layers of which a forward may leave some out."""
    torch.manual_seed(0)
    return Chosen(*(nn.Linear(4, 4) for _ in range(3)))


def batch(step: int, rank: int) -> tuple[Any, Any]:
    """Inputs and classes, of a step on a rank."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(4, WIDTHS[0], generator=generator)
    return x, torch.randint(WIDTHS[-1], (4,), generator=generator)


def loss_of(ddp: Any, step: int) -> Any:
    """The loss of this rank's batch."""
    x, y = batch(step, dist.get_rank())
    return nn.functional.cross_entropy(ddp(x), y)


def alone(ranks: Iterable[int], step: int = 0) -> Iterator[Any]:
    """Gradients of `linear` for these ranks' batches, made in one process."""
    whole = linear()
    x, y = map(torch.cat, zip(*(batch(step, rank) for rank in ranks), strict=True))
    nn.functional.cross_entropy(whole(x), y).backward()  # type: ignore[no-untyped-call]
    return (p.grad for p in whole.parameters())
