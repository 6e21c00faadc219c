"""What `flatten` and `unflatten` are given, and what they made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.values import digest

Answer = Callable[..., Any]
Shapes = tuple[tuple[int, ...], ...]
SETS: tuple[tuple[str, str, Shapes], ...] = (
    ("shapes (2, 2), (3,), ()", "float32", ((2, 2), (3,), ())),
    ("one of shape (4,)", "float32", ((4,),)),
    ("float64, one transposed", "float64", ((2, 3), (1,))),
    ("int64, one without elements", "int64", ((2,), (0, 3), (2, 1, 2))),
)


def tensors_of(shapes: Shapes, dtype: str, start: int) -> list[Any]:
    """Numbers from `start` on; the first tensor of two dimensions is not contiguous."""
    import torch

    tensors = []
    for shape in shapes:
        size = torch.Size(shape).numel()
        tensor = torch.arange(start, start + size, dtype=getattr(torch, dtype))
        start += size
        if len(shape) == 2 and dtype == "float64":
            tensor = tensor.reshape(shape[::-1]).t()
        tensors.append(tensor.reshape(shape))
    return tensors


def flattened(answer: Answer, tensors: list[Any]) -> Observed:
    before = digest(tensors)
    flat = answer(tensors)
    own = {t.untyped_storage().data_ptr() for t in tensors if t.numel()}
    return {
        "flat": flat,
        "memory": "shared" if flat.untyped_storage().data_ptr() in own else "new",
        "inputs": "kept" if digest(tensors) == before else "changed",
    }


def unflattened(answer: Answer, flat: Any, like: list[Any]) -> Observed:
    import torch

    given = digest(like)
    pieces = answer(flat, like)
    if not isinstance(pieces, list | tuple):
        raise TypeError(f"unflatten gave a {type(pieces).__name__}, not a list")
    before = [piece.clone() for piece in pieces]
    flat += 1
    moved = all(torch.equal(a + 1, b) for a, b in zip(before, pieces, strict=True))
    return {
        "pieces": before,
        "memory": "views of flat" if moved else "copies",
        "tensors": "kept" if digest(like) == given else "changed",
    }
