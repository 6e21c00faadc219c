"""Lab 18: right results in low precision, and the results of common mistakes."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ddpkit.exercises.exercise import Observed

# mean_by_halves


class RoundedLines:
    """A flat tensor of numbers for each rank; sums are exact in float32 in any order."""

    def __init__(self, rng: random.Random, n: int, length: int) -> None:
        self.n, self.length = n, length
        self.generator = torch.Generator().manual_seed(rng.randrange(10**9))
        self.flats = [self._drawn() for _ in range(n)]
        while (near := self._near_a_tie()).any():
            for flat in self.flats:
                flat[near] = self._drawn()[near]

    def _drawn(self) -> Any:
        """Draw multiples of 1/4 with up to 14 significant bits: bfloat16 rounds most of them."""
        found = torch.randint(-8000, 8001, (self.length,), generator=self.generator)
        return found.float() / 4

    def _near_a_tie(self) -> Tensor:
        """Return True for each element with a mean that a small error could round differently."""
        exact = self.sums() / self.n
        ends = [(exact * (1 + e)).bfloat16() for e in (-1e-6, 0.0, 1e-6)]
        return (ends[0] != ends[1]) | (ends[1] != ends[2])

    def sums(self) -> Tensor:
        """Return the sums over the ranks, in float32, of the numbers rounded to bfloat16."""
        return torch.stack([each.bfloat16().float() for each in self.flats]).sum(0)

    def right(self) -> Tensor:
        """Return the right mean: the mean of the rounded numbers, rounded once more."""
        return (self.sums() / self.n).bfloat16().float()

    def owner(self) -> Tensor:
        """Return the rank that owns each element, if the tensor is padded to equal parts."""
        size = -(-self.length // self.n)
        return torch.arange(self.length) // size

    def models(self) -> Mapping[str, object]:
        """Return the means that common mistakes give; by rank if the ranks differ."""
        n, right, owner = self.n, self.right(), self.owner()
        short = [each.bfloat16() for each in self.flats]
        loop = short[0].clone()
        for each in short[1:]:
            loop = loop + each
        unrounded, own = self.sums() / n, right.clone()
        for rank, flat in enumerate(self.flats):
            others = [each.float() for other, each in enumerate(short) if other != rank]
            finer = ((flat + sum(others)) / n).bfloat16().float()
            own = torch.where(owner == rank, finer, own)
        first = [(each / n).bfloat16().float() for each in self.flats]
        whole = sum(self.flats) / n
        return {
            "n": n,
            "flats": self.flats,
            "in_short": [
                (loop / n).float(),
                (self.sums().bfloat16() / n).float(),
                (loop.float() / n).bfloat16().float(),
            ],
            "own_finer": own,
            "a_sum": [self.sums().bfloat16().float(), self.sums()],
            "divided_first": sum(first).bfloat16().float(),
            "unrounded": unrounded,
            "exact": whole,
            "drifts": [torch.where(owner == rank, unrounded, right) for rank in range(n)],
        }


# LossScale


class ScaledSteps:
    """Gradients of ranks over some steps, some of them inf or nan, and the right results."""

    def __init__(self, rng: random.Random, n: int, bad: Mapping[int, Mapping[int, float]]) -> None:
        self.n, self.patience = n, 2
        self.scale = 2.0 ** rng.randrange(8, 12)
        generator = torch.Generator().manual_seed(rng.randrange(10**9))
        sizes = rng.randrange(2, 9), rng.randrange(2, 9)
        self.start = [[torch.randn(size, generator=generator) for size in sizes] for _ in range(n)]
        self.gradients: list[list[list[Any]]] = [
            [[torch.randn(size, generator=generator) * 100 for size in sizes] for _ in range(10)]
            for _ in range(n)
        ]
        self.steps = len(self.gradients[0])
        for number, ranks in bad.items():
            for rank, value in ranks.items():
                which = rng.randrange(2)
                at = rng.randrange(sizes[which])
                self.gradients[rank][number][which][at] = value
        self.bad = {number: sorted(ranks) for number, ranks in bad.items()}

    def large(self, number: int, rank: int) -> None:
        """Make all gradients of a rank in a step so large that their sum is infinite."""
        for each in self.gradients[rank][number]:
            each.fill_(3e38)

    def missing(self, rank: int) -> None:
        """Replace all gradients of a rank by None."""
        self.gradients[rank] = [[None, None] for _ in range(self.steps)]

    def right(self) -> dict[str, Any]:
        """Return the right results of each rank."""
        return self.with_rules(self.bad)

    def with_rules(
        self, bad: Mapping[int, Sequence[int]], *, reset: bool = True, halve: bool = True
    ) -> dict[str, object]:
        """Return the results of each rank if the steps in `bad` are skipped.

        Without `reset`, a skipped step does not reset the count of good steps. Without `halve`, a
        skipped step does not halve the scale.
        """
        scale, good, took, scales, used = self.scale, 0, [], [], []
        for number in range(self.steps):
            used.append(scale)
            if number in bad:
                scale = scale / 2 if halve else scale
                good = 0 if reset else good
            else:
                good += 1
                if good == self.patience:
                    scale, good = 2 * scale, 0
            took.append(number not in bad)
            scales.append(scale)
        return {
            "stepped": [took] * self.n,
            "scales": [scales] * self.n,
            "parameters": [self.trained(rank, used, took) for rank in range(self.n)],
        }

    def trained(self, rank: int, used: Sequence[float], took: Sequence[bool]) -> list[list[Tensor]]:
        """Return a rank's parameters after each step; the scales `used` divide the gradients."""
        parameters = [torch.nn.Parameter(each.clone()) for each in self.start[rank]]
        optimizer = torch.optim.SGD([{"params": [p]} for p in parameters], lr=0.5, momentum=0.5)
        moved = []
        for number, scale in enumerate(used):
            for p, g in zip(parameters, self.gradients[rank][number], strict=True):
                p.grad = None if g is None else g / scale
            if took[number]:
                optimizer.step()
            moved.append([p.detach().clone() for p in parameters])
        return moved


