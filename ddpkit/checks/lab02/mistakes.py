"""Functions that recognize mistakes in collectives; the hints use these functions.

`s.given` is the `Collective` that was called: `s.given.x` and `s.given.chunks` are its inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING

from ddpkit.checks.lab02.collectives import total, written_by
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Seen

if TYPE_CHECKING:
    from torch import Tensor


def no_partner(s: Seen) -> object:
    """True if the sends and receives of the ranks do not form pairs."""
    return s.stuck or s.kind in ("to itself", "no such rank")


def no_power_of_two(s: Seen) -> bool:
    return bool(s.n & (s.n - 1))


def wrong_ranks(s: Seen) -> list[int]:
    """Return the ranks with wrong contents in the tensors that the answer writes to."""
    out = written_by(s.op)
    return [rank for rank in range(s.n) if not same(s[out][rank], s.expect[out][rank])]


def first(s: Seen) -> int:
    """Return the first rank of `wrong_ranks`.

    Raises IndexError if no rank is wrong. A hint is not shown if its condition raises an error.
    """
    return wrong_ranks(s)[0]


def untouched(s: Seen) -> list[int]:
    """Return `wrong_ranks` if all of these ranks left their tensors unchanged; otherwise []."""
    ranks, got = wrong_ranks(s), s[written_by(s.op)]
    return ranks if all(same(got[rank], s.before[rank]) for rank in ranks) else []


def wrong_chunks(s: Seen) -> list[int]:
    """Return the numbers of the wrong chunks on the first wrong rank."""
    rank = first(s)
    got, expected = s["chunks"][rank], s.expect["chunks"][rank]
    return [at for at in range(s.n) if not same(got[at], expected[at])]


def empty_chunks(s: Seen) -> list[int]:
    """Return those of `wrong_chunks` that the answer left unchanged."""
    rank = first(s)
    got, before = s["chunks"][rank], s.before[rank]
    return [at for at in wrong_chunks(s) if same(got[at], before[at])]


def holds(s: Seen, at: int) -> str:
    """Describe the content of chunk `at` on the first wrong rank."""
    rank = first(s)
    if at in empty_chunks(s):
        return "has not changed"
    giver = given_by(s, s["chunks"][rank][at])
    return "holds the x of no rank" if giver is None else f"holds the x of rank {giver}"


def given_by(s: Seen, tensor: Tensor) -> int | None:
    """Return the first rank with an x equal to `tensor`, or None."""
    return next((rank for rank, x in enumerate(s.given.x) if same(tensor, x)), None)


@lru_cache(maxsize=1)  # called by several hints
def times(s: Seen) -> tuple[int, ...]:
    """Return how many times each rank's part is in the sum on the first wrong rank."""
    rank = first(s)
    parts = s.given.x if s.op == "reduce" else [chunks[rank] for chunks in s.given.chunks]
    return times_in(s["x"][rank], parts)


def owner(s: Seen) -> int | None:
    """Return the number i if the first wrong sum adds up chunk i of the ranks.

    Chunk i of all ranks should be added up on rank i. Return None if the sum is not a sum of chunks
    with the same number.
    """
    rank = first(s)
    columns = enumerate(zip(*s.given.chunks, strict=True))
    found = (other for other, column in columns if other != rank and times_in(s["x"][rank], column))
    return next(found, None)


def times_in(got: object, parts: Sequence[Tensor]) -> tuple[int, ...]:
    """Return a factor (0, 1 or 2) for each part, so that the sum is `got`; () if impossible."""
    import torch

    if not isinstance(got, torch.Tensor) or got.shape != parts[0].shape or not got.numel():
        return ()
    every = product(range(3), repeat=len(parts))
    found = (each for each in every if same(total(_multiples(each, parts)), got))
    return next(found, ())


def _multiples(factors: Sequence[int], parts: Sequence[Tensor]) -> list[Tensor]:
    return [factor * part for factor, part in zip(factors, parts, strict=True)]


def receivers(s: Seen) -> list[list[int]]:
    """Return, for each rank, the ranks that it sends to."""
    arrows = [tuple(map(int, arrow.split("→"))) for arrow in s["to"].split()]
    return [[peer for sender, peer in arrows if sender == rank] for rank in range(s.n)]
