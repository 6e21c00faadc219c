"""Inputs that make each rank's part of a sum visible, and the results of an answer."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpkit.checks.lab03.sent import counts
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import together

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer

Inputs: TypeAlias = "dict[str, list[Tensor]]"  # name of a sum -> its inputs, by rank

# number of ranks -> name of a sum -> dtype and shape
TENSORS: dict[int, dict[str, tuple[str, tuple[int, ...]]]] = {
    4: {"sum": ("float32", (8,))},
    3: {  # sum 1 and sum 3 are alike, so that data kept from one call would fit a later call
        "sum 1": ("int32", (10,)),
        "sum 2": ("float64", (5, 2)),
        "sum 3": ("int32", (10,)),
    },
    5: {"sum 1": ("float32", (2,)), "sum 2": ("int64", (0,))},
    2: {"sum": ("float32", (9,))},
    1: {"sum": ("float32", (3,))},
    8: {"sum": ("float64", (2, 8))},  # two rows: an answer that cuts rows, not elements, sends more
}


def inputs_for(n: int, dtype: str, shape: tuple[int, ...], rng: random.Random) -> list[Tensor]:
    """Draw inputs of 1, 2 or 3 times 10^r on rank r, so a sum's digits show the ranks' parts."""
    import torch

    size = torch.Size(shape).numel()
    rows = [[rng.randint(1, 3) * 10**rank for _ in range(size)] for rank in range(n)]
    return [torch.tensor(row, dtype=getattr(torch, dtype)).view(shape) for row in rows]


def fractions_for(n: int, rng: random.Random) -> list[Tensor]:
    """Draw numbers; the last bits of their sum depend on the order of addition."""
    import torch

    return [torch.tensor([rng.uniform(-1, 1) for _ in range(64)]) for _ in range(n)]


def summed(
    answer: Answer, inputs: Inputs, fractions: Inputs, traffic: Mapping[str, bool]
) -> Observed:
    """Observe the answer's sums by rank, the state of x after the call, and the traffic.

    `traffic` has the options of `counts`.
    """
    tensors = {**inputs, **fractions}
    calls = [[(x,) for x in by_rank] for by_rank in tensors.values()]
    did = [told() for told in together(partial(_call, answer), calls)]
    sums = [[total for total, _ in each.returned] for each in did]
    became = {what for each in did for _, what in each.returned}
    return {
        **dict(zip(tensors, sums, strict=True)),
        "x": next(what for what in ("changed", "returned", "kept") if what in became),
        **counts(did[: len(inputs)], **traffic),
    }


def _call(answer: Answer, x: Tensor) -> tuple[Any, str]:
    """Run the answer on a rank; return its result, and "kept", "changed" or "returned" for x.

    "returned" means that the result is in the memory of x. A tensor with two dimensions is laid out
    column by column, so it is not contiguous.
    """
    import torch

    given = x.t().contiguous().t() if x.dim() == 2 else x.clone()
    total = answer(given)
    if not torch.equal(given, x):
        return total, "changed"
    if isinstance(total, torch.Tensor) and x.numel():
        is_x = total.untyped_storage().data_ptr() == given.untyped_storage().data_ptr()
    else:
        is_x = total is given
    return total, "returned" if is_x else "kept"


def told_of(sums: Mapping[str, Tensor | int], n: int, seen: Observed) -> Observed:
    """Replace each sum's values on all ranks by one value: the first wrong value, if any.

    "on rank" is the rank with the first wrong value. "bits" becomes "same" if the bits of the sums
    of fractions agree on all ranks, otherwise "differ".
    """
    told = dict(seen)
    for name, total in sums.items():
        by_rank = dict(zip(range(n), seen[name], strict=True))
        wrong = [rank for rank, got in by_rank.items() if not same(got, total)]
        told[name] = by_rank[wrong[0] if wrong else 0]
        if wrong:
            told.setdefault("on rank", wrong[0])
    if "bits" in seen:
        alike = all(same(each, seen["bits"][0]) for each in seen["bits"])
        told["bits"] = "same" if alike else "differ"
    return told
