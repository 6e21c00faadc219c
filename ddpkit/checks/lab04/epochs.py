"""The observation of an epoch that an answer splits among the ranks."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

from ddpkit.checks.shared.seeds import touches_global_seed
from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer

Split: TypeAlias = "list[list[Tensor]]"  # [rank][step]: tensors of numbers

LARGE = 40  # numbers in an epoch: a shuffle of so many numbers changes some batch
# added to an epoch; several numbers, because an answer may use the epoch modulo a number
LATER = (1, 2, 3, 5, 10)


def epoch(answer: Answer, n: int, batch_size: int, world_size: int, number: int) -> Observed:
    """Observe the sample numbers of all ranks in an epoch, and the order in later epochs."""
    touched = touches_global_seed(lambda: answer(n, batch_size, number, 0, world_size))
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
        in_order = all(_is_run(batch, n) for batch in batches)
        seen["order"] = "as they come" if in_order else "shuffled"
        again = any(_batches(each) == batches for each in others)
        seen["other epochs"] = "the same" if again else "others"
        seen["global seed"] = "used" if touched else "left alone"
    return seen


def _split(answer: Answer, n: int, batch_size: int, world_size: int, number: int) -> Split:
    import torch

    split = []
    for rank in range(world_size):
        torch.manual_seed(rank)  # ranks have different global seeds
        split.append(answer(n, batch_size, number, rank, world_size))
    return split


def _type(numbers: object) -> str:
    """Return the dtype of a tensor as text; for other values, the name of the type."""
    return str(getattr(numbers, "dtype", type(numbers).__name__))


def _batches(split: Split) -> list[list[int]]:
    by_step = zip(*split, strict=False)
    return [sorted(chain(*(numbers.tolist() for numbers in of_ranks))) for of_ranks in by_step]


def _is_run(batch: list[int], n: int) -> bool:
    """True if a sorted batch has numbers that follow each other; 0 follows n - 1."""
    following = zip(batch, batch[1:] + batch[:1], strict=True)
    return sum((b - a) % n != 1 for a, b in following) <= 1


def _evenness(split: Split) -> str:
    """Return "even", or the first step in which two ranks' lengths differ by more than 1."""
    lengths = [list(map(len, of_ranks)) for of_ranks in zip(*split, strict=True)]
    uneven = (
        f"{each} in step {step}" for step, each in enumerate(lengths) if max(each) > min(each) + 1
    )
    return next(uneven, "even")


def _samples(taken: list[int], n: int) -> str | dict[str, int]:
    """Return "each once", or the counts of missing and repeated samples and the largest number."""
    different = set(taken)
    missing, again = len(set(range(n)) - different), len(taken) - len(different)
    wrong = {"missing": missing, "too many": again, "largest": max(taken, default=-1)}
    return "each once" if taken == list(range(n)) else wrong


def drawn(rng: random.Random) -> list[tuple[int, int, int]]:
    """Draw cases as triples: the size of the epoch, the batch size, and the number of ranks.

    Most of the epochs end with a short batch.
    """
    a, b, c, d, e = (rng.randrange(3) for _ in range(5))
    return [
        ((3 + a) * (4 + 2 * b), 4 + 2 * b, 2),  # parts of equal lengths
        (3 * (14 + c) + 2, 14 + c, 4),  # the last batch has no number for two of the ranks
        # torch.chunk cuts 16, 19 or 22 numbers unevenly, for example into 6, 6 and 4
        (2 * (16 + 3 * d) + 8, 16 + 3 * d, 3),
        (8 + e + 2, 8 + e, 4),
        (40 + a, 20 + b, 1),
    ]
