"""Collectives of tensors in every layout, with the promised values."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch
import torch.distributed as dist

Tensors: TypeAlias = list[torch.Tensor]
Case: TypeAlias = Callable[
    [], tuple[Tensors, Tensors]
]  # the received values, and the promised values


def gaps(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of `x` with a gap behind each element."""
    wide = torch.full((*x.shape, 2), -9.0)
    wide[..., 0] = x
    return wide[..., 0]


def transposed(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of `x` with contiguous columns."""
    return x.t().contiguous().t()


def channels_last(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def values(rank: int, part: int = 0) -> torch.Tensor:
    """Return a part of a rank's input."""
    return torch.arange(24.0).view(4, 6) + 1000 * rank + 100 * part


LAYOUTS = {"contiguous": torch.clone, "gaps": gaps, "transposed": transposed}


def cases() -> Iterator[tuple[str, Case]]:
    """Yield every collective with tensors of every layout, on two ranks."""
    for (one, first), (other, second), (third, last) in itertools.product(
        LAYOUTS.items(), repeat=3
    ):
        for name, case in calls_of_three(first, second, last):
            yield f"{name}: {one}, {other}, {third}", case
        if first is second:
            for name, case in calls_of_two(first, last):
                yield f"{name}: {one}, {third}", case
        if first is second is last:
            for name, case in calls_of_one(first):
                yield f"{name}: {one}", case


def calls_of_one(lay: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[tuple[str, Case]]:
    rank = dist.get_rank()
    total = values(0) + values(1)

    def all_reduce() -> tuple[Tensors, Tensors]:
        dist.all_reduce(x := lay(values(rank)))
        return [x], [total]

    def all_reduce_coalesced() -> tuple[Tensors, Tensors]:
        dist.all_reduce_coalesced(many := [lay(values(rank)), lay(values(rank))])
        return many, [total, total]

    def broadcast() -> tuple[Tensors, Tensors]:
        dist.broadcast(x := lay(values(rank)), 0)
        return [x], [values(0)]

    def reduce() -> tuple[Tensors, Tensors]:
        dist.reduce(x := lay(values(rank)), 0)
        return ([x], [total]) if rank == 0 else ([], [])

    for case in (all_reduce, all_reduce_coalesced, broadcast, reduce):
        yield case.__name__, case


def calls_of_two(
    lay_input: Callable[[torch.Tensor], torch.Tensor],
    lay_output: Callable[[torch.Tensor], torch.Tensor],
) -> Iterator[tuple[str, Case]]:
    rank = dist.get_rank()
    parts = torch.cat([values(rank, 0), values(rank, 1)])

    def all_gather_into_tensor() -> tuple[Tensors, Tensors]:
        output = lay_output(torch.zeros(8, 6))
        dist.all_gather_into_tensor(output, lay_input(values(rank)))
        return [output], [torch.cat([values(0), values(1)])]

    def reduce_scatter_tensor() -> tuple[Tensors, Tensors]:
        output = lay_output(torch.zeros(4, 6))
        dist.reduce_scatter_tensor(output, lay_input(parts))
        return [output], [values(0, rank) + values(1, rank)]

    def all_to_all_single() -> tuple[Tensors, Tensors]:
        output = lay_output(torch.zeros(8, 6))
        dist.all_to_all_single(output, lay_input(parts))
        return [output], [torch.cat([values(0, rank), values(1, rank)])]

    for case in (all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single):
        yield case.__name__, case


def calls_of_three(
    first: Callable[[torch.Tensor], torch.Tensor],
    second: Callable[[torch.Tensor], torch.Tensor],
    last: Callable[[torch.Tensor], torch.Tensor],
) -> Iterator[tuple[str, Case]]:
    """Yield calls with a list of two tensors in two layouts, and a third tensor."""
    rank = dist.get_rank()

    def all_gather() -> tuple[Tensors, Tensors]:
        outputs = [first(torch.zeros(4, 6)), second(torch.zeros(4, 6))]
        dist.all_gather(outputs, last(values(rank)))
        return outputs, [values(0), values(1)]

    def gather() -> tuple[Tensors, Tensors]:
        outputs = [first(torch.zeros(4, 6)), second(torch.zeros(4, 6))] if rank == 0 else None
        dist.gather(last(values(rank)), outputs)
        return (outputs, [values(0), values(1)]) if outputs else ([], [])

    def scatter() -> tuple[Tensors, Tensors]:
        output = last(torch.zeros(4, 6))
        dist.scatter(output, [first(values(0)), second(values(1))] if rank == 0 else None)
        return [output], [values(rank)]

    def reduce_scatter() -> tuple[Tensors, Tensors]:
        output = last(torch.zeros(4, 6))
        dist.reduce_scatter(output, [first(values(rank, 0)), second(values(rank, 1))])
        return [output], [values(0, rank) + values(1, rank)]

    def all_to_all() -> tuple[Tensors, Tensors]:
        outputs = [last(torch.zeros(4, 6)), last(torch.zeros(4, 6))]
        dist.all_to_all(outputs, [first(values(rank, 0)), second(values(rank, 1))])
        return outputs, [values(0, rank), values(1, rank)]

    for case in (all_gather, gather, scatter, reduce_scatter, all_to_all):
        yield case.__name__, case


def calls_that_share_memory() -> Iterator[tuple[str, Case]]:
    """Yield calls with outputs in the memory of other outputs or of inputs; some are in place."""
    rank, other = dist.get_rank(), 1 - dist.get_rank()
    mine, others = slice(4 * rank, 4 * rank + 4), slice(4 * other, 4 * other + 4)

    def same_outputs_of_all_gather() -> tuple[Tensors, Tensors]:
        dist.all_gather(outputs := [torch.zeros(4, 6)] * 2, values(rank))
        return outputs, [values(0), values(1)]

    def overlapping_outputs_of_all_gather() -> tuple[Tensors, Tensors]:
        one = torch.zeros(6, 6)
        dist.all_gather(outputs := [one[:4], one[2:]], values(rank))
        return outputs, [values(0), values(1)]

    def same_outputs_of_gather() -> tuple[Tensors, Tensors]:
        outputs = [torch.zeros(4, 6)] * 2 if rank == 0 else None
        dist.gather(values(rank), outputs)
        return (outputs, [values(0), values(1)]) if outputs else ([], [])

    def same_outputs_of_all_to_all() -> tuple[Tensors, Tensors]:
        outputs = [torch.zeros(4, 6)] * 2
        dist.all_to_all(outputs, [values(rank, 0), values(rank, 1)])
        return outputs, [values(0, rank), values(1, rank)]

    def all_gather_from_an_output(of: int) -> tuple[Tensors, Tensors]:
        outputs = [torch.zeros(4, 6), torch.zeros(4, 6)]
        outputs[of].copy_(values(rank))
        dist.all_gather(outputs, outputs[of])
        return outputs, [values(0), values(1)]

    def all_gather_into_tensor_from_a_part(of: slice) -> tuple[Tensors, Tensors]:
        output = torch.zeros(8, 6)
        output[of] = values(rank)
        dist.all_gather_into_tensor(output, output[of])
        return [output], [torch.cat([values(0), values(1)])]

    def reduce_scatter_tensor_into_a_part(of: slice) -> tuple[Tensors, Tensors]:
        input = torch.cat([values(rank, 0), values(rank, 1)])
        dist.reduce_scatter_tensor(input[of], input)
        return [input[of]], [values(0, rank) + values(1, rank)]

    def reduce_scatter_into_an_input(of: int) -> tuple[Tensors, Tensors]:
        inputs = [values(rank, 0), values(rank, 1)]
        dist.reduce_scatter(inputs[of], inputs)
        return [inputs[of]], [values(0, rank) + values(1, rank)]

    def scatter_into_an_input(of: int) -> tuple[Tensors, Tensors]:
        inputs = [values(0), values(1)]
        output = inputs[of] if rank == 0 else torch.zeros(4, 6)
        dist.scatter(output, inputs if rank == 0 else None)
        return [output], [values(rank)]

    def scatter_of_one_tensor() -> tuple[Tensors, Tensors]:
        output = torch.zeros(4, 6)
        dist.scatter(output, [values(0)] * 2 if rank == 0 else None)
        return [output], [values(0)]

    def all_to_all_single_into_its_input() -> tuple[Tensors, Tensors]:
        both = torch.cat([values(rank, 0), values(rank, 1)])
        dist.all_to_all_single(both, both)
        return [both], [torch.cat([values(0, rank), values(1, rank)])]

    def all_to_all_into_its_inputs() -> tuple[Tensors, Tensors]:
        both = [values(rank, 0), values(rank, 1)]
        dist.all_to_all(both, both)
        return both, [values(0, rank), values(1, rank)]

    def gather_into_columns() -> tuple[Tensors, Tensors]:
        matrix = torch.zeros(24, 2)
        dist.gather(values(rank).view(-1), list(matrix.unbind(1)) if rank == 0 else None)
        return (
            (list(matrix.t()), [values(0).view(-1), values(1).view(-1)]) if rank == 0 else ([], [])
        )

    def all_gather_into_nothing() -> tuple[Tensors, Tensors]:
        dist.all_gather(outputs := [torch.zeros(0)] * 2, torch.zeros(0))
        return outputs, [torch.zeros(0)] * 2

    yield from {
        "all_gather, same outputs": same_outputs_of_all_gather,
        "all_gather, overlapping outputs": overlapping_outputs_of_all_gather,
        "gather, same outputs": same_outputs_of_gather,
        "all_to_all, same outputs": same_outputs_of_all_to_all,
        "all_gather, from its output": lambda: all_gather_from_an_output(rank),
        "all_gather, from another output": lambda: all_gather_from_an_output(other),
        "all_gather_into_tensor, in place": lambda: all_gather_into_tensor_from_a_part(mine),
        "all_gather_into_tensor, from another part": lambda: all_gather_into_tensor_from_a_part(
            others
        ),
        "reduce_scatter_tensor, in place": lambda: reduce_scatter_tensor_into_a_part(mine),
        "reduce_scatter_tensor, into another part": lambda: reduce_scatter_tensor_into_a_part(
            others
        ),
        "reduce_scatter, in place": lambda: reduce_scatter_into_an_input(rank),
        "reduce_scatter, into another input": lambda: reduce_scatter_into_an_input(other),
        "scatter, in place": lambda: scatter_into_an_input(0),
        "scatter, into another input": lambda: scatter_into_an_input(1),
        "scatter, one tensor to all": scatter_of_one_tensor,
        "all_to_all_single, into its input": all_to_all_single_into_its_input,
        "all_to_all, into its inputs": all_to_all_into_its_inputs,
        "gather, into columns": gather_into_columns,
        "all_gather, of nothing": all_gather_into_nothing,
    }.items()


def in_channels_last() -> Iterator[tuple[str, Case]]:
    """Yield calls of channels_last tensors."""
    rank = dist.get_rank()

    def picture(rank: int) -> torch.Tensor:
        return channels_last(torch.arange(24.0).view(1, 2, 3, 4) + 1000 * rank)

    def all_reduce() -> tuple[Tensors, Tensors]:
        dist.all_reduce(x := picture(rank))
        return [x], [picture(0) + picture(1)]

    def broadcast() -> tuple[Tensors, Tensors]:
        dist.broadcast(x := picture(rank), 0)
        return [x], [picture(0)]

    def scatter() -> tuple[Tensors, Tensors]:
        output = picture(9)
        dist.scatter(output, [picture(0), picture(1)] if rank == 0 else None)
        return [output], [picture(rank)]

    def all_gather() -> tuple[Tensors, Tensors]:
        dist.all_gather(outputs := [picture(9), picture(9)], picture(rank))
        return outputs, [picture(0), picture(1)]

    for case in (all_reduce, broadcast, scatter, all_gather):
        yield f"{case.__name__}: channels_last", case
