"""Lab 19: the functions that run on each rank."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddpkit.exercises.guard import Answer, returning, values


@torch.no_grad()
def _moved(parameters: Sequence[Any], by: Any) -> None:
    for p, part in zip(parameters, by.split([p.numel() for p in parameters]), strict=True):
        p.add_(part.view_as(p))


def _in_line(parameters: Sequence[Tensor]) -> Tensor:
    return torch.cat([p.detach().flatten() for p in parameters]).clone()


def outer_rounds(
    answer: Answer,
    tensors: Sequence[Tensor],
    lr: float,
    momentum: float,
    steps: Tensor,
    keep: float,
) -> dict[str, object]:
    """Return the parameters and the outer optimizer's `start` after each round: [round, number]."""
    parameters = [nn.Parameter(each.clone()) for each in tensors]
    outer = answer(iter(parameters), lr, momentum)
    after, starts = [], []
    for before, during in steps:
        _moved(parameters, before)
        outer.begin()
        _moved(parameters, during)
        if keep:
            outer.end(keep)
        else:
            outer.end()
        after.append(_in_line(parameters))
        starts.append(_a_line(outer.start))
    return {"after": torch.stack(after), "start": starts}


def _a_line(start: Tensor) -> Tensor:
    return start.detach().clone() if isinstance(start, torch.Tensor) else type(start).__name__


def outer_steps(
    answer: Answer,
    tensors: Sequence[Tensor],
    lr: float,
    momentum: float,
    steps: Tensor,
    keep: float,
) -> dict[str, object]:
    """Return the results of `outer_rounds`, but call `step(mean)` instead of `begin` and `end`."""
    parameters = [nn.Parameter(each.clone()) for each in tensors]
    outer = answer(iter(parameters), lr, momentum)
    after, starts, begin = [], [], _in_line(parameters)
    for before, _ in steps:
        _moved(parameters, before)
        outer.step(begin - _in_line(parameters), *[keep] * bool(keep))
        after.append(_in_line(parameters))
        starts.append(_a_line(outer.start))
        begin = outer.start.detach().clone()
    return {"after": torch.stack(after), "start": starts}


def outer_timed(answer: Answer, numbers: int, products: int, width: int) -> None:
    """Begin an exchange, multiply matrices, and end the exchange, so that the check can time it."""
    parameters = [nn.Parameter(torch.zeros(numbers // 2)) for _ in "ab"]
    outer = answer(parameters, 0.7, 0.9)
    a = torch.zeros(width, width)
    outer.begin()
    for _ in range(products):
        a @ a
    outer.end()


def _equal(one: Any, other: Any) -> bool:
    """True if two tensors have equal numbers; nan equals nan."""
    return torch.equal(one.nan_to_num(7.5), other.nan_to_num(7.5))


def by_bytes(answer: Answer, lines: Tensor) -> dict[str, object]:
    """Return the means and the rounding errors of some rounds, [round, number]."""
    error, means, errors, kept = torch.zeros_like(lines[0]), [], [], True
    for x in lines:
        mine, old = x.clone(), error.clone()
        mean, new = values(returning(answer)(mine, old), 2)
        kept = kept and _equal(mine, x) and _equal(old, error)
        means.append(mean.detach().clone())
        errors.append(new.detach().clone())
        error = errors[-1]
    return {"mean": torch.stack(means), "error": torch.stack(errors), "kept": kept}


def mean_by_steps(
    answer: Answer, difference: Tensor, steps: int, members: Sequence[int] | None
) -> object:
    """Return the mean, and True if the difference is unchanged; None on ranks outside the group."""
    group = None if members is None else dist.new_group(list(members))
    if members is not None and dist.get_rank() not in members:
        return None
    mine = difference.clone()
    found = returning(answer)(mine, steps, group)
    return {"mean": found, "kept": _equal(mine, difference)}


def caught_up(
    answer: Answer, tensors: Sequence[Tensor], have: Sequence[int], lack: Sequence[int]
) -> list[Tensor]:
    """Return the rank's tensors after the answer's call; the second tensor is a parameter."""
    mine = [each.clone() for each in tensors]
    mine[1] = torch.nn.Parameter(mine[1], requires_grad=False)
    answer(mine, list(have), list(lack))
    return [each.detach() for each in mine]
