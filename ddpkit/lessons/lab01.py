"""Lab 01: minibatches, the step of SGD and gradients from pieces, against torch as the oracle.

Numbers are float64 and few, so that every right order of operations prints the same digits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ddpkit.lessons.exercise import Case, Observed, exercise
from ddpkit.lessons.values import Close

Answer = Callable[..., Any]

# minibatches


@exercise("minibatches", lab="01", points=2)
def minibatches(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Every sample once an epoch, in an order that the seed decides."""
    for n, batch_size in ((12, 4), (103, 16), (5, 8), (rng.randrange(200, 300), 32), (1, 1)):
        whole, rest = divmod(n, batch_size)
        yield Case(
            f"{n} in batches of {batch_size}",
            observe=partial(_epoch, answer, n, batch_size, rng.randrange(1000)),
            expect={
                "sizes": [batch_size] * whole + [rest] * (rest > 0),
                "samples": "each once",
                "order": "shuffled" if n > 10 else "any",
                "seed": "decides",
                "global seed": "left alone",
            },
            hint=partial(_epoch_hint, rest=rest),
        )


def _epoch(answer: Answer, n: int, batch_size: int, seed: int) -> Observed:
    import torch

    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    batches = answer(n, batch_size, seed)
    touched = not torch.equal(before, torch.random.get_rng_state())
    order = _numbers(batches)
    torch.manual_seed(1)  # the same seed must give the same order, whatever happened before
    same = _numbers(answer(n, batch_size, seed)) == order
    other = n <= 10 or _numbers(answer(n, batch_size, seed + 1)) != order
    return {
        "sizes": [len(batch) for batch in batches],
        "samples": "each once" if sorted(order) == list(range(n)) else _wrong_samples(order, n),
        "order": "any" if n <= 10 else "shuffled" if order != sorted(order) else "as they come",
        "seed": "decides" if same and other else "ignored" if same else "not enough",
        "global seed": "used" if touched else "left alone",
    }


