"""Lab 19: rounds of an outer optimizer in one process, right and with mistakes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

SHAPES = ((3, 4), (5,))  # shapes of the two parameters
NUMBERS = 17
NBYTES = 4 * NUMBERS


class Rounds:
    """Equal initial parameters, and the changes of each rank before and during each exchange."""

    def __init__(
        self, rng: random.Random, n: int, lr: float, momentum: float, keep: float, count: int = 4
    ) -> None:
        self.n, self.lr, self.momentum, self.keep, self.count = n, lr, momentum, keep, count
        generator = torch.Generator().manual_seed(rng.randrange(10**9))

        def drawn(*size: int) -> Any:
            return torch.randn(*size, generator=generator, dtype=torch.float64).float()

        self.start = drawn(NUMBERS)
        self.common = drawn(count, 1, NUMBERS)  # a part that is the same on all ranks
        self.before = self.common + 0.5 * drawn(count, n, NUMBERS)
        self.during = 0.3 * drawn(count, n, NUMBERS) if keep else torch.zeros(count, n, NUMBERS)

    def parameters(self) -> list[Tensor]:
        """Return the initial parameters as two tensors of the shapes SHAPES."""
        parts = self.start.split([12, 5])
        return [part.view(shape).clone() for part, shape in zip(parts, SHAPES, strict=True)]

    def steps(self, rank: int) -> Tensor:
        """Return the changes of a rank's parameters, [round, before or during, number]."""
        return torch.stack([self.before[:, rank], self.during[:, rank]], dim=1)

    def run(self, idea: str = "") -> list[Tensor]:
        """Return each rank's parameters, [round, number]; `idea` names a mistake, or is ""."""
        p = self.start.double().expand(self.n, -1).clone()
        first = start = self.start.double().expand(self.n, -1).clone()
        velocity, after = torch.zeros_like(start), []
        lr, momentum, keep = self.lr, self.momentum, self.keep
        for k in range(self.count):
            base = first if idea == "first start" else start
            if idea == "one memory" and k:
                base = start = p + self.before[k].double()
            p = p + self.before[k].double()
            here = p
            p = p + self.during[k].double()
            counted = p if idea == "late difference" else here
            mean = (base - counted).mean(0, keepdim=True).expand(self.n, -1)
            if idea == "uphill":
                mean = -mean
            elif idea == "summed":
                mean = mean * self.n
            elif idea == "own":
                mean = base - counted
            if idea == "damped":
                velocity = momentum * velocity + (1 - momentum) * mean
            elif idea == "forgets":
                velocity = mean
            else:
                velocity = momentum * velocity + mean
            step = mean + momentum * velocity
            if idea == "heavy":
                step = velocity
            elif idea == "old velocity":
                step = mean + momentum * (velocity - mean)
            elif idea == "no momentum":
                step = mean
            elif idea == "no lr":
                step = step / lr
            start = base - lr * step if idea != "averages" else counted.mean(0, keepdim=True)
            start = start.expand(self.n, -1)
            if idea == "not put back":
                after.append(p)
                continue
            share = {"keep ignored": 0.0, "keep turned": 1 - keep}.get(idea, keep)
            mine = here if idea == "keeps the old" else p
            p = share * mine + (1 - share) * start
            after.append(p)
        return [torch.stack([each[rank] for each in after]).float() for rank in range(self.n)]


IDEAS: Sequence[str] = (
    *("uphill", "summed", "own", "damped", "forgets", "heavy", "old velocity", "no momentum"),
    *("no lr", "averages", "first start", "one memory", "not put back", "late difference"),
    *("keep ignored", "keep turned", "keeps the old"),
)
