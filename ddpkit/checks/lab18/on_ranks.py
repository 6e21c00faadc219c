"""Lab 18: functions that run answers on a rank: recomputed blocks, policies, means, gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

from ddpkit.checks.shared.functions import FORWARD
from ddpkit.exercises.guard import Answer, returning
from ddpkit.rank.record.marks import span

FUNCTIONAL = "_c10d_functional"  # torch's namespace of functional collectives

# Again


class DropoutBlock(nn.Module):
    """A block with dropout that counts its calls.

    times    the number of ranks in an all-reduce at the end, all with the same numbers; 0 for none
    alone    multiply by `times` in one process, in the place of the all-reduce
    """

    def __init__(self, number: int, like: Tensor, times: int, *, alone: bool) -> None:
        super().__init__()
        width = like.shape[-1]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            self.wide = nn.Linear(width, 2 * width, dtype=like.dtype)
            self.narrow = nn.Linear(2 * width, width, dtype=like.dtype)
        self.times, self.alone, self.calls = times, alone, 0

    def forward(self, x: Any, *more: Any) -> Any:
        self.calls += 1
        if more:
            scale, at = more
            x = (x * scale)[at]
        x = self.narrow(nn.functional.dropout(self.wide(x).tanh(), 0.3, self.training))
        if self.times and self.alone:
            return _applied(TimesForward, x, self.times)
        return _applied(Summed, x) if self.times else x


def _world() -> Any:
    return dist.group.WORLD


def _applied(function: Any, *given: object) -> Any:
    """Return `function.apply(*given)`: this function exists because torch's `apply` is untyped."""
    return function.apply(*given)


class Summed(torch.autograd.Function):
    """An autograd function: the forward sums over the ranks, the backward is the identity."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        operators = getattr(torch.ops, FUNCTIONAL)
        total = operators.all_reduce(x, "sum", _world().group_name)
        return operators.wait_tensor(total)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> object:
        return gradient


class TimesForward(torch.autograd.Function):
    """An autograd function: in one process, the result of `Summed` on `times` equal ranks."""

    @staticmethod
    def forward(ctx: Any, x: Any, times: int) -> Any:
        return times * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> object:
        return gradient, None


def in_a_row(
    answer: Answer | None, state: Any, x: Any, gradient: Any, more: Sequence[Any], times: int
) -> dict[str, Any]:
    """Return the results of three blocks, one after another; an answer recomputes each block.

    If `answer` is None, all tensors are kept. `state` is the state of the random generator for
    dropout. The first block also gets the inputs `more`. An empty tensor stands for a missing
    gradient.
    """
    torch.set_rng_state(state)
    alone = answer is None
    blocks = [DropoutBlock(number, x, times, alone=alone) for number in range(3)]
    if times:  # an earlier backward has left gradients, to which this one adds
        for p in (p for block in blocks for p in block.parameters()):
            p.grad = torch.ones_like(p)
    given = x.clone().requires_grad_()
    extra = [each.clone().requires_grad_(each.is_floating_point()) for each in more]
    y: Any = 2 * given  # not a leaf of the graph
    for number, block in enumerate(blocks):
        own = (y, *(extra if number == 0 else ()))
        y = block(*own) if answer is None else returning(answer.apply)(block, *own)  # type: ignore[attr-defined]
    output = y.detach().clone()
    y.backward(gradient)
    grads = [given, *(each for each in extra if each.is_floating_point())]
    return {
        "output": output,
        "of inputs": [_gradient(each) for each in grads],
        "of parameters": [[_gradient(p) for p in block.parameters()] for block in blocks],
        "next number": torch.rand(1).item(),
        "calls": [block.calls for block in blocks],
    }


def twin(
    state: Any, x: Tensor, gradient: Tensor, more: Sequence[Tensor], times: int
) -> dict[str, Any]:
    """Return the results of `in_a_row` in one process that keeps all tensors."""
    with torch.random.fork_rng(devices=[]):
        return in_a_row(None, state, x, gradient, more, times)


def _gradient(tensor: Tensor) -> Tensor:
    return torch.empty(0, dtype=tensor.dtype) if tensor.grad is None else tensor.grad.clone()


def lean(answer: Answer, rows: int) -> dict[str, Any]:
    """Run six blocks through the answer where memory is counted; return each block's calls."""
    blocks = [Lean(number) for number in range(6)]
    y: Any = torch.ones(rows, 32, requires_grad=True)
    for block in blocks:
        y = returning(answer.apply)(block, y)  # type: ignore[attr-defined]
    y.square().mean().backward()
    return {"calls": [block.calls for block in blocks]}


