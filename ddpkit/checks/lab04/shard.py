"""An epoch, split by an answer for every rank."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from ddpkit.exercises.exercise import Observed

Answer = Callable[..., Any]
Steps = list[list[list[int]]]  # the numbers by step and rank

LARGE = 40  # from so many numbers on, no shuffle leaves every batch as it was


def epoch(answer: Answer, n: int, batch_size: int, world_size: int, number: int) -> Observed:
    """What all ranks together take in an epoch, and whether the next one differs."""
    steps, following = (_steps(answer, n, batch_size, world_size, number + e) for e in (0, 1))
    if isinstance(steps, str) or isinstance(following, str):
        return {"batches": steps}
    batches, next_batches = _batches(steps), _batches(following)
    numbers = sorted(chain(*batches))
    in_order = [numbers[i : i + batch_size] for i in range(0, n, batch_size)]
    seen: dict[str, Any] = {
        "batches": [len(batch) for batch in batches],
        "parts": _evenness(steps),
        "samples": _samples(numbers, n),
    }
    if n >= LARGE:
        seen["order"] = "as they come" if batches == in_order else "shuffled"
        seen["next epoch"] = "the same" if batches == next_batches else "another"
    return seen


def _steps(answer: Answer, n: int, batch_size: int, world_size: int, number: int) -> Steps | str:
    """The parts by step and rank; if they are no int64 tensors, or the ranks differ in their number
    of steps, a word on it."""
    import torch

    by_rank = []
    for rank in range(world_size):
        torch.manual_seed(rank)  # as on ranks, whose global seeds differ
        parts = answer(n, batch_size, number, rank, world_size)
        for part in parts:
            kind = getattr(part, "dtype", type(part).__name__)
            if kind is not torch.int64:
                return f"of type {kind}"
        by_rank.append([part.tolist() for part in parts])
    counts = [len(parts) for parts in by_rank]
    if len(set(counts)) > 1:
        return f"by rank {counts}"
    return [list(parts) for parts in zip(*by_rank, strict=True)]


def _batches(steps: Steps) -> list[list[int]]:
    return [sorted(chain(*parts)) for parts in steps]


def _evenness(steps: Steps) -> str:
    for number, parts in enumerate(steps):
        lengths = [len(part) for part in parts]
        if max(lengths) - min(lengths) > 1:
            return f"{lengths} in step {number}"
    return "even"


def _samples(numbers: list[int], n: int) -> str:
    if numbers == list(range(n)):
        return "each once"
    missing = len(set(range(n)) - set(numbers))
    return f"{missing} missing, {len(numbers) - len(set(numbers))} too many"
