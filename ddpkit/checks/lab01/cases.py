"""Lab 01: minibatches, the step of SGD and gradients from micro-batches, compared with torch.

The tensors are float64 and small, so that every right order of operations prints the same digits.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ddpkit.checks.lab01.hints import EPOCH, PIECES, STEP
from ddpkit.checks.shared.seeds import touches_global_seed
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.values import Close

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


# minibatches

FEW = 10  # a shuffle of up to ten numbers may leave each number in its place
# added to a seed; several numbers, because an answer may use the seed modulo a number
OTHER_SEEDS = (1, 2, 3, 4, 5, 7, 8, 10, 100, 1000)


@exercise("minibatches", lab="01", points=2)
def minibatches(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check minibatches: each sample once an epoch, in an order that depends on the seed."""
    for n, batch_size in ((12, 4), (103, 16), (5, 8), (rng.randrange(200, 300), 32), (1, 1)):
        whole, rest = divmod(n, batch_size)
        yield Case(
            f"{n} in batches of {batch_size}",
            observe=partial(_epoch, answer, n, batch_size, rng.randrange(1000)),
            expect={
                "sizes": [batch_size] * whole + [rest] * (rest > 0),
                "samples": "each once",
                "order": "shuffled" if n > FEW else "any",
                "seed": "decides",
                "global seed": "left alone",
            },
            hints=EPOCH,
            given={"rest": rest},
            trivial=n <= FEW,
        )


def _epoch(answer: Answer, n: int, batch_size: int, seed: int) -> Observed:
    import torch

    touched = touches_global_seed(lambda: answer(n, batch_size, seed))
    batches = answer(n, batch_size, seed)
    if isinstance(batches, Iterator):
        return {"returned": type(batches).__name__}
    order = _numbers(batches)
    torch.manual_seed(1)  # the same seed must give the same order, whatever happened before
    again = _numbers(answer(n, batch_size, seed)) == order
    others = (seed + more for more in OTHER_SEEDS)
    other = n <= FEW or all(_numbers(answer(n, batch_size, each)) != order for each in others)
    return {
        "sizes": [len(batch) for batch in batches],
        "samples": _samples(batches, order, n),
        "order": "any" if n <= FEW else "as they come" if _in_order(batches, n) else "shuffled",
        "seed": "decides" if again and other else "ignored" if again else "not enough",
        "global seed": "used" if touched else "left alone",
    }


def _numbers(batches: Iterable[Tensor]) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def _in_order(batches: list[Tensor], n: int) -> bool:
    """True if the samples come in their original order.

    The samples also count as ordered if whole batches have moved. More than 12 samples count as
    ordered in two more cases: the order starts in the middle, or the samples are shuffled only
    within each batch.
    """
    pairs = (pairwise(_numbers([batch])) for batch in batches)
    if all(b - a == 1 for a, b in chain.from_iterable(pairs)):
        return True
    if n <= 12:
        return _numbers(batches) == list(range(n))
    order = [i for batch in batches for i in sorted(_numbers([batch]))]
    neighbours = zip(_numbers(batches), _numbers(batches)[1:], strict=False)
    return order == list(range(n)) or sum((b - a) % n == 1 for a, b in neighbours) > n // 2


def _samples(batches: list[Tensor], order: list[int], n: int) -> str:
    kinds = {str(getattr(batch, "dtype", type(batch).__name__)) for batch in batches}
    if kinds != {"torch.int64"}:
        return f"of type {', '.join(sorted(kinds))}"
    if sorted(order) == list(range(n)):
        return "each once"
    missing, beyond = len(set(range(n)) - set(order)), sum(not 0 <= each < n for each in order)
    twice = len(order) - len(set(order))
    return f"{missing} missing, {twice} twice" + (f", {beyond} out of range" if beyond else "")


# sgd_step


