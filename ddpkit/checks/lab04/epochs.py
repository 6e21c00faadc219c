"""An epoch, split by an answer for every rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

from ddpkit.exercises.exercise import Observed

Split = list[list[Any]]  # [rank][step]: tensors of numbers

LARGE = 40  # from so many numbers on, no shuffle leaves every batch as it was
LATER = (1, 2, 3, 5, 10)  # epochs later: an answer may take the rest of a division


def epoch(
    answer: Callable[..., Any], n: int, batch_size: int, world_size: int, number: int
) -> Observed:
    """Return the items that all ranks take in an epoch, and True if other epochs differ."""
    import torch

    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    answer(n, batch_size, number, 0, world_size)
    touched = not torch.equal(before, torch.random.get_rng_state())
    numbers_of_epochs = [number, *(number + later for later in LATER if n >= LARGE)]
    split, *others = (_split(answer, n, batch_size, world_size, e) for e in numbers_of_epochs)
    if generators := [each for each in chain(split, *others) if isinstance(each, Iterator)]:
        return {"batches": {"returned": type(generators[0]).__name__}}
    types = [_type(numbers) for numbers in chain(*split, *chain(*others))]
    steps = [len(by_step) for by_step in split]
    if other := [each for each in types if each != "torch.int64"]:
        return {"batches": {"of type": other[0]}}
    if len(set(steps)) > 1:
        return {"batches": {"steps by rank": steps}}
    batches = _batches(split)
    taken = sorted(chain(*batches))
    seen = {
        "batches": [len(batch) for batch in batches],
        "parts": _evenness(split),
        "samples": _samples(taken, n),
    }
    if n >= LARGE:
        in_order = [taken[at : at + batch_size] for at in range(0, n, batch_size)]
        seen["order"] = "as they come" if batches == in_order else "shuffled"
        again = any(_batches(each) == batches for each in others)
        seen["other epochs"] = "the same" if again else "others"
        seen["global seed"] = "used" if touched else "left alone"
    return seen


def _split(
    answer: Callable[..., Any], n: int, batch_size: int, world_size: int, number: int
) -> Split:
    import torch

    split = []
    for rank in range(world_size):
        torch.manual_seed(rank)  # as on ranks, whose global seeds differ
        split.append(answer(n, batch_size, number, rank, world_size))
    return split


def _type(numbers: Any) -> str:
    """The dtype; of what has none, its type."""
    return str(getattr(numbers, "dtype", type(numbers).__name__))


def _batches(split: Split) -> list[list[int]]:
    by_step = zip(*split, strict=False)
    return [sorted(chain(*(numbers.tolist() for numbers in of_ranks))) for of_ranks in by_step]


def _evenness(split: Split) -> str:
    """ "even", or the first step in which a rank has more than one number more than another."""
    lengths = [list(map(len, of_ranks)) for of_ranks in zip(*split, strict=True)]
    uneven = (
        f"{each} in step {step}" for step, each in enumerate(lengths) if max(each) > min(each) + 1
    )
    return next(uneven, "even")


def _samples(taken: list[int], n: int) -> str | dict[str, int]:
    """ "each once", or how many are missing and how many too many, and which is the largest."""
    different = set(taken)
    missing, again = len(set(range(n)) - different), len(taken) - len(different)
    wrong = {"missing": missing, "too many": again, "largest": max(taken, default=-1)}
    return "each once" if taken == list(range(n)) else wrong


def drawn(rng: random.Random) -> list[tuple[int, int, int]]:
    """Numbers in an epoch, batch size and ranks, of each case: the last batch is shorter mostly."""
    a, b, c, d, e = (rng.randrange(3) for _ in range(5))
    return [
        ((3 + a) * (4 + 2 * b), 4 + 2 * b, 2),  # even parts
        (3 * (14 + c) + 2, 14 + c, 4),  # two ranks have nothing of the last batch
        (2 * (16 + 3 * d) + 8, 16 + 3 * d, 3),  # chunk makes 6, 6 and 4, or alike
        (8 + e + 2, 8 + e, 4),
        (40 + a, 20 + b, 1),
    ]
