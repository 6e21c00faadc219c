"""Lab 07: gradients of a known rank, and the right results of PowerSGD.

In this module, "rank" is the rank of a matrix. Only "each rank" means the ranks of the job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

Shape = tuple[int, ...]


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def low_rank(shape: Shape, rank: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Draw a tensor that has rank `rank` as a matrix (first dimension × the rest).

    A tensor with fewer than two dimensions is drawn without this condition.
    """
    draw = generator(seed)
    if len(shape) < 2:
        return torch.randn(shape, generator=draw, dtype=dtype)
    columns = torch.Size(shape[1:]).numel()
    rank = min(rank, shape[0], columns)
    left: Tensor = torch.linalg.qr(torch.randn(shape[0], rank, generator=draw, dtype=dtype)).Q
    right: Tensor = torch.linalg.qr(torch.randn(columns, rank, generator=draw, dtype=dtype)).Q
    # weights of similar size, so that no direction is faint
    weights = torch.linspace(3, 2, rank, dtype=dtype)
    return (left * weights @ right.T).reshape(shape)


def unlike_ones(rows: int, columns: int, rank: int, seed: int) -> Any:
    """Draw a matrix of rank `rank`; each row has the sum 0, and begins with `rank` zeros.

    If a fixed initial Q has columns of ones or of the identity, this Q is orthogonal to all rows.
    """
    draw = generator(seed)
    right = torch.randn(columns, rank, generator=draw, dtype=torch.float64)
    right[:rank] = 0
    right[rank:] -= right[rank:].mean(dim=0)
    left: Tensor = torch.linalg.qr(torch.randn(rows, rank, generator=draw, dtype=torch.float64)).Q
    weights = torch.linspace(3, 2, rank, dtype=torch.float64)
    return left * weights @ torch.linalg.qr(right).Q.T


def start(shape: Shape, rank: int) -> int:
    """Return the number of elements in the first Q of a gradient, which rank 0 may send."""
    columns = torch.Size(shape[1:]).numel()
    return min(rank, shape[0], columns) * columns if len(shape) > 1 else 0


def thin(shape: Shape, rank: int) -> int:
    """Return the number of elements sent for a gradient: two thin matrices, or a whole vector."""
    rows, columns = (*shape[:1], 1)[0], torch.Size(shape[1:]).numel()
    return min(rank, rows, columns) * (rows + columns) if len(shape) > 1 else rows


def parts_of(mean: Tensor, world_size: int, seed: int) -> list[Tensor]:
    """Return tensors of full rank, one for each process; their mean is `mean`."""
    noise = torch.randn((world_size, *mean.shape), generator=generator(seed), dtype=mean.dtype)
    noise = noise - noise.mean(dim=0)
    return [mean + each for each in noise]


def by_rank(means: Sequence[Tensor], world_size: int, seed: int) -> list[list[Tensor]]:
    """Return a bucket's gradients for each rank of the job; their means are `means`."""
    parts = [parts_of(mean, world_size, seed + i) for i, mean in enumerate(means)]
    return [list(of_rank) for of_rank in zip(*parts, strict=True)]


def flat(tensors: Sequence[Tensor]) -> Tensor:
    """Return the elements of all tensors in one vector, in order."""
    return torch.cat([each.reshape(-1) for each in tensors])


def warm(first: Tensor, second: Tensor) -> Tensor:
    """Return PowerSGD's approximation of `second`, with an initial Q from the rows of `first`."""
    rank = int(torch.linalg.matrix_rank(first))
    rows = torch.linalg.svd(first).Vh[:rank]
    p: Tensor = torch.linalg.qr(second @ rows.T).Q
    return p @ (p.T @ second)
