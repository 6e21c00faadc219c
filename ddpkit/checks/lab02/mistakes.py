"""Mistakes in collectives: in the tensors, in sums, in messages. The hints ask for them.

`s.given` is the `Collective` that was called: `s.given.x` and `s.given.chunks` are what went in.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab02.collectives import total, written_by
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Seen

if TYPE_CHECKING:
    from torch import Tensor


def no_partner(s: Seen) -> object:
    """Whether the ranks that send and those that receive do not fit each other."""
    return s.stuck or s.kind in ("to itself", "no such rank")


def no_power_of_two(s: Seen) -> bool:
    return bool(s.n & (s.n - 1))


def wrong_ranks(s: Seen) -> list[int]:
    """Ranks where the tensors that are to be written hold something wrong."""
    out = written_by(s.op)
    return [rank for rank in range(s.n) if not same(s[out][rank], s.expect[out][rank])]


def first(s: Seen) -> int:
    """The first of `wrong_ranks`, of which there is one: else no hint that asks for it fits."""
    return wrong_ranks(s)[0]


def untouched(s: Seen) -> list[int]:
    """`wrong_ranks`, if they all hold what they held before the call; else none."""
    ranks, got = wrong_ranks(s), s[written_by(s.op)]
    return ranks if all(same(got[rank], s.before[rank]) for rank in ranks) else []


def wrong_chunks(s: Seen) -> list[int]:
    """The wrong ones of all chunks on the first rank that has any, by number."""
    rank = first(s)
    got, expected = s["chunks"][rank], s.expect["chunks"][rank]
    return [at for at in range(s.n) if not same(got[at], expected[at])]


def empty_chunks(s: Seen) -> list[int]:
    """Those of `wrong_chunks` into which nothing came."""
    rank = first(s)
    got, before = s["chunks"][rank], s.before[rank]
    return [at for at in wrong_chunks(s) if same(got[at], before[at])]


def holds(s: Seen, at: int) -> str:
    """What chunk number `at` holds on the first rank that has a wrong one."""
    rank = first(s)
    if at in empty_chunks(s):
        return "is as it was before the call"
    giver = given_by(s, s["chunks"][rank][at])
    return "holds what no rank gave" if giver is None else f"holds what rank {giver} gave"


def given_by(s: Seen, tensor: Tensor) -> int | None:
    """The first rank whose x this is; None if it is nobody's."""
    return next((rank for rank, x in enumerate(s.given.x) if same(tensor, x)), None)


@lru_cache(maxsize=1)  # several hints ask
def times(s: Seen) -> tuple[int, ...]:
    """How often each rank's part is in the first wrong sum."""
    rank = first(s)
    parts = s.given.x if s.op == "reduce" else [chunks[rank] for chunks in s.given.chunks]
    return times_in(s["x"][rank], parts)


def owner(s: Seen) -> int | None:
    """The other rank whose chunks the first wrong sum is made of; None if there is none."""
    rank = first(s)
    columns = enumerate(zip(*s.given.chunks, strict=True))
    found = (other for other, column in columns if other != rank and times_in(s["x"][rank], column))
    return next(found, None)


def times_in(got: Any, parts: Sequence[Any]) -> tuple[int, ...]:
    """How often each part is in a sum, 0 to 2 times; () if it is no such sum."""
    import torch

    if not isinstance(got, torch.Tensor) or got.shape != parts[0].shape or not got.numel():
        return ()
    every = product(range(3), repeat=len(parts))
    found = (each for each in every if same(total(_multiples(each, parts)), got))
    return next(found, ())


def _multiples(factors: Sequence[int], parts: Sequence[Any]) -> list[Any]:
    return [factor * part for factor, part in zip(factors, parts, strict=True)]


def receivers(s: Seen) -> list[list[int]]:
    """Ranks to which each rank sends."""
    arrows = [tuple(map(int, arrow.split("→"))) for arrow in s["to"].split()]
    return [[peer for sender, peer in arrows if sender == rank] for rank in range(s.n)]
