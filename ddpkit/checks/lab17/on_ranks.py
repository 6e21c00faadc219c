"""Lab 17: the functions that run answers on each rank, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddpkit.exercises.guard import returning, values
from ddpkit.rank.record.marks import span

if TYPE_CHECKING:
    from ddpkit.exercises.exercise import Observed
    from ddpkit.exercises.guard import Answer


FORWARD, BACKWARD = "forward of the check", "backward of the check"  # span names


def _group(members: Sequence[int] | None) -> dist.ProcessGroup | None:
    return None if members is None else dist.new_group(list(members))


def dispatched(
    answer: Answer, x: Tensor, chosen: Tensor, per_rank: int, members: Sequence[int] | None = None
) -> Observed | None:
    """Return the rows, the ticket and the gradient of x; None on ranks outside the group.

    The ticket has the order of the sent rows, the split sizes and the group. The check sets the
    gradient of a row to the row itself times (its expert's number + 1).
    """
    group = _group(members)
    if members is not None and dist.get_rank() not in members:
        return None
    given, choices = x.clone().requires_grad_(), chosen.clone()
    with span(FORWARD):
        rows, local, ticket = values(returning(answer)(given, choices, per_rank, group), 3)
    order, sends, takes, said = values(ticket, 4)
    mine = dist.get_rank(group) * per_rank
    with span(BACKWARD):
        if rows.requires_grad and len(rows) == len(local):
            factor = (local + mine + 1).to(rows.dtype)
            rows.backward(rows.detach() * factor[:, None])
    return {
        "rows": rows.detach(),
        "local": local,
        "order": _numbers(order),
        "sends": _unless_tensor(sends),
        "takes": _unless_tensor(takes),
        "group": said is group or (group is None and said is dist.group.WORLD),
        "gradient": given.grad,
        "kept": torch.equal(given, x) and torch.equal(choices, chosen),
    }


def _numbers(found: object) -> object:
    return found.tolist() if isinstance(found, torch.Tensor) else found


def _unless_tensor(found: object) -> object:
    """Return `found`, or "a tensor" for a tensor: all_to_all_single takes only lists of splits."""
    return "a tensor" if isinstance(found, torch.Tensor) else found


def combined(
    answer: Answer,
    made: Tensor,
    weights: Tensor,
    ticket: Any,
    gradient: Tensor,
    members: Sequence[int] | None = None,
) -> object:
    """Return the answer's output, and the gradients of `made` and of the weights."""
    group = _group(members)
    if members is not None and dist.get_rank() not in members:
        return None
    rows, shares = made.clone().requires_grad_(), weights.clone().requires_grad_()
    with span(FORWARD):
        output = returning(answer)(rows, shares, (*ticket, group))
    with span(BACKWARD):
        if output.requires_grad and output.shape == gradient.shape:
            output.backward(gradient)
    return {
        "output": output.detach(),
        "of rows": rows.grad,
        "of weights": shares.grad,
        "kept": torch.equal(rows, made) and torch.equal(shares, weights),
    }


def balanced(answer: Answer, probabilities: Tensor, chosen: Tensor) -> dict[str, object]:
    """Return the answer's balance loss, and the gradient of the probabilities."""
    given, choices = probabilities.clone().requires_grad_(), chosen.clone()
    with span(FORWARD):
        loss = returning(answer)(given, choices)
    with span(BACKWARD):
        if isinstance(loss, torch.Tensor) and loss.requires_grad and loss.numel() == 1:
            torch.autograd.backward(loss)
    return {
        "loss": float(loss.detach() if isinstance(loss, torch.Tensor) else loss),
        "gradient": given.grad,
        "kept": torch.equal(given, probabilities) and torch.equal(choices, chosen),
    }


def new_bias(answer: Answer, bias: Tensor, chosen: Tensor, rate: float) -> dict[str, object]:
    """Return the bias of the next step; "kept" is true if the old bias is unchanged."""
    old, choices = bias.clone(), chosen.clone()
    with span(FORWARD):
        found = returning(answer)(old, choices, rate)
    return {"bias": found, "kept": torch.equal(old, bias) and torch.equal(choices, chosen)}


def averaged(
    answer: Answer, shared: Sequence[Tensor], own: Sequence[Tensor], groups: Sequence[Sequence[int]]
) -> dict[str, object]:
    """Return the gradients of the shared parameters and of the rank's experts after the call."""
    same: dist.ProcessGroup | None = None
    for members in groups:
        group = dist.new_group(list(members))
        if dist.get_rank() in members:
            same = group
    parameters = [[_parameter(each) for each in each_kind] for each_kind in (shared, own)]
    with span(FORWARD):
        answer(*parameters, same)
    of_shared, of_experts = ([_copied(p.grad) for p in each] for each in parameters)
    kept = all(not p.detach().any() for each in parameters for p in each)
    return {"shared": of_shared, "experts": of_experts, "kept": kept}


def _parameter(gradient: Any) -> nn.Parameter:
    """Return a parameter of zeros with the given gradient; for a shape, without a gradient."""
    missing = isinstance(gradient, tuple)
    parameter = nn.Parameter(torch.zeros(gradient if missing else gradient.shape))
    parameter.grad = None if missing else gradient.clone()
    return parameter


def _copied(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None else gradient.detach().clone()
