"""Lab 19: means of numbers sent as bytes, and means weighted by steps, right and with mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

ROUNDS = 3

# mean_by_bytes


class Rounded:
    """Tensors of each rank in each round, and their means and rounding errors.

    `sizes` has the magnitude of the numbers on each rank.
    """

    def __init__(self, rng: random.Random, sizes: Sequence[float], numbers: int) -> None:
        self.n, self.numbers = len(sizes), numbers
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        self.x = torch.rand(ROUNDS, self.n, numbers, generator=generator) * 1.8 - 0.9
        for each in self.x.flatten(0, 1):  # first number: negative, the largest absolute value
            each[0] = -1.0 - 0.2 * each[1].abs()
        self.x = self.x * torch.tensor(sizes)[:, None]

    def of(self, rank: int) -> Tensor:
        """Return the tensors of a rank, [round, number]."""
        return self.x[:, rank].clone()

    def run(self, idea: str = "") -> tuple[list[Tensor], list[Tensor]]:
        """Return each rank's means and errors, [round, number]; `idea` names a mistake, if any."""
        error, means, errors = torch.zeros(self.n, self.numbers), [], []
        for x in self.x:
            wanted = x if idea == "old error lost" else x + error
            top = wanted.abs().amax(1, keepdim=True)
            scale = top.clamp(min=2**-100) / (128 if idea == "128" else 127)
            if idea == "no abs":
                scale = wanted.amax(1, keepdim=True).clamp(min=2**-100) / 127
            ways: Mapping[str, Callable[[Tensor], Tensor]] = {
                "truncated": torch.trunc, "floored": torch.floor, "128": torch.round}  # fmt: skip
            levels = ways.get(idea, torch.round)(wanted / scale)
            if idea in ("128", "no abs"):
                levels = (levels + 128).remainder(256) - 128
            sent = levels * scale
            mean = self._mean(levels, scale, idea)
            error = {
                "forgets": x - sent,
                "of the mean": wanted - mean,
                "counted twice": error + wanted - sent,
                "sign": sent - wanted,
                "no error": torch.zeros_like(x),
            }.get(idea, wanted - sent)
            means.append(mean)
            errors.append(error)
        by_rank = (torch.stack(each).unbind(1) for each in (means, errors))
        of_mean, of_error = map(list, by_rank)
        return of_mean, of_error

    def _mean(self, levels: Tensor, scale: Tensor, idea: str) -> Tensor:
        n, own = self.n, levels * scale
        if idea == "own scale":
            return scale * levels.mean(0)
        if idea == "unsigned":
            own = levels.remainder(256) * scale
        if idea == "sum":
            return own.sum(0).expand(n, -1)
        return own.mean(0).expand(n, -1)


BYTES_IDEAS = ("old error lost", "forgets", "of the mean", "counted twice", "sign", "no error",
               "truncated", "floored", "128", "no abs", "own scale", "unsigned", "sum")  # fmt: skip

# mean_of


class Weighted:
    """Differences of parameters and step counts by rank, and the weighted mean of a group."""

    def __init__(
        self, rng: random.Random, steps: Sequence[int], members: Sequence[int] | None = None
    ) -> None:
        self.n, self.steps, self.members = len(steps), list(steps), members
        self.ranks = list(members or range(self.n))
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        self.numbers = rng.randrange(9, 40)
        self.x = torch.randn(self.n, self.numbers, generator=generator) + 2.0
        for rank, taken in enumerate(steps):
            if not taken:
                self.x[rank, 1], self.x[rank, 3] = torch.nan, torch.inf
        if all(steps) and self.n == 2:
            self.x[0, 5] = torch.nan  # a rank with steps: the mean has this nan

    def _weighted(self, weights: Sequence[float], by: float) -> Tensor:
        at = [rank for rank, w in zip(self.ranks, weights, strict=True) if w]
        rows = [self.x[rank] * w for rank, w in zip(self.ranks, weights, strict=True) if w]
        return sum(rows, torch.zeros(self.numbers)) / by if at else torch.zeros(self.numbers)

    def right(self) -> Tensor:
        """Return the right weighted mean of the group."""
        taken = [self.steps[rank] for rank in self.ranks]
        return self._weighted(taken, max(sum(taken), 1))

    def models(self) -> dict[str, list[Tensor]]:
        """Return the means that common mistakes give, by rank of the group."""
        taken = [self.steps[rank] for rank in self.ranks]
        n = len(self.ranks)
        part = [float(bool(each)) for each in taken]
        every = range(self.n)
        outside = sum((self.x[r] * self.steps[r] for r in every if self.steps[r]), self.x[0] * 0)
        own = [self.x[r] if self.steps[r] else torch.zeros(self.numbers) for r in self.ranks]
        found = {
            "by all": self._weighted(taken, n),
            "unweighted": self._weighted(part, max(sum(part), 1)),
            "unweighted by all": self._weighted(part, n),
            "summed": self._weighted(taken, 1),
            "all ranks": outside / max(sum(self.steps), 1),
        }
        return {
            **{name: [each] * n for name, each in found.items()},
            "own weight": [self._weighted(taken, max(each, 1)) for each in taken],
            "own": own,
        }


def drawn_tensors(
    rng: random.Random, n: int, have: Sequence[int]
) -> tuple[list[list[Tensor]], list[Tensor]]:
    """Return the tensors of all ranks, and the tensors that the ranks in `have` share."""
    generator = torch.Generator().manual_seed(rng.randrange(10**9))
    numbers = rng.randrange(5, 40)

    def drawn() -> list[Tensor]:
        x = torch.randn(numbers, 2, generator=generator)
        x[1, 0] = torch.nan
        count = torch.randint(1, 10**6, (3,), generator=generator)
        return [x, torch.randn(numbers, generator=generator), count]

    new = drawn()
    return [new if rank in have else drawn() for rank in range(n)], new
