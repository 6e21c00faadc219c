"""`decode`: rebuilds the values in a claim, which is JSON that a student's code may have forged.

Types, sizes and depth of the JSON are not trusted. `ddpkit.grade.inside.claims` writes honest
claims, but a student's code can write any text.
"""

from __future__ import annotations

import base64
from typing import Any

from ddpkit.errors import LessonError
from ddpkit.exercises.values import DEPTH, SCALARS, Opaque


def decode(claim: Any, depth: int = 0) -> Any:
    """Return the value that a claim describes, with tensors and arrays rebuilt.

    Raises LessonError if `encode` cannot have made the claim.
    """
    if claim is None or isinstance(claim, bool):
        return claim
    try:
        return _decode(claim, depth)
    except (ValueError, TypeError, KeyError, RuntimeError, OverflowError, AttributeError) as error:
        raise LessonError(f"The data from the sandbox cannot be decoded: {error}.") from None


def _decode(claim: Any, depth: int) -> Any:
    if depth > 2 * DEPTH or not isinstance(claim, list):
        raise ValueError("the data have the wrong form")
    match claim:
        case ["i", str(text)]:
            return int(text, 16)
        case ["f", str(text)]:
            return float.fromhex(text)
        case ["s", str(text)]:
            return text
        case ["b", str(text)]:
            return base64.b64decode(text, validate=True)
        case ["l", list(items)]:
            return [decode(each, depth + 1) for each in items]
        case ["t", list(items)]:
            return tuple(decode(each, depth + 1) for each in items)
        case ["d", list(items)]:
            return {_key(decode(k, depth + 1)): decode(v, depth + 1) for k, v in items}
        case ["T", ("torch" | "numpy") as library, str(dtype), list(shape), str(data)]:
            return _tensor(library, dtype, shape, base64.b64decode(data, validate=True))
        case ["o", str(name)]:
            return Opaque(name[:200])
        case _:
            raise ValueError("the kind of the data is unknown")


def _key(key: Any) -> Any:
    if type(key) not in SCALARS:
        raise ValueError("a dict's key is not a scalar")
    return key


def _tensor(library: str, dtype: str, shape: list[Any], data: bytes) -> Any:
    import torch

    kind = getattr(torch, dtype)
    if not isinstance(kind, torch.dtype) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("a tensor's dtype or shape is wrong")
    flat = torch.frombuffer(bytearray(data), dtype=kind) if data else torch.empty(0, dtype=kind)
    tensor = flat.reshape(shape)
    return tensor.numpy() if library == "numpy" else tensor
