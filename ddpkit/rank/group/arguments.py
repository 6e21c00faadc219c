"""Reads facts from the arguments of a collective, which are nested lists of tensors and options."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from ddpkit import torch_private

MOST_SPLITS = 16  # an all-to-all with more parts is recorded without its parts
MOST_NUMBERS = 16  # a record shows the numbers of a message with at most so many elements
REDUCTIONS = {op.value: name for name, op in dist.ReduceOp.RedOpType.__members__.items()}


def tensor(value: object) -> torch.Tensor | None:
    """Return the first tensor in nested lists and tuples, or None."""
    return next(iter(tensors(value)), None)


def tensors(value: object) -> list[torch.Tensor]:
    """Return all tensors in nested lists and tuples."""
    if isinstance(value, torch.Tensor):
        return [value]
    found: list[torch.Tensor] = []
    if isinstance(value, (list, tuple)):
        for item in value:
            if isinstance(item, torch.Tensor):
                found.append(item)
            else:
                found += tensors(item)
    return found


def nbytes(found: torch.Tensor) -> int:
    """Return the number of bytes of a tensor; for a sparse tensor, of its indices and values.

    DDP sums sparse tensors for an embedding with sparse gradients.
    """
    if found.layout is torch.sparse_coo:
        return sum(part.nbytes for part in torch_private.sparse_parts(found))
    return found.nbytes


def numbers(found: torch.Tensor) -> str:
    """Return the distinct numbers in a short message as a text for a picture; else ""."""
    is_short = found.dim() == 1 and 0 < found.numel() <= MOST_NUMBERS
    if not is_short or type(found) is not torch.Tensor or found.device.type != "cpu":
        return ""
    if found.layout is not torch.strided or found.is_complex():
        return ""
    return ", ".join(f"{value:g}" for value in dict.fromkeys(found.tolist()))


def splits(op: str, args: tuple[object, ...], size: int) -> dict[str, tuple[int, ...]]:
    """Return the record's fields "sends" and "takes" for an all_to_all_single, or {}.

    The fields are the numbers of elements that the call sends to, and receives from, each rank.
    Return {} for any other operation; for a large group, because a black box has no room for the
    counts of many ranks; and for splits that torch refuses, because they do not add up to the size
    of the tensor.
    """
    if op != "all_to_all_single" or size > MOST_SPLITS:
        return {}
    sends, takes = _splits_of(op, args, size)
    return {"sends": sends, "takes": takes} if sends and takes else {}


def unequal_parts(
    op: str, args: tuple[object, ...], size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of bytes that an all-to-all sends to, and receives from, each rank.

    Both tuples are empty for an all_to_all_single of equal parts, for any other operation, and for
    splits that torch refuses.
    """
    sends, takes = _splits_of(op, args, size)
    if not (sends and takes) or (op == "all_to_all_single" and len({*sends, *takes}) == 1):
        return (), ()
    each = tensors(args)[0].element_size()
    return tuple(each * part for part in sends), tuple(each * part for part in takes)


def _splits_of(
    op: str, args: tuple[Any, ...], size: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of elements that an all-to-all sends to, and receives from, each rank.

    Both tuples are empty if the arguments do not fit the group.
    """
    if op == "all_to_all_single":
        output, input, takes, sends = args[:4]
        return _numbers_in(input, sends, size), _numbers_in(output, takes, size)
    if op == "all_to_all":  # gloo refuses lists of unequal tensors
        part = tuple(each.numel() for each in args[1])
        return (part, part) if len(part) == size and len({*part}) == 1 else ((), ())
    return (), ()


def _numbers_in(found: torch.Tensor, rows: list[int], size: int) -> tuple[int, ...]:
    """Return the number of elements in each part of a tensor; () if the parts do not fit.

    ``rows`` has the number of rows in each part; an empty list means equal parts."""
    if not rows:
        return (found.numel() // size,) * size
    if len(rows) != size or not found.dim() or sum(rows) != found.shape[0]:
        return ()
    return tuple(found[:1].numel() * each for each in rows)


def on_gpu(found: torch.Tensor | None, options: object) -> bool:
    """True if a call has a CUDA tensor, or is a barrier with options that name a GPU."""
    if found is not None:
        return found.is_cuda
    return getattr(getattr(options, "device", None), "type", "") == "cuda"


def options(args: tuple[object, ...]) -> Any:
    """Return the options object of a call (root, reduction, asynchronous or not), or None."""
    return next((value for value in args if type(value).__name__.endswith("Options")), None)


def reduction(options: Any) -> str:
    """Return the name of the reduction, such as "SUM"; "" for an operation without a reduction."""
    op = getattr(options, "reduceOp", None)
    return "" if op is None else REDUCTIONS[int(getattr(op, "op", op))]


def group_desc(text: str) -> str:
    """Return the user's name of a group: "tp" for c10d's "mesh_tp"; "" for a name made by c10d."""
    if text in ("undefined", "default_pg", "mesh_default"):
        return ""
    return text.removeprefix("mesh_")[:40]


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
