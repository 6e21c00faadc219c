"""Lab 12: functions that run an answer on a rank, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddpkit.checks.shared.functions import BACKWARD, FORWARD
from ddpkit.exercises.guard import Answer, returning
from ddpkit.rank.record.marks import span

STEPS, RATE = 3, 0.1


# SlicedMLP


def sliced(answer: Answer, mlp: nn.Module, x: Tensor, gradient: Tensor) -> dict[str, object]:
    """Return a sliced MLP's results, its bytes, and its output after some steps of SGD."""
    source = deepcopy(mlp)
    net = returning(answer)(source, dist.get_rank(), dist.get_world_size())
    made = held(net, source)
    given = x.clone().requires_grad_()
    with span(FORWARD):
        output = returning(net)(given)
    with span(BACKWARD):
        output.backward(gradient)
    first = _numbers(net)
    return {
        "output": output.detach().clone(),
        "gradient": given.grad,
        "held": max(made, held(net)),
        "learned": learned(net, x, gradient),
        "numbers": [first, _numbers(net)],
        "kept": all(map(torch.equal, source.parameters(), mlp.parameters())),
    }


def _numbers(net: nn.Module) -> list[float]:
    """Return all elements of a module's parameters in one list."""
    return [number for p in net.parameters() for number in p.detach().flatten().tolist()]


def learns(
    net: nn.Module, wrapped: nn.Module, x: Tensor, gradient: Tensor
) -> tuple[Tensor, dict[float, float]]:
    """Return the output of `learned`, and each element's last value by its first value."""
    first = _numbers(net)
    output = learned(wrapped, x, gradient)
    return output, dict(zip(first, _numbers(net), strict=True))


def held(net: nn.Module, source: nn.Module | None = None) -> int:
    """Return the bytes of the storages of a module's parameters and buffers, each storage once.

    The storages of `source` also count if an attribute of `net` holds `source` or its layers, for
    example in a list.
    """
    kept = [each for value in vars(net).values() for each in _modules_in(value)]
    whole = [part for part in kept if source is not None and part in set(source.modules())]
    tensors = [t for part in (net, *whole) for t in (*part.parameters(), *part.buffers())]
    pieces = {each.untyped_storage().data_ptr(): each.untyped_storage() for each in tensors}
    return sum(piece.nbytes() for piece in pieces.values())


def _modules_in(value: Any) -> list[nn.Module]:
    """Return the modules inside lists, tuples and dicts, which `parameters()` does not find."""
    if isinstance(value, nn.Module):
        return [value]
    inner = value.values() if isinstance(value, dict) else value
    nested = isinstance(value, list | tuple | dict)
    return [found for each in inner for found in _modules_in(each)] if nested else []


def learned(net: Any, x: Any, gradient: Any) -> Any:
    """Return the output after some steps of SGD; in each step, the output has this gradient."""
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(x).backward(gradient)
        optimizer.step()
    return net(x).detach()


# global_norm


def norm_of(
    answer: Answer, gradients: Sequence[Tensor | None], slices: Sequence[bool]
) -> dict[str, object]:
    """Return the norm that the answer computes, and True if the gradients are unchanged."""
    parameters = []
    for gradient in gradients:
        shape = (2,) if gradient is None else gradient.shape
        parameters.append(nn.Parameter(torch.zeros(shape)))
        parameters[-1].grad = None if gradient is None else gradient.clone()
    is_slice = {id(p): each for p, each in zip(parameters, slices, strict=True)}
    with span(FORWARD):
        norm = returning(answer)(iter(parameters), lambda p: is_slice[id(p)])
    after = [p.grad for p in parameters]
    return {"norm": norm, "kept": all(map(_same, gradients, after))}


def _same(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other is None or (one is not None and other is not None and one.equal(other))