def _numbers(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def _wrong_samples(order: list[int], n: int) -> str:
    missing = len(set(range(n)) - set(order))
    return f"{missing} missing, {len(order) - len(set(order))} twice"


def _epoch_hint(seen: Observed, rest: int) -> str | None:
    if "error" in seen:
        return None
    if "missing" in seen["samples"]:
        if rest and seen["samples"].endswith(" 0 twice"):
            return "The last batch is left out: it is smaller, and still counts."
        return "Draw without putting back: shuffle all numbers once (torch.randperm), then cut."
    if seen["order"] == "as they come":
        return "The numbers are not shuffled. Digits that stand together may be alike."
    if seen["seed"] == "ignored":
        return "Another seed must give another order: torch.Generator().manual_seed(seed)."
    if seen["seed"] == "not enough":
        return (
            "The same seed must give the same batches, whatever was drawn before: seed your own "
            "torch.Generator, and pass it on as generator=."
        )
    if seen["global seed"] == "used":
        return "torch.manual_seed changes everybody's random numbers: make a torch.Generator."
    return None


# sgd_step


@exercise("sgd_step", lab="01", points=3)
def sgd_step(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Equal to torch.optim.SGD, step after step, with momentum too."""
    for title, rates, momentum in (
        ("1 step", [0.5], 0.0),
        ("3 steps", [0.5, 0.5, 0.5], 0.0),
        ("3 steps, momentum 0.5", [0.1, 0.1, 0.1], 0.5),
        ("3 steps, momentum 0.9, lr changes", [1.0, 0.1, 0.01], 0.9),
    ):
        start, gradients = _tensors(rng, 2), [_tensors(rng, 2) for _ in rates]
        yield Case(
            title,
            observe=partial(_steps, answer, start, gradients, rates, momentum),
            expect={
                "parameters": Close(_torch_steps(start, gradients, rates, momentum)),
                "gradients": "kept",
                "velocities": "one a parameter",
            },
            hint=partial(_step_hint, start, gradients, rates, momentum),
        )


def _tensors(rng: random.Random, count: int) -> list[Any]:
    """`count` float64 tensors of different shapes, with a decimal in each element."""
    import torch

    shapes = [(2, 2), (3,), (1,)][:count]
    return [
        torch.tensor([rng.randint(-99, 99) / 10 for _ in range(torch.Size(shape).numel())])
        .double()
        .reshape(shape)
        for shape in shapes
    ]


def _fresh(start: list[Any]) -> list[Any]:
    return [p.clone().requires_grad_() for p in start]


def _steps(
    answer: Answer, start: list[Any], gradients: list[Any], rates: list[float], momentum: float
) -> Observed:
    import torch

    parameters, velocities = _fresh(start), None
    given = [[g.clone() for g in step] for step in gradients]
    for step, lr in zip(given, rates, strict=True):
        velocities = answer(parameters, step, lr, momentum, velocities)
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
    }


def _torch_steps(
    start: list[Any], gradients: list[Any], rates: list[float], momentum: float
) -> list[Any]:
    """What torch.optim.SGD makes of it."""
    import torch

    parameters = _fresh(start)
    optimizer = torch.optim.SGD(parameters, lr=1.0, momentum=momentum)
    for step, lr in zip(gradients, rates, strict=True):
        optimizer.param_groups[0]["lr"] = lr
        for p, g in zip(parameters, step, strict=True):
            p.grad = g.clone()
        optimizer.step()
    return [p.detach() for p in parameters]


def _variant(
    start: list[Any],
    gradients: list[Any],
    rates: list[float],
    velocity: Callable[[Any, Any, float], Any],
    step: Callable[[Any, float], Any],
) -> list[Any]:
    """A step that some people write: `velocity(v, g, lr)` is kept, `step(v, lr)` subtracted."""
    parameters, velocities = [p.clone() for p in start], [0.0 * p for p in start]
    for given, lr in zip(gradients, rates, strict=True):
        velocities = [velocity(v, g, lr) for v, g in zip(velocities, given, strict=True)]
        parameters = [p - step(v, lr) for p, v in zip(parameters, velocities, strict=True)]
    return parameters


def _step_hint(
    start: list[Any],
    gradients: list[Any],
    rates: list[float],
    momentum: float,
    seen: Observed,
) -> str | None:
    m = momentum
    if "error" in seen:
        text = str(seen["error"])
        if "requires grad" in text:
            return "The step is not to be differentiated: put it under `with torch.no_grad():`."
        if "NoneType" in text:
            return "At the first step velocities is None: begin with zeros."
        return None
    variants: list[tuple[str, Callable[[Any, Any, float], Any], Callable[[Any, float], Any]]] = [
        ("Downhill is against the gradient: subtract.", lambda v, g, lr: m * v + g,
         lambda v, lr: -lr * v),
        ("The step must be lr times the velocity; lr is not used.", lambda v, g, lr: m * v + g,
         lambda v, lr: v),
        ("torch does not damp the gradient: m * v + g, not m * v + (1 - m) * g.",
         lambda v, g, lr: m * v + (1 - m) * g, lambda v, lr: lr * v),
        ("Multiply by lr when you take the step, not inside the velocity: lr may change.",
         lambda v, g, lr: m * v + lr * g, lambda v, lr: v),
    ]  # fmt: skip
    got = seen["parameters"]
    if seen["velocities"] == "not returned":
        return "Return the new velocities, one for each parameter: the next step needs them."
    if _near(got, start):
        return "The parameters have not changed. Change them in place: p -= ..., not p = p - ..."
    if seen["gradients"] == "changed":
        return "The gradients that you were given have changed: a velocity must be a new tensor."
    for hint, velocity, step in variants:
        if _near(got, _variant(start, gradients, rates, velocity, step)):
            return hint
    if m and _near(
        got, _variant(start, gradients, rates, lambda v, g, lr: g, lambda v, lr: lr * v)
    ):
        return "Momentum has no effect: add momentum times the velocity of the step before."
    return None


def _near(one: list[Any], other: list[Any]) -> bool:
    import torch

    return all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(one, other, strict=True))


# accumulate


@exercise("accumulate", lab="01", points=3)
def accumulate(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The gradient of a batch from those of its micro-batches, which may differ in length."""
    for title, lengths, stale in (
        ("1 micro-batch", [4], False),
        ("2 of the same length", [3, 3], False),
        ("lengths 6 and 2", [6, 2], False),
        ("lengths 1, 5 and 2, an old .grad", [1, 5, 2], True),
    ):
        problem = _Problem(rng, lengths)
        yield Case(
            title,
            observe=partial(problem.observe, answer, stale),
            expect={"gradients": Close(problem.gradients()), "images at a time": lengths},
            hint=problem.hint,
        )


class _Problem:
    """Least squares on a few numbers, in micro-batches of the given lengths."""

    def __init__(self, rng: random.Random, lengths: list[int]) -> None:
        import torch

        self.lengths = lengths
        self.start = _tensors(rng, 3)[1:]  # weight (3,), bias (1,)
        self.batches = [
            (
                torch.tensor([[rng.randint(-9, 9) for _ in range(3)] for _ in range(n)]).double(),
                torch.tensor([rng.randint(-9, 9) for _ in range(n)]).double(),
            )
            for n in lengths
        ]

    @staticmethod
    def loss(parameters: list[Any], x: Any, y: Any) -> Any:
        weight, bias = parameters
        return ((x @ weight + bias - y) ** 2).mean()

    def gradients(self) -> list[Any]:
        """Of all images at once."""
        import torch

        parameters = _fresh(self.start)
        x, y = (torch.cat(parts) for parts in zip(*self.batches, strict=True))
        return list(torch.autograd.grad(self.loss(parameters, x, y), parameters))

    def parts(self) -> list[list[Any]]:
        """Of each micro-batch."""
        import torch

        parameters = _fresh(self.start)
        return [
            list(torch.autograd.grad(self.loss(parameters, x, y), parameters))
            for x, y in self.batches
        ]

    def observe(self, answer: Answer, stale: bool) -> Observed:
        import torch

        parameters, lengths = _fresh(self.start), []
        if stale:
            for p in parameters:
                p.grad = torch.ones_like(p)

        def loss(x: Any, y: Any) -> Any:
            lengths.append(len(y))
            return self.loss(parameters, x, y)

        gradients = answer(loss, parameters, [(x.clone(), y.clone()) for x, y in self.batches])
        detached = [g.detach().clone() for g in gradients]
        return {"gradients": detached, "images at a time": lengths}

    def hint(self, seen: Observed) -> str | None:
        if "error" in seen:
            return None
        got, parts, n = seen["gradients"], self.parts(), len(self.lengths)
        if seen["images at a time"] == [sum(self.lengths)] and n > 1:
            return "All images went through the model at once: it is one micro-batch at a time."
        sums = [sum(column) for column in zip(*parts, strict=True)]
        if n > 1 and _near(got, sums):
            return "The gradients are added up. Of mean losses, take the (weighted) mean."
        if n > 1 and _near(got, parts[-1]):
            return "Only the last micro-batch counts: add to the total, do not replace it."
        if n > 1 and _near(got, [each / n for each in sums]):
            return (
                "A plain mean gives each image of the short micro-batch too much weight. "
                "Weight each gradient by its share of the images."
            )
        weighted = [
            sum(part * length for part, length in zip(column, self.lengths, strict=True))
            for column in zip(*parts, strict=True)
        ]
        if _near(got, weighted):
            return "That is the gradient of the summed loss: divide by the number of all images."
        if _near(got, [g + 1 for g in self.gradients()]):
            return "p.grad held something already: backward() adds to it. Clear it first."
        return None
