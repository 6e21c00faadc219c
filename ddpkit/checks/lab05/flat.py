"""Lab 05: what `flatten` and `unflatten` are given, what they made of it, and what to say."""

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


def flat_hint(expected: Any, seen: Observed) -> str | None:
    if "error" in seen:
        text = str(seen["error"])
        if "view" in text:
            return "A transposed tensor has no view in one dimension: reshape copies if it must."
        if "size" in text or "dimension" in text:
            return "torch.cat joins tensors of one dimension: make each 1-D first."
        return None
    flat = seen["flat"]
    if flat.shape != expected.shape:
        return f"All {expected.numel()} elements in one dimension, please."
    if flat.dtype != expected.dtype:
        return (
            "The flat tensor has the dtype of the tensors: no float(), no detour over Python's "
            "numbers."
        )
    if sorted(flat.tolist()) == sorted(expected.tolist()) and flat.tolist() != expected.tolist():
        return "All elements are there, but not in the order of the tensors."
    if seen["memory"] == "shared":
        return "One tensor too must be copied: later its bucket is changed, and it is not."
    return None


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


def pieces_hint(wanted: list[Any], seen: Observed) -> str | None:
    if "error" in seen:
        if "invalid for input of size" in str(seen["error"]):
            return "A piece has as many elements as its tensor: cut by numel()."
        if "not a list" in str(seen["error"]):
            return "Give back a list: a generator is empty for who goes over it again."
        return None
    pieces = seen["pieces"]
    if seen["tensors"] == "changed":
        return "`tensors` only tell the shapes. Give back views of flat; copy nothing into them."
    if len(pieces) != len(wanted):
        return f"{len(wanted)} tensors ask for {len(wanted)} pieces, not {len(pieces)}."
    if [p.shape for p in pieces] != [w.shape for w in wanted]:
        return "Each piece has the shape of its tensor: view(tensor.shape)."
    if seen["memory"] == "copies":
        return "The pieces are copies: what is written to flat does not show in them. Slice, view."
    if any(p.tolist() != w.tolist() for p, w in zip(pieces, wanted, strict=True)):
        return "Each piece begins in flat where the one before it ends."
    return None
