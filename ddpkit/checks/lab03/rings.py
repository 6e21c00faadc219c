"""Rings that go wrong: what comes of the usual mistakes, so that a hint names the one made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Chunk = Callable[[int, int, int], int]  # of a rank, in a step, of n: the number of a chunk


@dataclass(frozen=True)
class Ring:
    """A ring with a mistake, and what to say of it."""

    name: str
    says: str
    more: str = ""
    outgoing: Chunk = lambda rank, step, n: rank - step
    incoming: Chunk = lambda rank, step, n: rank - step - 1
    adds: tuple[bool, bool] = (True, False)  # in either half; else it copies
    kept: tuple[bool, bool] = (True, True)  # what comes gets into the chunks


def around(ring: Ring, parts: Sequence[Any]) -> list[Any]:
    """What every rank has after 2(n - 1) steps; `parts` is what each had, one dimension.

    Raises RuntimeError: chunks that differ in length meet.
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
    Ring(  # receiving over one's own chunk, without a sum, leads to the same
        "own chunks go round",
        "All ranks have chunk r as rank r alone gave it: it went around without having been added "
        "up.",
        "Add what comes in the first half. After it rank r has the whole sum of chunk r + 1, not "
        "of its own: the second half begins with that one.",
        adds=(False, False),
    ),
    Ring(
        "adds in both halves",
        "In the second half finished chunks are copied, not added.",
        adds=(True, True),
    ),
    Ring(
        "plus for minus",
        "Ranks send to the right, so the chunks have to come from the left: in the next step a "
        "rank sends what it has just received, and here it sends another one.",
        "Its number is one less in each step: (rank - step) % world_size.",
        outgoing=lambda rank, step, n: rank + step,
        incoming=lambda rank, step, n: rank + step - 1,
    ),
    Ring(
        "plus for minus",
        "In the next step a rank sends on what it has just received, and here it sends another "
        "one: chunks go to the right, so their numbers fall.",
        "The number is one less in each step: (rank - step) % world_size.",
        outgoing=lambda rank, step, n: rank + step,
        incoming=lambda rank, step, n: rank + step + 1,
    ),
    Ring(
        "not added in",
        "What is added up never gets into the tensor that you return.",
        "chunk += received changes it; chunk = chunk + received makes another one.",
        kept=(False, True),
    ),
    Ring(
        "not added in",
        "The tensor that you return is x itself: what is received never gets into it.",
        "chunk += received changes it; chunk = chunk + received and, where x is not contiguous, "
        "reshape make another one.",
        kept=(False, False),
    ),
)
