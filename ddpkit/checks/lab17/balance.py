"""Lab 17: the balance loss, the bias of experts and averaged gradients, in one process."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def favouring(generator: torch.Generator, rank: int, tokens: int, experts: int) -> Any:
    """Return router logits of a rank's tokens: one expert is favoured, and one is never chosen."""
    logits = torch.randn(tokens, experts, generator=generator)
    logits[:, rank % experts] += 1.5
    logits[:, (rank + 2) % experts] -= 9.0  # no token of the rank chooses this expert
    return logits


class Balance:
    """The router's probabilities and choices by rank, and the loss of all tokens in one process."""

    def __init__(self, rng: random.Random, n: int, tokens: int, experts: int, k: int) -> None:
        self.n, self.k, self.experts = n, k, experts
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        logits = [favouring(generator, rank, tokens, experts) for rank in range(n)]
        self.probabilities = [each.softmax(1) for each in logits]
        self.chosen = [each.topk(k).indices for each in logits]
        self.counts = [each.flatten().bincount(minlength=experts) for each in self.chosen]
        self.tokens = tokens

    def loss(self, counts: Tensor, probabilities: Tensor, total: Tensor | None = None) -> float:
        """Return the balance loss from counts of choices and one rank's probabilities.

        The shares are the counts divided by `total`, which is the sum of the counts by default.
        """
        shares = counts / (counts.sum() if total is None else total)
        return float(self.experts * (shares * probabilities.mean(0)).sum())

    def right(self) -> tuple[list[float], list[Tensor]]:
        """Return the right loss and the right gradient of each rank."""
        count = sum(self.counts)
        gradient = self.experts * count / count.sum() / self.tokens
        losses = [self.loss(count, each) for each in self.probabilities]
        return losses, [gradient.expand(self.tokens, -1).clone()] * self.n

    def models(self) -> Mapping[str, object]:
        """Return the losses that common mistakes give on each rank, by the name of the mistake."""
        count, every = sum(self.counts), torch.cat(self.probabilities)
        first = torch.cat(self.chosen)[:, 0].bincount(minlength=self.experts)
        right, _ = self.right()
        own = [self.loss(c, p) for c, p in zip(self.counts, self.probabilities, strict=True)]
        smooth = [self.loss(every.sum(0), each) for each in self.probabilities]
        smooth_own = [self.loss(each.sum(0), each) for each in self.probabilities]
        return {
            "n": self.n,
            "k": self.k,
            "own": own,
            "not_times": [each / self.experts for each in right],
            "of_tokens": [each * self.k for each in right],
            "summed": [each * self.tokens for each in right],
            "first": [self.loss(first, each) for each in self.probabilities],
            "of_all": [self.loss(count, every)] * self.n,
            "of_all_summed": [self.loss(count, every) * self.n] * self.n,
            "smooth": smooth,
            "smooth_own": smooth_own,
            "zero": [0.0] * self.n,
        }


class Bias:
    """A bias of the experts, choices by rank with the given counts, and the next bias."""

    def __init__(self, rng: random.Random, n: int, counts: Sequence[int], k: int) -> None:
        experts = len(counts)
        self.n, self.counts = n, torch.tensor(counts)
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        places = torch.arange(experts).repeat_interleave(self.counts)
        mixed = places[torch.randperm(len(places), generator=generator)]
        self.chosen = [each.view(-1, k).contiguous() for each in mixed.chunk(n)]
        self.rate = rng.choice((1, 3, 5, 7)) / 64
        self.bias = torch.randint(-96, 97, (experts,), generator=generator) / 64

    def own_counts(self, rank: int) -> Tensor:
        """Return, for each expert, the number of times that a rank's own tokens chose it."""
        return self.chosen[rank].flatten().bincount(minlength=len(self.counts))

    def moved(self, direction: Tensor) -> Tensor:
        """Return the bias moved by the rate; `direction` has a sign for each expert."""
        return self.bias + self.rate * direction.to(self.bias.dtype)

    def right(self) -> Tensor:
        """Return the right bias for the next step."""
        return self.moved((self.counts.double().mean() - self.counts).sign())

    def models(self) -> Mapping[str, object]:
        """Return the biases that common mistakes give on each rank, by the name of the mistake."""
        counts, n = self.counts.double(), self.n
        mean, all_ranks = counts.mean(), range(n)
        own = [self.own_counts(rank).double() for rank in all_ranks]
        short = self.counts.bfloat16()
        short_total = torch.stack([each.bfloat16() for each in own]).sum(0)
        return {
            "n": n,
            "total": self.counts.tolist(),
            "old": self.bias,
            "own": [self.moved((each.mean() - each).sign()) for each in own],
            "own_mean": [self.moved((each.mean() - counts).sign()) for each in own],
            "reversed": [self.moved((counts - mean).sign())] * n,
            "in_proportion": [
                [self.moved(mean - counts)] * n,
                [self.moved((mean - counts) / mean)] * n,
                [self.moved((mean - counts) / counts.sum())] * n,
            ],
            "short": [
                [self.moved((each.mean() - each).sign())] * n for each in (short, short_total)
            ],
            "rounded_mean": [
                [self.moved((whole - counts).sign())] * n
                for whole in (mean.floor(), mean.round(), mean.ceil())
            ],
            "median": [self.moved((counts.median() - counts).sign())] * n,
            "never_still": [
                [self.moved((counts < mean).double() * 2 - 1)] * n,
                [self.moved((counts <= mean).double() * 2 - 1)] * n,
            ],
            "forgotten": [self.right() - self.bias] * n,
        }


