"""Lab 11: functions that run an answer on ranks or alone, and observe the run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ddpkit.exercises.guard import Answer
from ddpkit.exercises.ranks import Did
from ddpkit.rank.emulation.busy import busy

F_S, B_S = 0.02, 0.04  # emulated seconds of a forward (or an RNN step), and of a backward


# rnn_layer


def layer_of_rank(
    rnn_layer: Answer, cell: nn.Module, xs: Sequence[Tensor], hidden: Tensor, slow: bool = False
) -> Any:
    """Return the answer's outputs without a graph; with `slow`, each call of the cell takes F_S."""
    if slow:
        cell.register_forward_hook(_takes_its_time)
    with torch.no_grad():
        outputs = rnn_layer(cell, list(xs), hidden)
    return [each.detach().clone() for each in outputs] if isinstance(outputs, list) else outputs


def _takes_its_time(*_: object) -> None:
    busy(F_S)


def forwards_and_sends(did: Did) -> list[str]:
    """Return the events of each rank as a text, with one letter for each event.

    The letter f stands for a call of the cell, and s for a message that the rank starts to send.
    """
    marked = [
        (one.rank, one.start_ns, "s" if one.is_send else "f")
        for one in did.trace.spans
        if one.is_send or one.kind == "forward"
    ]
    return ["".join(what for at, _, what in sorted(marked) if at == r) for r in did.trace.ranks]


def waits_ahead(did: Did) -> list[int]:
    """Return, for each rank, the most inputs that it has waited for before it needs them."""
    found = []
    for rank in did.trace.ranks:
        spans = did.trace.of(rank)
        waited = [one.blocked_ns for one in spans if one.is_recv and one.blocked_ns is not None]
        steps = sorted(one.start_ns for one in spans if one.kind == "forward")
        ahead = [sum(at < step for at in waited) - k for k, step in enumerate(steps, start=1)]
        found.append(max(0, *ahead) if ahead else 0)
    return found


# pipeline_step


