"""Parameters with gradients, what happens to them, and whether they are views of the buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
SHAPES = ((2, 3), (4,), (3, 1))
BUCKETS = ((2, 1), (0,))  # places in SHAPES
Step = tuple[Any, ...]  # a method of `Story`, and its arguments: ("backward", 3)


class Story:
    """Parameters with gradients of known values, and what happens to them."""

    def __init__(self, answer: Answer, dtype: str) -> None:
        self.answer, self.parameters = answer, parameters_of(dtype)

    def backward(self, factor: int) -> None:
        """Add to each gradient: factor · (1, 2, 3, ...)."""
        import torch

        total = sum(
            (p * factor * torch.arange(1, p.numel() + 1).reshape(p.shape)).sum()
            for p in self.parameters
        )
        assert isinstance(total, torch.Tensor)
        total.backward()  # type: ignore[no-untyped-call]

    def forget(self, *places: int) -> None:
        """What `zero_grad()` does."""
        for place in places or range(len(SHAPES)):
            self.parameters[place].grad = None

    def build(self) -> None:
        self.buckets = self.answer([[self.parameters[i] for i in bucket] for bucket in BUCKETS])

    def collect(self, *buckets: int) -> None:
        for i in buckets:
            self.buckets.collect(i)

    def seen(self) -> Observed:
        """The flat tensors and the gradients; how much memory they hold, and whether as views."""
        flats = [flat.detach().clone() for flat in self.buckets.flat]
        gradients = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        held = [*self.buckets.flat, *(p.grad for p in self.parameters if p.grad is not None)]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
        memory = f"{sum(storages.values())} bytes, {self._kind_of_memory()}"
        return {"values": [*flats, *gradients], "memory": memory}

    def _kind_of_memory(self) -> str:
        for flat in self.buckets.flat:
            flat.fill_(-7)
        there = [p.grad for p in self.parameters if p.grad is not None]
        views = [view for views in self.buckets.views for view in views]
        shapes = [tuple(view.shape) for view in views]
        if shapes != [SHAPES[place] for bucket in BUCKETS for place in bucket]:
            return "views of other shapes"
        if not all(bool((view == -7).all()) for view in views):
            return "copies"
        return "views" if all(bool((g == -7).all()) for g in there) else "gradients of their own"


def parameters_of(dtype: str) -> list[Any]:
    import torch

    kind = getattr(torch, dtype)
    return [torch.nn.Parameter(torch.zeros(shape, dtype=kind)) for shape in SHAPES]


def play(answer: Answer, dtype: str, steps: Sequence[Step]) -> Observed:
    story = Story(answer, dtype)
    for name, *arguments in steps:
        getattr(story, name)(*arguments)
    return story.seen()


def right_story(dtype: str, factors: Sequence[int], none: Sequence[int]) -> Observed:
    """Gradients of factor · (1, 2, 3, ...); those of `none` are None."""
    import torch

    parameters = parameters_of(dtype)
    size = parameters[0].element_size()
    values = [
        (factor * torch.arange(1, p.numel() + 1)).to(p.dtype).reshape(p.shape)
        for factor, p in zip(factors, parameters, strict=True)
    ]
    flats = [torch.cat([values[place].reshape(-1) for place in b]) for b in BUCKETS]
    gradients = [None if i in none else value for i, value in enumerate(values)]
    memory = f"{sum(flat.numel() * size for flat in flats)} bytes, views"
    return {"values": [*flats, *gradients], "memory": memory}
