"""Modules with gradients that differ by rank, and the results of an answer on ranks.

Gradients are multiples of 1.5, so their mean over 1 to 4 ranks is exact in their dtype, in any
order of additions. Often the mean is not a whole number. A dtype with fewer bits would round the
mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module, Parameter

    from ddpkit.exercises.guard import Answer

Gradients: TypeAlias = "list[Tensor | None]"  # one for each parameter: a tensor or None

MOST = {4: 2**18, 8: 2**40}  # element size -> limit below which sums over 4 ranks are exact


def module(kind: str, fill: float = 0.0) -> Module:
    """Return a model of the given kind: "linear", "strided", "alike" or "mixed".

    "linear" is one layer. "strided" is one layer with a transposed weight. "alike" has two layers
    of one shape, and a frozen layer of the same shape in between. "mixed" is a model with two
    dtypes: it has a frozen layer, a layer that is used twice, and a fourth layer that shares the
    weight of the first. Every element of every parameter is `fill`.
    """
    import torch
    from torch import nn

    linear = nn.Linear(3, 2)
    if kind == "strided":
        linear.weight = nn.Parameter(torch.zeros(3, 2).t())
    frozen = nn.Linear(1, 2).requires_grad_(False)
    tied = nn.Linear(3, 2, bias=False)
    tied.weight = linear.weight
    mixed = nn.Sequential(linear, nn.Linear(2, 3).double(), frozen, linear, tied)
    alike = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 2))
    net = {"mixed": mixed, "alike": alike}.get(kind, linear)
    for p in net.parameters():
        p.detach().fill_(fill)
    return net


def trained(net: Module) -> list[Parameter]:
    """Return the parameters that require a gradient."""
    return [p for p in net.parameters() if p.requires_grad]


def drawn_gradients(kind: str, seed: int, missing: Sequence[int] = ()) -> Gradients:
    """Draw one rank's gradients for all parameters.

    The gradient is None for a frozen parameter, and for the trainable parameters with the indices
    in `missing`.
    """
    import torch

    generator, net = torch.Generator().manual_seed(seed), module(kind)
    numbers = {id(p): number for number, p in enumerate(trained(net))}
    return [
        1.5 * torch.randint(1, MOST[p.element_size()], p.shape, generator=generator).to(p.dtype)
        if numbers.get(id(p), -1) >= 0 and numbers[id(p)] not in missing
        else None
        for p in net.parameters()
    ]


def given(net: Module, gradients: Sequence[Any], strided: bool = False) -> Module:
    """Return the module with these gradients in .grad, as after a backward.

    With `strided`, matrices are laid out column by column. This function makes the layout on the
    rank, because shipping a tensor to a rank loses the strides.
    """
    for p, gradient in zip(net.parameters(), gradients, strict=True):
        # The parameter has the gradient's layout too: zeros_like(p), which replaces a None, copies
        # the layout of p.
        if strided and p.dim() == 2:
            p.data = p.data.t().contiguous().t()
        by_columns = strided and gradient is not None and gradient.dim() == 2
        p.grad = gradient.t().contiguous().t() if by_columns else gradient
    return net


# The list of gradients


def due(kind: str, gradients: Gradients) -> Gradients:
    """Return the right result of `gradients_of`: the gradients, with zeros in the place of None."""
    import torch

    return [
        torch.zeros_like(p) if g is None else g.clone()
        for p, g in zip(module(kind).parameters(), gradients, strict=True)
        if p.requires_grad
    ]


def listed(answer: Answer, net: Module, gradients: Gradients) -> Observed:
    """Observe the result of `gradients_of`, and then all .grad after 1 was added to the result."""
    given(net, gradients)
    found = answer(net)
    if not isinstance(found, list | tuple):
        raise TypeError(f"gradients_of gave a {type(found).__name__}, not a list")
    seen = [None if g is None else g.detach().clone() for g in found]
    for g in found:
        if g is not None:
            g.detach().add_(1)
    return {"gradients": seen, "then": [p.grad for p in net.parameters()]}


def with_old(kind: str, gradients: Gradients) -> Gradients:
    """Return the gradients, with ones for frozen parameters, as left by an earlier backward."""
    import torch

    pairs = zip(module(kind).parameters(), gradients, strict=True)
    return [g if p.requires_grad else torch.ones_like(p) for p, g in pairs]


def looked_at_list(kind: str, gradients: Gradients, seen: Observed) -> Observed:
    """Compare the returned gradients with the .grad of the parameters.

    `gradients` has the .grad of the parameters before the call.
    """
    trains = [p.requires_grad for p in module(kind).parameters()]
    rows = list(zip(seen["then"], gradients, trains, strict=True))
    grown = [None if g is None else g + 1 for g in seen["gradients"]]
    kept = all(same(then, before) for then, before, train in rows if not train)
    return {
        "gradients": seen["gradients"],
        "the very .grad": same([then for then, _, train in rows if train], grown),
        "frozen .grad": "as before" if kept else "changed",
    }


# Averages of gradients


def summed(kind: str, own: list[Gradients]) -> Gradients:
    """Return the sum of each gradient over all ranks; None for a frozen parameter."""
    import torch

    columns = zip(module(kind).parameters(), *own, strict=True)
    return [
        sum((g for g in of_ranks if g is not None), torch.zeros_like(p))
        if p.requires_grad
        else None
        for p, *of_ranks in columns
    ]


def divided(sums: Gradients, divisor: int) -> Gradients:
    return [total if total is None else total / divisor for total in sums]


def counts(kind: str) -> dict[str, int]:
    """Return the counts of a right average: parameters, dtypes, bytes, and twice the bytes."""
    parameters = trained(module(kind))
    nbytes = sum(p.numel() * p.element_size() for p in parameters)
    dtypes = len({p.dtype for p in parameters})
    return {"count": len(parameters), "dtypes": dtypes, "nbytes": nbytes, "twice": 2 * nbytes}


def averaged(
    answer: Answer, strided: bool, net: Module, gradients: Gradients
) -> tuple[Gradients, list[Tensor]]:
    """Run the answer on a rank; return all gradients after the averaging, and all parameters.

    The gradients of frozen parameters are included.
    """
    answer(given(net, gradients, strided))
    found = [None if p.grad is None else p.grad.detach().clone() for p in net.parameters()]
    return found, [p.detach() for p in net.parameters()]


def looked_at_means(parameters: list[list[Tensor]], seen: Observed) -> Observed:
    """Split the results of the ranks into means and parameters.

    "parameters" is "kept" if the parameters are still equal to `parameters`, otherwise "changed".
    """
    means, after = (list(column) for column in zip(*seen["gave"], strict=True))
    kept = "kept" if same(after, parameters) else "changed"
    return {**seen, "means": means, "parameters": kept}


def root(did: Did) -> int:
    """Return the largest root of all collectives; 0 if no collective has a root."""
    return max((int(span.args.get("root", 0)) for span in did.trace.spans), default=0)


def calls(did: Did) -> str:
    """Return rank 0's calls as text, for example "gather ×2, scatter ×2, 64 B"."""
    collectives = did.trace.traffic.collectives(0)
    texts = [f"{name} ×{each.times}" for name, each in collectives.items()]
    if did.messages[0]:
        texts.append(f"send ×{did.messages[0]}")
    nbytes = sum(each.bytes for each in collectives.values()) + did.bytes[0]
    return ", ".join([*texts, f"{nbytes} B"])