# gather_fp8

LARGEST = 448.0


class Shards:
    """Shards of each rank, and the right values of a gather in fp8."""

    def __init__(self, shards: Sequence[Sequence[Tensor]]) -> None:
        self.shards, self.n = shards, len(shards)
        self.whole = [torch.cat(list(each)) for each in zip(*shards, strict=True)]

    def slack(self) -> list[Tensor]:
        """Return the largest e4m3 rounding error of each element, with the scale of its shard."""
        return [
            torch.cat([_half_a_step(own[at]) for own in self.shards])
            for at in range(len(self.whole))
        ]

    def read(self, observed: Observed) -> Observed:
        """Return, for each rank and tensor, the number of wrong elements, or the wrong shape."""
        slack = self.slack()
        found = [
            [self._off(each, at, slack) for at, each in enumerate(whole)]
            if len(whole) == len(self.whole)
            else f"{len(whole)} tensors"
            for whole in observed["whole"]
        ]
        rest = {name: each for name, each in observed.items() if name != "whole"}
        facts = self.facts(observed["whole"])
        return {"off": found, **rest, **facts}

    def _off(self, tensor: Tensor, at: int, slack: Sequence[Tensor]) -> int | str:
        right = self.whole[at]
        if not isinstance(tensor, torch.Tensor):
            return type(tensor).__name__
        if tensor.shape != right.shape or tensor.dtype != right.dtype:
            return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
        wrong = ~((tensor - right).abs() <= slack[at])
        return int(wrong.sum())

    def facts(self, whole: Sequence[Sequence[Tensor]]) -> dict[str, object]:
        """Return {"looks like": the mistake that gives these tensors}, for the hints."""
        try:
            return {"looks like": self._like(whole)}
        except (RuntimeError, TypeError, IndexError):
            return {"looks like": "nothing known"}

    def _like(self, whole: Sequence[Sequence[Tensor]]) -> str:
        first = [each.flatten().double() for each in whole[0]]
        right = [each.flatten().double() for each in self.whole]
        if any(a.shape != b.shape for a, b in zip(first, right, strict=True)):
            return "nothing known"
        if any(_near_all(whole[0], each) for each in _converted_bits(self.shards)):
            return "converted"
        if any(each.isnan().any() for each in first):
            zeros = [each == 0 for each in right]
            only = all(bool(z[a.isnan()].all()) for a, z in zip(first, zeros, strict=True))
            return "nan" if only else "nothing known"
        own = [_by_own_scales(self.shards, rank) for rank in range(self.n)]
        if self.n > 1 and all(_near_all(a, b) for a, b in zip(whole, own, strict=True)):
            return "own scales"
        if _near_all(whole[0], _converted(self.shards, LARGEST, torch.float8_e5m2)) or _near_all(
            whole[0], _converted(self.shards, 57344.0, torch.float8_e5m2)
        ):
            return "e5m2"
        for largest in (512.0, 240.0):
            if _near_all(whole[0], _converted(self.shards, largest, torch.float8_e4m3fn)):
                return f"largest {largest:.0f}"
        if _near_all(whole[0], _not_multiplied(self.shards)):
            return "not multiplied"
        if _near_all(whole[0], _unscaled(self.shards)):
            return "no scale"
        if _near_all(whole[0], _one_scale(self.shards)):
            return "one scale"
        return "nothing known"