@exercise("sgd_step", lab="01", points=3)
def sgd_step(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the answer's steps of SGD against torch.optim.SGD, with and without momentum."""
    for title, rates, momentum in (
        ("1 step", [0.5], None),
        ("3 steps", [0.5, 0.5, 0.5], None),
        ("3 steps, momentum 0.5", [0.1, 0.1, 0.1], 0.5),
        ("3 steps, momentum 0.9, lr changes", [1.0, 0.1, 0.01], 0.9),
    ):
        start, gradients = _tensors(rng, 2), [_tensors(rng, 2) for _ in rates]
        yield Case(
            title,
            observe=partial(_steps, answer, start, gradients, rates, momentum),
            expect={
                "parameters": Close(_torch_steps(start, gradients, rates, momentum or 0.0)),
                "gradients": "kept",
                "velocities": "one a parameter",
                "in place": True,
                "two models in turn": "as alone",
            },
            hints=STEP,
            given={"start": start, "steps": gradients, "rates": rates, "momentum": momentum or 0.0},
            trivial=momentum is None,
        )


def _tensors(rng: random.Random, count: int) -> list[Tensor]:
    """Return `count` float64 tensors of different shapes, with one decimal in each element."""
    import torch

    shapes = [(2, 2), (3,), (1,)][:count]
    return [
        torch.tensor([rng.randint(-99, 99) / 10 for _ in range(torch.Size(shape).numel())])
        .double()
        .reshape(shape)
        for shape in shapes
    ]


def _fresh(start: list[Tensor]) -> list[Tensor]:
    return [p.clone().requires_grad_() for p in start]


def _steps(
    answer: Answer,
    start: list[Tensor],
    gradients: list[list[Tensor]],
    rates: list[float],
    momentum: float | None,
) -> Observed:
    """Run the answer's steps from `start`: first alone, then in turn with a second model's steps.

    If `momentum` is None, the call does not pass `momentum`, and the answer's own default applies.
    """
    import torch

    def stepped(parameters: list[Tensor], own: list[Tensor], lr: float, velocities: object) -> Any:
        if momentum is None:
            return answer(parameters, own, lr, velocities=velocities)
        return answer(parameters, own, lr, momentum, velocities)

    given = [[g.clone() for g in step] for step in gradients]
    parameters, velocities = _fresh(start), None
    views = [p.detach() for p in parameters]
    for step, lr in zip(given, rates, strict=True):
        velocities = stepped(parameters, step, lr, velocities)
    pair, two = [_fresh(start), _fresh(start)], [None, None]
    for step, lr in zip(gradients, rates, strict=True):
        for at, factor in enumerate((1.0, 2.0)):
            own = [factor * g for g in step]
            two[at] = stepped(pair[at], own, lr, two[at])
    kept = all(
        torch.equal(a, b)
        for before, after in zip(gradients, given, strict=True)
        for a, b in zip(before, after, strict=True)
    )
    fits = isinstance(velocities, (list, tuple)) and [v.shape for v in velocities] == [
        p.shape for p in parameters
    ]
    return {
        "parameters": [p.detach() for p in parameters],
        "gradients": "kept" if kept else "changed",
        "velocities": "one a parameter" if fits else "not returned",
        "in place": [v.data_ptr() for v in views] == [p.data_ptr() for p in parameters],
        "two models in turn": "as alone" if same(pair[0], parameters) else "mixed",
    }


def _torch_steps(
    start: list[Tensor], gradients: list[list[Tensor]], rates: list[float], momentum: float
) -> list[Tensor]:
    """Return the parameters after torch.optim.SGD has made the same steps."""
    import torch

    parameters = _fresh(start)
    optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=momentum)
    for step, lr in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        for p, g in zip(parameters, step, strict=True):
            p.grad = g.clone()
        optimizer.step()
    return [p.detach() for p in parameters]


# accumulate


@exercise("accumulate", lab="01", points=3)
def accumulate(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the gradient of a batch that is added up from micro-batches of different lengths."""
    import torch

    for title, lengths, stale in (
        ("1 micro-batch", [4], False),
        ("2 of the same length", [3, 3], False),
        ("lengths 6 and 2", [6, 2], False),
        ("lengths 1, 5 and 2, an old .grad", [1, 5, 2], True),
    ):
        start, batches = _tensors(rng, 3)[1:], [_images(rng, n) for n in lengths]
        whole = _gradients(start, *map(torch.cat, zip(*batches, strict=True)))
        parts = [_gradients(start, *batch) for batch in batches]
        yield Case(
            title,
            observe=partial(_accumulated, answer, start, batches, stale),
            expect={
                "gradients": Close(whole),
                "parameters": "kept",
                "images at a time": sorted(lengths),
                "graphs held": "one at a time",
            },
            hints=PIECES,
            given={"n": len(lengths), "lengths": lengths, "whole": whole, "parts": parts},
            trivial=len(lengths) == 1,
        )


def _images(rng: random.Random, n: int) -> tuple[Tensor, Tensor]:
    """Draw the data of a least-squares problem: x (n, 3) and y (n,)."""
    import torch

    x = torch.tensor([[rng.randint(-9, 9) for _ in range(3)] for _ in range(n)])
    y = torch.tensor([rng.randint(-9, 9) for _ in range(n)])
    return x.double(), y.double()


def _gradients(start: list[Tensor], x: Tensor, y: Tensor) -> list[Tensor]:
    import torch

    parameters = _fresh(start)
    return list(torch.autograd.grad(_loss(parameters, x, y), parameters))


def _loss(parameters: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
    weight, bias = parameters
    return ((x @ weight + bias - y) ** 2).mean()


@dataclass(frozen=True, eq=False)
class _Saved:
    """A tensor that a graph saved for its backward; this object lives as long as the graph."""

    tensor: Tensor


def _accumulated(
    answer: Answer, start: list[Tensor], batches: list[tuple[Tensor, Tensor]], stale: bool
) -> Observed:
    """Observe the gradients, the sizes of the slices passed to `loss`, and the graphs in memory.

    Two graphs may be in memory at the same time: a graph may still be alive while the next is
    built, as after backward(retain_graph=True).
    """
    import torch

    parameters, lengths = _fresh(start), []
    graphs, most = list[WeakSet[_Saved]](), 0
    if stale:
        for p in parameters:
            p.grad = torch.ones_like(p)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        nonlocal most
        most = max(most, sum(map(bool, graphs)))
        lengths.append(len(y))
        graphs.append(WeakSet())

        def pack(tensor: Tensor) -> _Saved:
            saved = _Saved(tensor)
            graphs[-1].add(saved)
            return saved

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved.tensor):
            return _loss(parameters, x, y)

    gradients = answer(loss, parameters, [(x.clone(), y.clone()) for x, y in batches])
    if isinstance(gradients, Iterator):
        return {"returned": type(gradients).__name__}
    detached = [g.detach().clone() for g in gradients]
    held = "one at a time" if most < 2 else f"{most + 1} at a time"
    return {
        "gradients": detached,
        "parameters": "kept" if same([p.detach() for p in parameters], start) else "changed",
        "images at a time": sorted(lengths),  # any order of micro-batches is right
        "graphs held": held,
    }
