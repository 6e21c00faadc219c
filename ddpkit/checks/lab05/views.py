"""Lab 05: are the gradients views of the bucket, and is memory held once?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
SHAPES = ((2, 3), (4,), (3, 1))
BUCKETS = ((2, 1), (0,))  # places in SHAPES
WRONG_TENSOR = (
    "flat[i] is a 1-D tensor of the dtype of bucket i's parameters, with room for all their "
    "elements."
)


class Story:
    """Parameters with gradients of known values, and what happens to them."""

    def __init__(self, dtype: str = "float32") -> None:
        import torch

        kind = getattr(torch, dtype)
        self.parameters = [
            torch.nn.Parameter(torch.zeros(shape, dtype=kind), requires_grad=True)
            for shape in SHAPES
        ]

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

    def build(self, answer: Answer) -> Any:
        return answer([[self.parameters[place] for place in bucket] for bucket in BUCKETS])

    def seen(self, buckets: Any) -> Observed:
        """The flat tensors and the gradients; how much memory they hold, and whether as views."""
        flats = [flat.detach().clone() for flat in buckets.flat]
        gradients = [None if p.grad is None else p.grad.clone() for p in self.parameters]
        held = [*buckets.flat, *(p.grad for p in self.parameters if p.grad is not None)]
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in held}
        memory = f"{sum(storages.values())} bytes, {self._of_views(buckets)}"
        return {"values": [*flats, *gradients], "memory": memory}

    def _of_views(self, buckets: Any) -> str:
        for flat in buckets.flat:
            flat.fill_(-7)
        there = [p.grad for p in self.parameters if p.grad is not None]
        views = [view for views in buckets.views for view in views]
        shapes = [tuple(view.shape) for view in views]
        if shapes != [SHAPES[place] for bucket in BUCKETS for place in bucket]:
            return "views of other shapes"
        if not all(bool((view == -7).all()) for view in views):
            return "copies"
        return "views" if all(bool((g == -7).all()) for g in there) else "gradients of their own"


def right_story(dtype: str, factors: tuple[int, ...], none: tuple[int, ...] = ()) -> Observed:
    """Gradients of factor · (1, 2, 3, ...); those of `none` are None."""
    import torch

    parameters = Story(dtype).parameters
    size = parameters[0].element_size()
    values = [
        (factor * torch.arange(1, p.numel() + 1)).to(p.dtype).reshape(p.shape)
        for factor, p in zip(factors, parameters, strict=True)
    ]
    flats = [torch.cat([values[place].reshape(-1) for place in b]) for b in BUCKETS]
    gradients = [None if i in none else value for i, value in enumerate(values)]
    memory = f"{sum(flat.numel() * size for flat in flats)} bytes, views"
    return {"values": [*flats, *gradients], "memory": memory}


def hint(seen: Observed, expected: Observed) -> str | None:
    import torch

    if "error" in seen:
        return WRONG_TENSOR if "dtype" in str(seen["error"]) else None
    flats, gradients = seen["values"][: len(BUCKETS)], seen["values"][len(BUCKETS) :]
    right, wanted = expected["values"][: len(BUCKETS)], expected["values"][len(BUCKETS) :]
    if [(f.shape, f.dtype) for f in flats] != [(f.shape, f.dtype) for f in right]:
        return WRONG_TENSOR
    for one, other in zip(gradients, wanted, strict=True):
        if other is None and one is not None:
            return "A gradient that is None stays None: only its place in flat[i] becomes 0."
        if other is not None and not torch.equal(one, other):
            return (
                "A gradient has lost its values. Copy them into the view, before the view takes "
                "the gradient's place."
            )
    if any(not torch.equal(a, b) for a, b in zip(flats, right, strict=True)):
        if any(gradient is None for gradient in gradients):
            return "flat[i] still holds old values where the gradient is None: set them to 0."
        if not any(bool(flat.any()) for flat in flats):
            return "Gradients that are there already have to be collected when buckets are made."
        return "flat[i] must hold the values of its gradients, in the order of its parameters."
    if "copies" in seen["memory"] or "shapes" in seen["memory"]:
        return "views[i] are views of flat[i] (`unflatten` makes them), shaped as the parameters."
    return (
        f"Held are {seen['memory']}, where {expected['memory']} would do: p.grad has memory of "
        "its own. Let it be the view: p.grad = view."
    )
