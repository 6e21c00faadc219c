"""Lab 16: losses of tokens, and masks of the tokens that count."""

from __future__ import annotations

import random
from collections.abc import Sequence

import torch
from torch import Tensor


def counts(
    rng: random.Random, about: str, sizes: Sequence[tuple[int, int]], *, inf: bool = False
) -> tuple[str, list[Tensor], list[Tensor]]:
    """Return `about`, the losses by rank, and the masks of counted tokens by rank.

    `sizes` has (tokens, counted tokens) for each rank. With `inf`, the losses of tokens that do not
    count are inf.
    """
    seeded = torch.Generator().manual_seed(rng.randrange(10**6))
    losses, counted = [], []
    for size, count in sizes:
        which = torch.randperm(size, generator=seeded) < count
        own = torch.rand(size, generator=seeded)
        losses.append(own.masked_fill(~which, torch.inf) if inf else own)
        counted.append(which)
    return about, losses, counted
