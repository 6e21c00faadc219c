"""Lab 12: gradients of slices and of whole parameters, their norm, and results of mistakes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor


class Gradients:
    """Gradients by rank: slices, which differ by rank, and parameters that all ranks have whole."""

    slices = (True, False, True, False, False)

    def __init__(self, seed: int, n: int, *, missing: bool) -> None:
        generator = torch.Generator().manual_seed(seed)
        shapes = (3, 4), (5,), (4, 2), (2, 2), (3,)
        whole = [torch.randn(shape, generator=generator) for shape in shapes]
        self.by_rank: list[list[Tensor | None]] = [
            [torch.randn(shape, generator=generator) if cut else each
             for shape, each, cut in zip(shapes, whole, self.slices, strict=True)]
            for _ in range(n)
        ]  # fmt: skip
        if missing:
            for gradients in self.by_rank:
                gradients[3] = None
            self.by_rank[-1][0] = self.by_rank[-1][2] = None  # the last rank's slices are unused
        self.n = n
        self.whole = self._squares(0, sliced=False)
        self.squares = [self._squares(rank, sliced=True) for rank in range(n)]

    def norm(self) -> float:
        """Return the 2-norm of the whole model's gradient."""
        return math.sqrt(self.whole + sum(self.squares))

    def models(self) -> Mapping[str, object]:
        """Return the norms that common mistakes give, by the name of the mistake."""
        n, whole, squares = self.n, self.whole, sum(self.squares)
        norms = [math.sqrt(whole + each) for each in self.squares]
        mistakes = {
            "counted": math.sqrt(n * whole + squares),
            "slices_alone": math.sqrt(squares),
            "added": sum(norms),
            "each_added": self._norms_added(),
            "mean": math.sqrt(whole + squares / n),
            "largest": max(norms),
            "squared": whole + squares,
        }
        by_rank = {name: [value] * n for name, value in mistakes.items()}
        mixed_up = [math.sqrt(n * whole + each) for each in self.squares]
        every = {"norm_of_all": self.norm(), "own": norms, "mixed_up": mixed_up}
        return {"n": n, **every, **by_rank}

    def _norms_added(self) -> float:
        """Return a mistake's result: the sum of the norms of all slices and whole gradients."""
        found = []
        for rank, gradients in enumerate(self.by_rank):
            for gradient, cut in zip(gradients, self.slices, strict=True):
                if gradient is not None and (cut or rank == 0):
                    found.append(gradient.double().norm().item())
        return math.fsum(found)

    def _squares(self, rank: int, *, sliced: bool) -> float:
        pairs = zip(self.by_rank[rank], self.slices, strict=True)
        chosen = [each for each, cut in pairs if cut is sliced and each is not None]
        return math.fsum(each.double().square().sum().item() for each in chosen)