class Noted(torch.autograd.Function):
    """An autograd identity that records the micro-batch of each forward and each backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, layer: Layer, i: int) -> Any:
        ctx.layer, ctx.i = layer, i
        layer.order.append(f"F{i}")
        layer.works(F_S)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> object:
        ctx.layer.order.append(f"B{ctx.i}")
        ctx.layer.works(B_S)
        return gradients[0], None, None


class Layer(nn.Module):
    """A layer that records its micro-batches, and counts the outputs that are kept too long.

    Graphs are counted separately, because the graph of an output may live longer than the output,
    for example in a sum of losses.
    """

    def __init__(self, weight: Tensor, forwards: Sequence[int], slow: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)
        self.forwards = forwards  # micro-batches in the order of the plan
        self.order: list[str] = []
        self.outputs: list[Any] = []  # weak references
        self.graphs: list[Any] = []  # weak references to the nodes of autograd
        self.too_long = self.graph_too_long = 0
        self.slow = slow

    def forward(self, x: Any) -> Any:
        due = sum(1 if name[0] == "F" else -1 for name in self.order)
        # One output more is allowed: the last one may still be in a variable.
        self.too_long = max(self.too_long, _alive(self.outputs) - due - 1)
        self.graph_too_long = max(self.graph_too_long, _alive(self.graphs) - due - 1)
        passed = len(self.outputs)
        number = self.forwards[passed] if passed < len(self.forwards) else passed
        y = cast(Any, Noted).apply(torch.tanh(x.to(self.weight.dtype) @ self.weight), self, number)
        self.outputs.append(weakref.ref(y))
        self.graphs.append(weakref.ref(y.grad_fn))
        return y

    def works(self, seconds: float) -> None:
        """Let emulated time pass, as for a forward or a backward, if the layer is slow."""
        if self.slow:
            busy(seconds)


def _alive(references: Sequence[Any]) -> int:
    return sum(reference() is not None for reference in references)


BEFORE = 1.0  # earlier content of every gradient


def lopsided(output: Tensor, target: Tensor) -> Tensor:
    """Return a loss that changes if output and target are swapped."""
    return (output - 2 * target).square().mean()


def step_of_rank(
    pipeline_step: Answer,
    plan: Any,
    weight: Tensor,
    inputs: Tensor,
    targets: Tensor,
    like: Tensor,
    once: bool,
    slow: bool,
) -> dict[str, object]:
    """Run the answer's step on a layer that already has gradients; return the observations.

    once  pass the plan as an iterator
    slow  a forward and a backward of the layer take emulated time
    """
    stage = Layer(weight.clone(), [i for kind, i in plan if kind == "F"], slow)
    stage.weight.grad = torch.full_like(weight, BEFORE)
    given = iter(plan) if once else plan
    returned = pipeline_step(given, stage, inputs, targets, lopsided, like)
    has_graph = isinstance(returned, torch.Tensor) and returned.requires_grad
    if isinstance(returned, torch.Tensor):
        # float() of a tensor with a graph would print a warning for the student
        returned = returned.detach()
    last = dist.get_rank() == dist.get_world_size() - 1
    gradient = stage.weight.grad
    return {
        "loss": float(returned) if last and returned is not None else returned,
        "gradient": None if gradient is None else gradient.clone(),
        "order": " ".join(stage.order),
        "too long": stage.too_long,
        "graphs kept": max(stage.graph_too_long, int(has_graph)),
        "module": "as it was"
        if stage.training and torch.equal(stage.weight, weight)
        else "with other weights"
        if stage.training
        else "in eval mode",
    }


def of_ranks(name: str) -> Callable[[Did], list[object]]:
    """Return a function that collects the value `name` of `step_of_rank` from each rank."""
    return lambda did: [each[name] for each in did.returned]


# split_backward


class UsedWeight(torch.autograd.Function):
    """An autograd identity for a weight; the identity counts the gradients of the weight."""

    @staticmethod
    def forward(ctx: Any, weight: Any, came: list[int]) -> Any:
        ctx.came = came
        return weight.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> object:
        ctx.came.append(1)
        return gradients[0], None


def both_parts(
    split_backward: Answer,
    xs: Sequence[Tensor],
    gradients: Sequence[Tensor],
    weights: Sequence[Tensor],
    before: float | None,
) -> dict[str, object]:
    """Run the first part of each micro-batch's backward, then all second parts; observe both."""
    came: list[int] = []
    parameters = [nn.Parameter(weight.clone()) for weight in weights]
    for parameter in parameters:
        parameter.grad = None if before is None else torch.full_like(parameter, before)
    inputs, outputs, of_x, later = [], [], [], []
    unused = nn.Parameter(torch.ones(2))
    for x, gradient in zip(xs, gradients, strict=True):
        inputs.append(x.clone().requires_grad_())
        first, second = (cast(Any, UsedWeight).apply(each, came) for each in parameters)
        outputs.append(torch.tanh(inputs[-1] @ first) @ second)
        made, rest = split_backward(
            outputs[-1], inputs[-1], gradient, [parameters[0], unused, parameters[1]]
        )
        of_x.append(made)
        later.append(rest)
    early = len(came)
    for rest in later:
        rest()
    return {
        "of x": of_x,
        "early": early,
        "grads": [None if p.grad is None else p.grad.clone() for p in (*parameters, unused)],
        "x.grad": [x.grad for x in inputs],
        "freed": all(_is_freed(y, parameters[0]) for y in outputs),
        "with a graph": _with_graph([*of_x, *(p.grad for p in parameters)]),
    }


def _with_graph(gradients: Sequence[object]) -> int:
    """Return the number of gradients that still have a graph of autograd."""
    return sum(isinstance(each, torch.Tensor) and each.requires_grad for each in gradients)


def _is_freed(y: Tensor, parameter: Tensor) -> bool:
    """True if autograd has freed the graph of the output `y`."""
    try:
        torch.autograd.grad(y.sum(), parameter, retain_graph=True)
    except RuntimeError:
        return True
    return False
