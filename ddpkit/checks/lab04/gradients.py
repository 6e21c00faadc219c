"""Modules with gradients that differ by rank, and what an answer makes of these on ranks.

Gradients are whole multiples of 1.5, so that their mean over 1 to 4 ranks is exact, however it is
computed, and often no whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did

Answer = Callable[..., Any]
Gradients = list[Any]  # one for each parameter: a tensor or None


def module(kind: str) -> Any:
    """A model of the given kind: "linear", "strided" or "mixed".

    "linear" is a layer; "strided" one whose weight is transposed; "mixed" a model with two dtypes,
    a frozen layer, and a layer that stands in it twice.
    """
    import torch
    from torch import nn

    linear = nn.Linear(3, 2)
    if kind == "strided":
        linear.weight = nn.Parameter(torch.zeros(3, 2).t())
    if kind != "mixed":
        return linear
    frozen = nn.Linear(1, 2).requires_grad_(False)
    return nn.Sequential(linear, nn.Linear(2, 3).double(), frozen, linear)


def trained(net: Any) -> list[Any]:
    """The parameters that require a gradient."""
    return [p for p in net.parameters() if p.requires_grad]


def with_gradients(kind: str, seed: int, rank: int, missing: Sequence[int]) -> Any:
    """The module as a rank's backward may leave it; the gradients numbered `missing` are None."""
    import torch

    net = module(kind)
    generator = torch.Generator().manual_seed(100 * seed + rank)
    for number, p in enumerate(trained(net)):
        if number not in missing:
            values = 1.5 * torch.randint(1, 99, p.shape, generator=generator)
            p.grad = torch.empty_like(p).copy_(values).detach()
    return net


# The list of gradients


def due(kind: str, seed: int, missing: Sequence[int]) -> Gradients:
    """What `gradients_of` is to return: zeros for the missing ones."""
    import torch

    parameters = trained(with_gradients(kind, seed, 0, missing))
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]


def listed(answer: Answer, kind: str, seed: int, missing: Sequence[int]) -> Observed:
    """What `gradients_of` returns for a module, without ranks."""
    net = with_gradients(kind, seed, 0, missing)
    found = list(answer(net))
    own = [p.grad for p in net.parameters() if p.grad is not None]
    frozen = [p.grad for p in net.parameters() if not p.requires_grad]
    return {
        "gradients": [None if g is None else g.detach() for g in found],
        "the very .grad": [_place(g) for g in found] == [_place(g) for g in own],
        "frozen .grad": "None" if all(g is None for g in frozen) else "made",
    }


def _place(gradient: Any) -> object:
    """Where a gradient lies in memory, and how: of p.grad and p.grad.data it is the same."""
    return gradient if gradient is None else (gradient.data_ptr(), gradient.stride())


# Their averages


def by_rank(
    kind: str, world_size: int, seed: int, missing: Mapping[int, Sequence[int]]
) -> list[Gradients]:
    """Every rank's own gradients; `missing[rank]` are the numbers of those that it lacks."""
    ranks = range(world_size)
    nets = [with_gradients(kind, seed, rank, missing.get(rank, ())) for rank in ranks]
    return [[p.grad for p in net.parameters()] for net in nets]


def summed(kind: str, own: list[Gradients]) -> Gradients:
    """The sums over all ranks; None for a frozen parameter."""
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
    """What an average of a module's gradients may have to call for: how often, how many bytes."""
    parameters = trained(module(kind))
    nbytes = sum(p.numel() * p.element_size() for p in parameters)
    dtypes = len({p.dtype for p in parameters})
    return {"count": len(parameters), "dtypes": dtypes, "nbytes": nbytes, "twice": 2 * nbytes}


def averaged(answer: Answer, kind: str, seed: int, missing: Mapping[int, Sequence[int]]) -> Any:
    """Run on a rank; its gradients after the averaging, frozen parameters' included."""
    import torch.distributed as dist

    rank = dist.get_rank()
    net = with_gradients(kind, seed, rank, missing.get(rank, ()))
    answer(net)
    return [None if p.grad is None else p.grad.detach().clone() for p in net.parameters()]


def calls(did: Did) -> str:
    """What rank 0 called: "gather ×2, scatter ×2, 64 B"."""
    collectives = did.trace.traffic.collectives(0)
    texts = [f"{name} ×{each.times}" for name, each in collectives.items()]
    if did.messages[0]:
        texts.append(f"send ×{did.messages[0]}")
    nbytes = sum(each.bytes for each in collectives.values()) + did.bytes[0]
    return ", ".join([*texts, f"{nbytes} B"])
