"""Models, wrappers and training loops that the tests of `DistributedDataParallel` share."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as TorchDDP

from ddpkit import answers

Wrap = Callable[..., Any]
CAP_MB = 0.02


def ours(module: nn.Module, **options: Any) -> Any:
    return answers.get("DistributedDataParallel")(module, **{"bucket_cap_mb": CAP_MB, **options})


def torchs(module: nn.Module, **options: Any) -> Any:
    options = {"bucket_cap_mb": CAP_MB, "gradient_as_bucket_view": True, **options}
    return TorchDDP(module, **options)


class Tied(nn.Module):
    """A decoder with the encoder's weight, a frozen layer, and float64 beside float32."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(32, 64, bias=False), nn.Linear(64, 32, bias=False)
        self.decode.weight = nn.Parameter(torch.randn(32, 64) / 8)
        self.again = nn.Linear(32, 64)
        self.again.weight = self.encode.weight
        self.frozen = nn.Linear(32, 32).requires_grad_(False)
        self.last = nn.Linear(32, 10).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.frozen(self.decode(self.encode(x).relu()))
        return self.last(self.decode(self.again(x).relu()).double())


class Branches(nn.Module):
    """Layers; a forward uses the layers that it is told to use, in the given order."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32) for _ in range(layers))

    def forward(self, x: torch.Tensor, use: list[int]) -> torch.Tensor:
        for i in use:
            x = self.layers[i](x).tanh()
        return x


def conv() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 4, 8)),
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(96, 64),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.Linear(64, 10),
    )


def wide() -> nn.Module:
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 256), nn.Linear(256, 10))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "momentum": lambda parameters: torch.optim.SGD(
        parameters, lr=0.05, momentum=0.9, weight_decay=0.01
    ),
    "adam": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "stand still": lambda parameters: torch.optim.SGD(parameters, lr=0.0),
}


def batch(step: int, rank: int, rows: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return (
        torch.randn(rows, 32, generator=generator),
        torch.randint(10, (rows,), generator=generator),
    )


def train(
    wrap: Wrap,
    model: Callable[[], nn.Module],
    steps: int = 20,
    optimizer: str = "momentum",
    clip: float | None = None,
    set_to_none: bool = True,
    micro_batches: int = 1,
    **options: Any,
) -> tuple[list[list[torch.Tensor]], dict[str, torch.Tensor]]:
    """Train on a rank from a random start.

    Return the gradients of each step, and the final state.
    """
    rank = dist.get_rank()
    torch.manual_seed(rank)
    ddp = wrap(model(), **options)
    stepper = OPTIMIZERS[optimizer](ddp.parameters())
    gradients = []
    for step in range(steps):
        stepper.zero_grad(set_to_none=set_to_none)
        for micro in range(micro_batches):
            x, y = batch(step * micro_batches + micro, rank)
            if micro < micro_batches - 1:
                with ddp.no_sync():
                    nn.functional.cross_entropy(ddp(x), y).backward()
            else:
                nn.functional.cross_entropy(ddp(x), y).backward()
        if clip:
            nn.utils.clip_grad_norm_(ddp.parameters(), clip)
        gradients.append([p.grad.clone() for p in ddp.parameters() if p.grad is not None])
        stepper.step()
    return gradients, copy.deepcopy(dict(ddp.state_dict()))


def equal(one: Any, other: Any) -> bool:
    """True if tensors, or lists and dicts of tensors, are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and equal(list(one.values()), list(other.values()))
    return len(one) == len(other) and all(map(equal, one, other))