def counts_around(rng: random.Random, n: int, experts: int, tokens: int, k: int) -> list[int]:
    """Return counts of choices: one expert has the mean count, and the last expert has none.

    The median of the counts differs from the mean.
    """
    total = n * tokens * k
    mean = total // experts
    assert mean * experts == total
    while True:
        counts = [rng.randrange(1, 2 * mean + 1) for _ in range(experts - 3)]
        counts.insert(rng.randrange(experts - 2), mean)
        counts = [total - sum(counts), *counts, 0]
        middle = sorted(counts)[(experts - 1) // 2]
        above = sum(each > mean for each in counts)
        if counts[0] > 0 and mean in counts and middle != mean and 0 < above < experts - 2:
            return counts


def between_counts(rng: random.Random) -> list[int]:
    """Return counts of choices of 5 experts; the mean lies between two of the counts."""
    low = 2 * rng.randrange(5, 20)
    counts = [low, low + 1, low + 3, low + 4, low - 6]  # the mean is low + 0.4
    rng.shuffle(counts)
    return counts


class ExpertGradients:
    """Gradients of shared parameters and of experts, by rank.

    The mesh has `same` × `ep` ranks: `ep` neighbouring ranks together have all experts, and `same`
    ranks have the same experts.
    """

    def __init__(self, rng: random.Random, same: int, ep: int, *, missing: bool = False) -> None:
        self.n, self.same, self.ep = same * ep, same, ep
        self.groups = [[at + ep * copy for copy in range(same)] for at in range(ep)]
        self.generator = torch.Generator().manual_seed(rng.randrange(10**9))
        rows = rng.randrange(3, 30)
        self.shared = [self._drawn((rows, 2), (3,)) for _ in range(self.n)]
        self.experts = [self._drawn((rows, 3), (2,)) for _ in range(self.n)]
        self.missing = self.n - 1 if missing else None  # a rank with experts that got no rows
        if self.missing is not None:
            self.experts[self.missing] = [torch.zeros_like(g) for g in self.experts[-1]]

    def _drawn(self, *shapes: Sequence[int]) -> list[Tensor]:
        """Draw multiples of 1,024, so that sums and quotients are exact."""
        return [
            torch.randint(-900, 901, shape, generator=self.generator) * 1024.0 for shape in shapes
        ]

    def given(self, rank: int) -> list[Any]:
        """Return the gradients of a rank's experts; for experts without rows, only the shapes."""
        own = self.experts[rank]
        return [tuple(each.shape) for each in own] if rank == self.missing else own

    def members(self, rank: int) -> list[int]:
        """Return the ranks with the same experts as this rank."""
        return next(group for group in self.groups if rank in group)

    def mean(self, of: Sequence[Sequence[Tensor]], ranks: Sequence[int], by: int) -> list[Tensor]:
        """Return the sum of the gradients `of` over the given ranks, divided by `by`."""
        return [sum(parts) / by for parts in zip(*(of[rank] for rank in ranks), strict=True)]

    def right(self) -> dict[str, list[list[Tensor]]]:
        """Return the right gradients of each rank: of the shared parameters, and of the experts."""
        every = range(self.n)
        return {
            "shared": [self.mean(self.shared, every, self.n) for _ in every],
            "experts": [self.mean(self.experts, self.members(rank), self.n) for rank in every],
        }

    def sizes(self) -> tuple[int, int]:
        """Return the bytes of a rank's shared gradients and of the gradients of its experts."""
        shared, own = (sum(g.nbytes for g in each[0]) for each in (self.shared, self.experts))
        return shared, own

    def models(self) -> Mapping[str, object]:
        """Return the gradients that common mistakes give on each rank, by name of the mistake."""
        every = range(self.n)
        return {
            "n": self.n,
            "same": self.same,
            "ep": self.ep,
            "groups": self.groups,
            "mixed": [self.mean(self.experts, every, by) for by in (self.n, 1, self.ep, self.same)],
            "own": [self.experts, [[g / self.n for g in own] for own in self.experts]],
            "shared_by_same": [
                [self.mean(self.shared, self.members(rank), by) for rank in every]
                for by in (self.n, self.same)
            ],
            "own_shared": [self.shared, [[g / self.n for g in own] for own in self.shared]],
        }
