"""A run of an autograd function on a rank, with forward and backward each in a named span."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ddpkit.exercises.guard import returning
from ddpkit.rank.record.marks import span

FORWARD, BACKWARD = "forward of the check", "backward of the check"


def passed(function: Any, x: Tensor, gradient: Tensor, *more: object) -> dict[str, object]:
    """Return the function's output, the gradient of x, and `kept`.

    `kept` is true if the function left x and the given `gradient` unchanged.
    """
    given, before = x.clone().requires_grad_(), (x.clone(), gradient.clone())
    with span(FORWARD):
        output = returning(function.apply)(given, *more)
    made = output.detach().clone()
    with span(BACKWARD):
        if output.shape == gradient.shape:
            output.backward(gradient)
    kept = torch.equal(given, before[0]) and torch.equal(gradient, before[1])
    return {"output": made, "gradient": given.grad, "kept": kept}
