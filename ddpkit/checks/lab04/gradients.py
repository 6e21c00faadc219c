"""Modules with gradients that differ by rank, and what an answer makes of these on ranks.

Gradients are whole multiples of 1.5, so that their mean over 1 to 4 ranks is exact, however it is
computed, and often no whole number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import Did, call

Answer = Callable[..., Any]
Gradients = list[Any]  # one for each parameter: a tensor or None

TRAINED = {"linear": 2, "strided": 2, "mixed": 4}  # parameters that require a gradient


def module(kind: str) -> Any:
    """A "linear" layer; a "strided" one, whose weight is transposed; or a "mixed" model with two
    dtypes, a frozen layer, and a layer that stands in it twice."""
    import torch
    from torch import nn

    linear = nn.Linear(3, 2)
    if kind == "strided":
        linear.weight = nn.Parameter(torch.zeros(3, 2).t())
    if kind != "mixed":
        return linear
    frozen = nn.Linear(1, 2).requires_grad_(False)
    return nn.Sequential(linear, nn.Linear(2, 3).double(), frozen, linear)


def with_gradients(kind: str, seed: int, rank: int, missing: Sequence[int]) -> Any:
    """The module as a rank's backward may leave it; the gradients numbered `missing` are None."""
    import torch

    net = module(kind)
    generator = torch.Generator().manual_seed(100 * seed + rank)
    trained = [p for p in net.parameters() if p.requires_grad]
    for number, p in enumerate(trained):
        if number not in missing:
            values = 1.5 * torch.randint(1, 99, p.shape, generator=generator)
            p.grad = torch.empty_like(p).copy_(values).detach()
    return net


def gradients(
    kind: str, seed: int, rank: int, missing: Sequence[int], *, zeros: bool = False
) -> Gradients:
    """Of the trained parameters; with `zeros`, these stand for the missing ones."""
    import torch

    net = with_gradients(kind, seed, rank, missing)
    trained = [p for p in net.parameters() if p.requires_grad]
    return [torch.zeros_like(p).detach() if zeros and p.grad is None else p.grad for p in trained]


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


def calls_of(name: str, kind: str) -> str:
    """What an average posts on a rank, and the bytes that it hands in."""
    trained = [p for p in module(kind).parameters() if p.requires_grad]
    nbytes = sum(p.numel() * p.element_size() for p in trained)
    match name:
        case "average_by_gather":
            return f"gather ×{len(trained)}, scatter ×{len(trained)}, {2 * nbytes} B"
        case "average_per_parameter":
            return f"all_reduce ×{len(trained)}, {nbytes} B"
    return f"all_reduce ×{len({p.dtype for p in trained})}, {nbytes} B"


@dataclass(frozen=True)
class Task:
    """Gradients to be averaged; `missing[rank]` are the numbers of those that a rank lacks."""

    kind: str
    world_size: int
    seed: int
    missing: Mapping[int, Sequence[int]]

    def before(self, rank: int) -> Gradients:
        net = with_gradients(self.kind, self.seed, rank, self.missing.get(rank, ()))
        return [p.grad for p in net.parameters()]

    def expected(self) -> list[Gradients]:
        """The means, on every rank; None for a frozen parameter."""
        return [self._sums_by(self.world_size)] * self.world_size

    def wrong_values(self) -> Iterator[tuple[str, list[Gradients]]]:
        """What usual mistakes make of the gradients, by rank, each with its hint."""
        n = self.world_size
        if n > 1:
            yield "That is the sum: divide by the number of ranks.", [self._sums_by(1)] * n
            yield "That is divided by the number of ranks twice.", [self._sums_by(n * n)] * n
            own = [self.before(rank) for rank in range(n)]
            yield "Each rank still has its own gradients: copy the means back into them.", own
            means, *_ = self.expected()
            yield "Only rank 0 has the means: the others need them too.", [means, *own[1:]]

    def _sums_by(self, divisor: int) -> Gradients:
        """The sums over all ranks, divided."""
        import torch

        def total(number: int, p: Any) -> Any:
            parts = [by_rank[rank][number] for rank in range(self.world_size)]
            return sum((g for g in parts if g is not None), torch.zeros_like(p).detach()) / divisor

        by_rank = [self.before(rank) for rank in range(self.world_size)]
        parameters = enumerate(module(self.kind).parameters())
        return [total(number, p) if p.requires_grad else None for number, p in parameters]


def observe(
    answer: Answer, kind: str, world_size: int, seed: int, missing: Mapping[int, Sequence[int]]
) -> Observed:
    """Every rank's gradients after the averaging; of several ranks, the calls that it took."""
    did = call(partial(_averaged, answer), kind, seed, missing, world_size=world_size)
    # alone, a rank may do without any call
    return {"means": did.returned} | ({"calls": _posted(did)} if world_size > 1 else {})


def _averaged(answer: Answer, kind: str, seed: int, missing: Mapping[int, Sequence[int]]) -> Any:
    """On a rank: its gradients after the averaging, frozen parameters' included."""
    import torch.distributed as dist

    rank = dist.get_rank()
    net = with_gradients(kind, seed, rank, missing.get(rank, ()))
    answer(net)
    return [None if p.grad is None else p.grad.detach().clone() for p in net.parameters()]


def _posted(did: Did) -> str:
    """What rank 0 called: "gather ×2, scatter ×2, 64 B"."""
    calls = did.trace.traffic.collectives(0)
    texts = [f"{name} ×{count.times}" for name, count in calls.items()]
    if did.messages[0]:
        texts.append(f"send ×{did.messages[0]}")
    nbytes = sum(count.bytes for count in calls.values()) + did.bytes[0]
    return ", ".join([*texts, f"{nbytes} B"])


def ordered(by_rank: list[Gradients]) -> list[Gradients]:
    """The same numbers of each gradient, in order of size."""
    return [
        [g if g is None else g.flatten().sort().values for g in gradients] for gradients in by_rank
    ]


def near(got: list[Gradients], wanted: list[Gradients]) -> bool:
    """Whether all ranks' gradients are these, up to rounding."""
    import torch

    pairs = [
        pair
        for one, other in zip(got, wanted, strict=True)
        for pair in zip(one, other, strict=True)
    ]
    return all(
        a is b if a is None or b is None else torch.allclose(a, b.to(a.dtype)) for a, b in pairs
    )
