"""Ring all-reduces with common mistakes, and their results; a hint names the mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

Chunk = Callable[[int, int, int], int]  # (rank, step, n) -> number of a chunk


@dataclass(frozen=True)
class Ring:
    """A ring all-reduce with a mistake, and the hint about the mistake."""

    name: str
    says: str
    more: str = ""
    outgoing: Chunk = lambda rank, step, n: rank - step
    incoming: Chunk = lambda rank, step, n: rank - step - 1
    adds: tuple[bool, bool] = (True, False)  # in each half: add the received chunk, or copy it
    kept: tuple[bool, bool] = (True, True)  # in each half: keep the received chunk, or drop it


def around(ring: Ring, parts: Sequence[Tensor]) -> list[Tensor]:
    """Return each rank's tensor after 2(n - 1) steps of a ring; `parts` are the 1-d inputs by rank.

    Raises RuntimeError if a rank combines chunks of different lengths.
    """
    import torch

    n = len(parts)
    held = [list(each.clone().tensor_split(n)) for each in parts]
    for step in range(2 * (n - 1)):
        half = step >= n - 1
        sent = [held[rank][ring.outgoing(rank, step, n) % n].clone() for rank in range(n)]
        for rank in range(n) if ring.kept[half] else ():
            at = ring.incoming(rank, step, n) % n
            own = held[rank][at]
            held[rank][at] = own + sent[rank - 1] if ring.adds[half] else 0 * own + sent[rank - 1]
    return [torch.cat(chunks) for chunks in held]


WRONG_RINGS = (
    Ring(  # two mistakes have this result: no addition, or a second half that begins with chunk r
        "own chunks go round",
        "All ranks have chunk r as rank r alone gave it: the chunk went around, but no rank added "
        "to it.",
        "In the first half, add each received chunk. Afterwards rank r has the whole sum of chunk "
        "r + 1, not of chunk r, so the second half begins with chunk r + 1.",
        adds=(False, False),
    ),
    Ring(
        "adds in both halves",
        "In the second half, copy the finished chunks instead of adding.",
        adds=(True, True),
    ),
    Ring(
        "plus for minus",
        "Ranks send to the right, so the chunks have to come from the left. In each step, a rank "
        "sends the chunk that it received in the previous step; here it sends a different chunk.",
        "The chunk's number falls by one in each step: (rank - step) % world_size.",
        outgoing=lambda rank, step, n: rank + step,
        incoming=lambda rank, step, n: rank + step - 1,
    ),
    Ring(
        "plus for minus",
        "In each step, a rank sends the chunk that it received in the previous step; here it sends "
        "a different chunk. Chunks go to the right, so their numbers fall.",
        "The number falls by one in each step: (rank - step) % world_size.",
        outgoing=lambda rank, step, n: rank + step,
        incoming=lambda rank, step, n: rank + step + 1,
    ),
    Ring(
        "not added in",
        "The sum that you add up never gets into the tensor that you return.",
        "chunk += received changes the chunk; chunk = chunk + received makes a new tensor.",
        kept=(False, True),
    ),
    Ring(
        "not added in",
        "The returned tensor is x itself: the received numbers never get into it.",
        "chunk += received changes the chunk. chunk = chunk + received makes a new tensor, and so "
        "does reshape if x is not contiguous.",
        kept=(False, False),
    ),
)
