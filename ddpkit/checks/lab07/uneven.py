"""Lab 07: different numbers of batches by rank, and the training of one process."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ddpkit.checks.shared.models import Part, loss_of

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer

MISTAKES = ("by all", "again", "repeated")


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """Return SGD with momentum, so that a skipped step changes a rank's parameters permanently."""
    return torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def trained(
    train_uneven: Answer, model: nn.Module, batches: Sequence[Part], is_list: bool
) -> tuple[Any, Tensor]:
    """Return the answer's counts and the final parameters, after training on `batches`.

    The batches are a list or a generator. A batch is one tensor, which has no truth value; its last
    column holds the classes.
    """
    packed = [torch.cat([x, y[:, None].float()], dim=1) for x, y in batches]
    given = packed if is_list else (each for each in packed)
    counts = train_uneven(model, optimizer_of(model), given, _loss_of_packed)
    return counts, nn.utils.parameters_to_vector(model.parameters()).detach()


def _loss_of_packed(model: nn.Module, batch: Tensor) -> Any:
    return loss_of(model, (batch[:, :-1], batch[:, -1].long()))


def counts_of(by_rank: Sequence[Sequence[Part]]) -> list[int]:
    """Return, for each step, the number of ranks with a batch."""
    return [sum(len(each) > k for each in by_rank) for k in range(max(map(len, by_rank)))]


def alone(module: nn.Module, by_rank: Sequence[Sequence[Part]], mistake: str = "") -> Tensor:
    """Return the parameters after one process has trained on all batches, step by step.

    `mistake` is one of `MISTAKES`. "by all": the gradients are divided by the number of all ranks.
    "again": a rank without a batch sends its last gradient again. "repeated": such a rank uses its
    last batch again.
    """
    model = deepcopy(module)
    optimizer = optimizer_of(model)
    mean: Any = 0.0
    used: list[Part | None] = [None] * len(by_rank)
    for parts in zip_longest(*by_rank):
        gradients: list[Any] = []
        has = 0
        for rank, given in enumerate(parts):
            part = used[rank] if given is None and mistake == "repeated" else given
            used[rank] = part
            if part is not None:
                model.zero_grad()
                loss_of(model, part).backward()
                own: list[Any] = [p.grad for p in _trained(model)]
                gradients.append(nn.utils.parameters_to_vector(own))
            elif mistake == "again":  # .grad still holds the last mean
                gradients.append(mean)
            has += given is not None
        mean = sum(gradients) / (len(by_rank) if mistake == "by all" else has)
        for p, gradient in zip(_trained(model), _like(mean, model), strict=True):
            p.grad = gradient
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def _trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that are not frozen."""
    return [p for p in model.parameters() if p.requires_grad]


def _like(vector: Any, model: nn.Module) -> list[Tensor]:
    """Split the vector into tensors with the shapes of the parameters that are not frozen."""
    parameters = _trained(model)
    parts = vector.split([p.numel() for p in parameters])
    return [part.view_as(p).clone() for part, p in zip(parts, parameters, strict=True)]
