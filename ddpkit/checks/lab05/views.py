"""Parameters with gradients in buckets: the steps of a case, and the memory of the gradients."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from torch.nn import Parameter

    from ddpkit.exercises.guard import Answer

NUMBER = 2  # number of buckets
Step = tuple[Any, ...]  # a method of `Story`, and its arguments: ("backward", 3)


@dataclass(frozen=True)
class Layout:
    """The shapes of the parameters, and the parameters of each bucket."""

    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    buckets: tuple[tuple[int, ...], ...]  # places in `shapes`

    def parameters(self) -> list[Parameter]:
        import torch

        kind = getattr(torch, self.dtype)
        return [torch.nn.Parameter(torch.zeros(shape, dtype=kind)) for shape in self.shapes]


def drawn_layout(rng: random.Random, dtype: str) -> Layout:
    """Draw a layout: three parameters, divided between two buckets."""
    a, b, c = (rng.randrange(2, 5) for _ in range(3))
    first, *others = rng.sample(range(3), 3)
    return Layout(
        dtype,
        tuple(rng.sample([(a, b), (c + 3,), (b + 2, 1)], 3)),
        rng.choice(((tuple(others), (first,)), ((first,), tuple(others)))),
    )


class Story:
    """The parameters of a case and its steps; the steps give the gradients known values."""

    def __init__(self, answer: Answer, layout: Layout) -> None:
        self.answer, self.layout, self.parameters = answer, layout, layout.parameters()
        self.others = "kept"  # state of all buckets except i, after collect(i)

    def backward(self, factor: int) -> None:
        """Add factor · (1, 2, 3, ...) to each gradient."""
        import torch

        total = sum(
            (p * factor * torch.arange(1, p.numel() + 1).reshape(p.shape)).sum()
            for p in self.parameters
        )
        assert isinstance(total, torch.Tensor)
        total.backward()  # type: ignore[no-untyped-call]

    def forget(self, *places: int) -> None:
        """Set the gradients of the parameters `places`, or of all parameters, to None.

        `zero_grad()` does the same.
        """
        for place in places or range(len(self.parameters)):
            self.parameters[place].grad = None

    def build(self) -> None:
        buckets = [[self.parameters[i] for i in bucket] for bucket in self.layout.buckets]
        self.buckets = self.answer(buckets)

    def collect(self, *buckets: int) -> None:
        """Call collect(i) for each bucket i, and note any change in a different bucket."""
        for i in buckets:
            others = [j for j in range(NUMBER) if j != i]
            flats = [self.buckets.flat[j].clone() for j in others]
            gradients = [self.parameters[k].grad for j in others for k in self.layout.buckets[j]]
            self.buckets.collect(i)
            after = [self.parameters[k].grad for j in others for k in self.layout.buckets[j]]
            moved = any(a is not b for a, b in zip(gradients, after, strict=True))
            if moved or not same([self.buckets.flat[j] for j in others], flats):
                self.others = "changed"

    def seen(self) -> Observed:
        """Observe the flat tensors, the gradients and their bytes in memory.

        Afterwards all flat tensors are filled with -7, and the views and gradients are observed
        again.
        """
        flats = [flat.detach().clone() for flat in self.buckets.flat]
        gradients = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        held = [*self.buckets.flat, *(p.grad for p in self.parameters if p.grad is not None)]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
        for flat in self.buckets.flat:
            flat.fill_(-7)
        return {
            "values": [*flats, *gradients],
            "bytes": sum(storages.values()),
            "views": [view for views in self.buckets.views for view in views],
            "gradients": [p.grad for p in self.parameters if p.grad is not None],
            "other buckets": self.others,
        }


def looked_at(layout: Layout, seen: Observed) -> Observed:
    """Replace the memory observations by one text: the bytes and the kind of memory."""
    memory = f"{seen['bytes']} bytes, {_kind_of_memory(layout, seen)}"
    return {"values": seen["values"], "memory": memory, "other buckets": seen["other buckets"]}


def _kind_of_memory(layout: Layout, seen: Observed) -> str:
    shapes = [tuple(view.shape) for view in seen["views"]]
    if shapes != [layout.shapes[place] for bucket in layout.buckets for place in bucket]:
        return "views of other shapes"
    if not all(bool((view == -7).all()) for view in seen["views"]):
        return "copies"
    own = not all(bool((g == -7).all()) for g in seen["gradients"])
    return "gradients of their own" if own else "views"


def play(answer: Answer, layout: Layout, steps: Sequence[Step]) -> Observed:
    story = Story(answer, layout)
    for name, *arguments in steps:
        getattr(story, name)(*arguments)
    return story.seen()


def places(answer: Answer, on_meta: Sequence[bool]) -> Observed:
    """Observe the devices of the flat tensors, with a bucket for each item of `on_meta`.

    The parameters of a bucket are on the device "meta" or on the CPU.
    """
    import torch

    devices = ["meta" if each else "cpu" for each in on_meta]
    buckets = [[torch.nn.Parameter(torch.ones(2, 3, device=device))] for device in devices]
    return {"devices": [str(flat.device) for flat in answer(buckets).flat]}


def right_story(layout: Layout, factors: Sequence[int], none: Sequence[int]) -> Observed:
    """Return the right observations: the gradient of parameter i is `factors[i]` · (1, 2, 3, ...).

    The gradients with numbers in `none` are None.
    """
    import torch

    parameters = layout.parameters()
    size = parameters[0].element_size()
    values = [
        (factor * torch.arange(1, p.numel() + 1)).to(p.dtype).reshape(p.shape)
        for factor, p in zip(factors, parameters, strict=True)
    ]
    flats = [torch.cat([values[place].reshape(-1) for place in b]) for b in layout.buckets]
    gradients = [None if i in none else value for i, value in enumerate(values)]
    memory = f"{sum(flat.numel() * size for flat in flats)} bytes, views"
    return {"values": [*flats, *gradients], "memory": memory, "other buckets": "kept"}