def _half_a_step(shard: Tensor) -> Tensor:
    """Return the largest errors of rounding to e4m3: 2^-4 of an element, or 2^-10 of the scale.

    The largest element is sent as 448, which e4m3 holds, so only float32 rounds it.
    """
    largest = shard.abs().max()
    scale = largest.clamp(min=2**-100) / LARGEST
    errors = torch.maximum(shard.abs() * 2**-4, scale * 2**-10) * 1.001
    return errors.where(shard.abs() < largest, largest * 1e-5)


def _rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype).float()


def _converted(
    shards: Sequence[Sequence[Tensor]], largest: float, dtype: torch.dtype
) -> list[Tensor]:
    """Return the tensors if each shard's largest number is sent as `largest`, in `dtype`."""
    scales = [[each.abs().max().clamp(min=2**-100) / largest for each in own] for own in shards]
    parts = [
        [_rounded(each / s, dtype) * s for each, s in zip(own, mine, strict=True)]
        for own, mine in zip(shards, scales, strict=True)
    ]
    return [torch.cat(list(each)) for each in zip(*parts, strict=True)]


def _by_own_scales(shards: Sequence[Sequence[Tensor]], rank: int) -> list[Tensor]:
    """Return the tensors if a rank multiplies the bytes of all ranks by its own scales."""
    scales = [[each.abs().max().clamp(min=2**-100) / LARGEST for each in own] for own in shards]
    return [
        torch.cat(
            [
                _rounded(own[at] / scales[r][at], torch.float8_e4m3fn) * scales[rank][at]
                for r, own in enumerate(shards)
            ]
        )
        for at in range(len(shards[0]))
    ]


def _unscaled(shards: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return [
        torch.cat([_rounded(each, torch.float8_e4m3fn) for each in column])
        for column in zip(*shards, strict=True)
    ]


def _scaled(
    shards: Sequence[Sequence[Tensor]], change: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """Return the joined tensors if each shard becomes change(shard / scale, scale)."""
    parts = []
    for own in shards:
        scales = [each.abs().max().clamp(min=2**-100) / LARGEST for each in own]
        parts.append([change(each / s, s) for each, s in zip(own, scales, strict=True)])
    return [torch.cat(list(each)) for each in zip(*parts, strict=True)]


def _converted_bits(shards: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Return the tensors of two mistakes, which convert values instead of viewing bits.

    The first converts the received bytes to numbers. The second converts the numbers to bytes
    before the gather.
    """
    fp8, byte = torch.float8_e4m3fn, torch.uint8
    return [
        _scaled(shards, lambda x, s: x.to(fp8).view(byte).float() * s),
        _scaled(shards, lambda x, s: x.to(fp8).float().to(byte).view(fp8).float() * s),
    ]


def _not_multiplied(shards: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    return _scaled(shards, lambda x, _: _rounded(x, torch.float8_e4m3fn))


def _one_scale(shards: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """Return the tensors if a rank uses one scale for all its shards."""
    scales = [max(each.abs().max() for each in own).clamp(min=2**-100) / LARGEST for own in shards]
    return [
        torch.cat(
            [
                _rounded(each / s, torch.float8_e4m3fn) * s
                for each, s in zip(column, scales, strict=True)
            ]
        )
        for column in zip(*shards, strict=True)
    ]


def _near_all(found: Sequence[Tensor], due: Sequence[Tensor]) -> bool:
    return all(
        torch.allclose(a.flatten().float(), b.flatten().float(), rtol=1e-4, atol=0, equal_nan=True)
        for a, b in zip(found, due, strict=True)
    )