class Lean(nn.Module):
    """A block that maps 32 features to 256 and back to 32, and counts its calls."""

    def __init__(self, number: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            self.wide, self.narrow = nn.Linear(32, 256), nn.Linear(256, 32)
        self.calls = 0

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.narrow(self.wide(x).tanh())


# worth_keeping


class PolicyBlock(nn.Module):
    """A block with elementwise operations, products of all kinds, and, if `bias`, an all-reduce.

    Elementwise operations follow each product and the all-reduce, so that all outputs are needed
    again in the backward.
    """

    def __init__(self, number: int, width: int, *, bias: bool, alone: bool) -> None:
        super().__init__()
        self.alone = alone
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            self.wide = nn.Linear(width, 4 * width, bias=bias)
            self.narrow = nn.Linear(4 * width, width, bias=bias)
            self.mix = nn.Parameter(torch.randn(1, width, width) / width**0.5)
        self.summed = bias

    def forward(self, x: Any) -> Any:
        y = self.narrow(nn.functional.gelu(self.wide(x)).sin())
        if self.summed:
            y = _applied(TimesForward, y, 2) if self.alone else _applied(Summed, y)
        y = y.sigmoid().exp()
        return torch.bmm(y[None], self.mix)[0].tanh().sin()


def by_policy(
    answer: Answer | None, x: Any, gradient: Any, count: int, bias: bool
) -> dict[str, Any]:
    """Return output and gradients of blocks under a policy; without an answer, keep all tensors."""
    blocks = [
        PolicyBlock(number, x.shape[-1], bias=bias, alone=answer is None) for number in range(count)
    ]
    given = x.clone().requires_grad_()
    y = given

    def contexts() -> Any:
        return create_selective_checkpoint_contexts(returning(answer))  # type: ignore[arg-type, no-untyped-call]

    for block in blocks:
        if answer is None:
            y = block(y)
        else:
            y = checkpoint(block, y, use_reentrant=False, context_fn=contexts)
    output = y.detach().clone()
    y.backward(gradient)
    return {"output": output, "gradient": given.grad}


# mean_by_halves


def mean(answer: Answer, flat: Tensor) -> dict[str, object]:
    """Return the mean that the answer computes, and True if its argument is unchanged."""
    mine = flat.clone()
    with span(FORWARD):
        found = returning(answer)(mine)
    return {"mean": found, "kept": torch.equal(mine, flat)}


# LossScale


def scaled(
    answer: Answer,
    gradients: Sequence[Sequence[Tensor]],
    start: Sequence[Tensor],
    how: tuple[float, int],
) -> dict[str, object]:
    """Return the results of steps with these gradients: a list for each step.

    None stands for a missing gradient. The second parameter is in its own parameter group.
    """
    scaler = answer(*how)
    parameters = [nn.Parameter(each.clone()) for each in start]
    groups = [{"params": [p]} for p in parameters]
    optimizer = torch.optim.SGD(groups, lr=0.5, momentum=0.5)
    took, scales, moved = [], [], []
    for each in gradients:
        for p, g in zip(parameters, each, strict=True):
            p.grad = None if g is None else g.clone()
        with span(FORWARD):
            took.append(returning(scaler.step)(optimizer))
        scales.append(float(scaler.scale))
        moved.append([p.detach().clone() for p in parameters])
    return {"stepped": took, "scales": scales, "parameters": moved}


# gather_fp8


def gathered(answer: Answer, shards: Sequence[Tensor]) -> dict[str, object]:
    """Return the whole tensors that the answer gathers, and True if the shards are unchanged."""
    mine = [each.clone() for each in shards]
    with span(FORWARD):
        whole = returning(answer)(mine)
    kept = len(mine) == len(shards) and all(map(torch.equal, mine, shards))
    return {"whole": list(whole), "kept": kept}
