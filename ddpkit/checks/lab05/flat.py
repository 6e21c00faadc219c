"""The inputs and the results of `flatten` and `unflatten`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer

Shapes = tuple[tuple[int, ...], ...]
SETS: tuple[tuple[str, str, Shapes], ...] = (
    ("shapes (2, 2), (3,), ()", "float32", ((2, 2), (3,), ())),
    ("one of shape (4,)", "float32", ((4,),)),
    ("float64, one transposed", "float64", ((2, 3), (1,))),
    ("int64, one without elements", "int64", ((2,), (0, 3), (2, 1, 2))),
)
LARGE = {"float32": 2**12, "float64": 2**25, "int64": 2**54}


def tensors_of(shapes: Shapes, dtype: str, start: int) -> list[Tensor]:
    """Return tensors of ascending whole numbers; a float64 matrix is not contiguous.

    The numbers begin at a large number plus `start`. They need more digits than the next smaller
    dtype has.
    """
    import torch

    tensors = []
    start += LARGE[dtype]
    for shape in shapes:
        size = torch.Size(shape).numel()
        tensor = torch.arange(start, start + size, dtype=getattr(torch, dtype))
        start += size
        if len(shape) == 2 and dtype == "float64":
            tensor = tensor.reshape(shape[::-1]).t()
        tensors.append(tensor.reshape(shape))
    return tensors


def flattened(answer: Answer, tensors: list[Tensor]) -> Observed:
    """Observe the flat tensor before and after changes of its inputs.

    The observations are the flat tensor, the inputs after the call, the flat tensor after the
    inputs have changed ("then"), and the result of a second call ("later").
    """
    import torch

    mine = [tensor.clone() for tensor in tensors]  # a clone keeps the strides of its tensor
    again = list(mine)
    flat = answer(mine)
    if not isinstance(flat, torch.Tensor):
        raise TypeError(f"flatten gave a {type(flat).__name__}, not a tensor")
    seen = {"flat": flat.clone(), "inputs": [tensor.clone() for tensor in mine]}
    for tensor in again:
        tensor += 1
    then = flat.clone()
    answer(again)
    return {**seen, "then": then, "later": flat}


def looked_at_flat(seen: Observed, tensors: list[Tensor]) -> Observed:
    new = "new" if same(seen["later"], seen["flat"]) else "used again"
    return {
        "flat": seen["flat"],
        "memory": new if same(seen["then"], seen["flat"]) else "shared",
        "inputs": "kept" if same(seen["inputs"], tensors) else "changed",
    }


def unflattened(answer: Answer, flat: Tensor, like: list[Tensor]) -> Observed:
    """Observe the pieces, the tensors after the call, and the pieces after adding 1 to `flat`."""
    pieces = answer(flat, like)
    if not isinstance(pieces, list | tuple):
        raise TypeError(f"unflatten gave a {type(pieces).__name__}, not a list")
    seen = {"pieces": [piece.clone() for piece in pieces], "tensors": list(like)}
    flat += 1
    return {**seen, "then": list(pieces)}


def looked_at_pieces(seen: Observed) -> Observed:
    grown = [piece + 1 for piece in seen["pieces"]]
    untouched = all(bool((tensor == -1).all()) for tensor in seen["tensors"])
    return {
        "pieces": seen["pieces"],
        "memory": "views of flat" if same(seen["then"], grown) else "copies",
        "tensors": "kept" if untouched else "changed",
    }
