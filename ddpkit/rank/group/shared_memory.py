"""Refuses collectives that would overwrite their own outputs, or their inputs before sending them.

Outputs that share memory overwrite each other: `[t] * n` holds one tensor n times, so every entry
of the list ends with the value of the last rank. A script for NCCL may repeat an output beside
different outputs.

An output that shares memory with an input may overwrite the input before it is sent. Two kinds of
such calls are allowed: calls in which the backend first copies the inputs, and calls that work in
place, in which the shared memory is the rank's own part of the data. FSDP makes calls of the second
kind: it gathers from a part of the output, and reduces into a part of the input.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeAlias

import torch

from ddpkit.rank.group import layout

# Calls in which a backend writes outputs while it still reads inputs.
OVERWRITTEN_ON_GLOO = ("scatter", "reduce_scatter", "all_to_all_single")
# NCCL itself copies the inputs of reduce_scatter. The call is listed because gloo, which may do
# NCCL's work, overwrites them.
OVERWRITTEN_ON_NCCL = (
    *OVERWRITTEN_ON_GLOO,
    *("gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all"),
)
GATHERS = ("gather", "all_gather_into_tensor")  # calls with an output that has a part of each rank
EXCHANGES = ("all_to_all", "all_to_all_single")
Place: TypeAlias = tuple[int, int]  # addresses of the first byte, and of the byte after the last


def check(op: str, args: Sequence[object], rank: int, size: int, as_nccl: bool) -> None:
    """Raise ValueError for a collective that overwrites its own outputs or inputs.

    op       torch.distributed's name of the collective
    args     the arguments of the group's method
    rank     this rank's number in the group
    size     the number of ranks in the group
    as_nccl  True if NCCL executes the call, or if the script has requested NCCL
    """
    if size == 1 or op in layout.IN_PLACE:
        return
    outputs = layout.strided(args[:1])
    if len(outputs) > 1 and (shared := _shared(_once(outputs) if as_nccl else outputs)) is not None:
        raise ValueError(
            f"{op}: outputs {shared[0]} and {shared[1]} share memory, so one overwrites the other. "
            "Give each output its own memory, as in [torch.empty_like(x) for _ in "
            f"range({len(outputs)})]."
        )
    if op in (OVERWRITTEN_ON_NCCL if as_nccl else OVERWRITTEN_ON_GLOO):
        _check_inputs(op, outputs, layout.strided(args[1:2]), rank, size)


def _check_inputs(
    op: str, outputs: list[torch.Tensor], inputs: list[torch.Tensor], rank: int, size: int
) -> None:
    """Raise ValueError if an output shares memory with an input, unless the call works in place."""
    pairs = [(_place(output), _place(input)) for output in outputs for input in inputs]
    if not any(one and other and _overlap(one, other) for one, other in pairs):
        return
    remedy = ""
    if op not in EXCHANGES:
        whole, (part, *_) = (outputs, inputs) if op in GATHERS else (inputs, outputs)
        parts = [_place(each) for each in whole]
        if len(parts) == 1 and parts[0]:  # one tensor with the parts of all ranks
            start, end = parts[0]
            ends = [start + i * (end - start) // size for i in range(size + 1)]
            parts = list(itertools.pairwise(ends))
        same = [number for number, place in enumerate(parts) if place == _place(part)]
        # A scatter may send one tensor to every rank, and the root may keep it.
        if rank in same and (op == "scatter" or same == [rank]):
            return
        into, of = ("from", "output") if op in GATHERS else ("into", "input")
        remedy = f", or call {op} {into} this rank's own part of the {of}"
    raise ValueError(
        f"{op}: an output shares memory with an input, so the input may be overwritten before it "
        f"is sent. Give the output its own memory{remedy}."
    )


def _once(outputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return the outputs without repetitions, or all outputs if they are one tensor.

    Optimizers such as Muon fill the last list of parameters up with one tensor: `[t] * missing`.
    """
    different = list({id(each): each for each in outputs}.values())
    return different if len(different) > 1 else outputs


def _shared(tensors: list[torch.Tensor]) -> tuple[int, int] | None:
    """Return the indices of two tensors that share memory; None if no two tensors share memory.

    Tensors with gaps, such as two columns of a matrix, can have overlapping address ranges and yet
    share no element. Two such tensors count as sharing memory only if they have the same address,
    shape and strides.
    """
    known: dict[tuple[object, ...], int] = {}
    for number, each in enumerate(tensors):
        first = known.setdefault((each.data_ptr(), each.shape, each.stride()), number)
        if first != number and each.numel():
            return first, number
    places = [(place, number) for number, each in enumerate(tensors) if (place := _place(each))]
    places.sort()
    for (one, first), (other, second) in itertools.pairwise(places):
        if _overlap(one, other):
            return min(first, second), max(first, second)
    return None


def _place(tensor: torch.Tensor) -> Place | None:
    """Return the address range of a tensor without gaps; None if it has gaps or no elements."""
    if not tensor.numel() or not (tensor.is_contiguous() or layout.is_dense(tensor)):
        return None
    start = tensor.data_ptr()
    return start, start + tensor.nbytes


def _overlap(one: Place, other: Place) -> bool:
    return one[0] < other[1] and other[0] < one[1]
