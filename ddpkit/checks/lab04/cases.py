"""Lab 04: data parallel. Whether each answer does what one process would, and with which calls.

Here stand the cases; in `_lab04_*.py`, what is put to an answer and what it made of it (a model to
be sent, an epoch to be split, gradients to be averaged, a whole training run), and the hints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ddpkit.checks.lab04 import gradients as problem
from ddpkit.checks.lab04 import start
from ddpkit.checks.lab04.hints import average_hint, list_hint, shard_hint, start_hint
from ddpkit.checks.lab04.shard import LARGE, epoch
from ddpkit.checks.lab04.train import Training, trained
from ddpkit.exercises.exercise import Case, exercise
from ddpkit.exercises.values import Close
from ddpkit.text import count

Answer = Callable[..., Any]


def _ranks(world_size: int) -> str:
    return count(world_size, "rank")


# broadcast_parameters


@exercise("broadcast_parameters", lab="04", points=2)
def broadcast_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Parameters, frozen ones and all buffers as one rank has them, in place."""
    for world_size, src in ((2, 0), (4, 0), (3, 2), (1, 0)):
        seed = rng.randrange(1000)
        yield Case(
            f"{_ranks(world_size)}, from rank {src}",
            observe=partial(start.observe, answer, world_size, src, seed),
            expect={
                "model": start.values(seed, src),
                f"like rank {src}": "all",
                "in place": True,
                "frozen": "as before",
            },
            hint=partial(start_hint, src=src),
        )


# shard


@exercise("shard", lab="04", points=2)
def shard(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A partition of every batch and of every epoch, the same permutation on all ranks."""
    sizes = ((12, 4, 2), (50, 16, 4), (40, 16, 3), (10, 8, 4), (40, 20, 1))
    for n, batch_size, world_size in sizes:
        whole, rest = divmod(n, batch_size)
        expect: dict[str, object] = {
            "batches": [batch_size] * whole + [rest] * (rest > 0),
            "parts": "even",
            "samples": "each once",
        }
        if n >= LARGE:
            expect |= {"order": "shuffled", "next epoch": "another"}
        yield Case(
            f"{n} by {batch_size}, {_ranks(world_size)}",
            observe=partial(epoch, answer, n, batch_size, world_size, rng.randrange(100)),
            expect=expect,
            hint=partial(shard_hint, n=n, world_size=world_size),
        )


# gradients_of


@exercise("gradients_of", lab="04", points=1)
def gradients_of(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The same list on every rank: missing ones as zeros, shared ones once, no frozen ones."""
    for title, kind, missing in (
        ("a Linear", "linear", ()),
        ("one gradient is None", "linear", (1,)),
        ("shared and frozen ones, two dtypes", "mixed", ()),
        ("all are None", "mixed", tuple(range(problem.TRAINED["mixed"]))),
    ):
        seed = rng.randrange(1000)
        yield Case(
            title,
            observe=partial(problem.listed, answer, kind, seed, missing),
            expect={
                "gradients": problem.gradients(kind, seed, 0, missing, zeros=True),
                "the very .grad": True,
                "frozen .grad": "None",
            },
            hint=partial(list_hint, wanted=problem.gradients(kind, seed, 0, missing, zeros=True)),
        )


# The three averages


def _average_cases(name: str, answer: Answer, rng: random.Random) -> Iterator[Case]:
    """On 4, 3, 2 and 1 ranks: plain; one missing; shared, frozen, two dtypes; none alone."""
    # gloo scatters memory as it lies: a mean with other strides than the gradient would arrive
    # transposed, which is no matter of this exercise.
    three = "linear" if name == "average_by_gather" else "strided"
    for title, world_size, kind, missing in (
        ("4 ranks", 4, "linear", {}),
        ("3 ranks, one None", 3, three, {1: (0,)}),
        ("2 ranks, mixed", 2, "mixed", {0: (0, 3), 1: (3,)}),
        ("1 rank, one None", 1, "linear", {0: (1,)}),
    ):
        seed = rng.randrange(1000)
        task = problem.Task(kind, world_size, seed, missing)
        expect: dict[str, object] = {"means": task.expected()}
        if world_size > 1:
            expect["calls"] = problem.calls_of(name, kind)
        yield Case(
            title,
            observe=partial(problem.observe, answer, kind, world_size, seed, missing),
            expect=expect,
            hint=partial(average_hint, name=name, task=task),
        )


@exercise("average_by_gather", lab="04", points=2)
def average_by_gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, through rank 0."""
    yield from _average_cases("average_by_gather", answer, rng)


@exercise("average_per_parameter", lab="04", points=1)
def average_per_parameter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, one all_reduce a parameter."""
    yield from _average_cases("average_per_parameter", answer, rng)


@exercise("average_flat", lab="04", points=3)
def average_flat(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, one all_reduce a dtype."""
    yield from _average_cases("average_flat", answer, rng)


# train


@exercise("train", lab="04", points=3)
def train(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """After every step what one process has that trains on the whole batches."""
    for title, lengths, momentum in (
        ("2 ranks, even parts", [(3, 3), (3, 3), (3, 3)], 0.0),
        ("4 ranks, momentum, uneven parts", [(3, 2, 2, 2), (2, 2, 2, 2), (2, 1, 1, 1)], 0.9),
        ("3 ranks, an empty part", [(2, 2, 2), (1, 1, 0), (2, 2, 1)], 0.5),
        ("1 rank, momentum", [(4,), (4,), (1,)], 0.9),
    ):
        seed = rng.randrange(1000)
        training = Training(lengths, momentum, seed)
        yield Case(
            title,
            observe=partial(trained, answer, lengths, momentum, seed),
            expect={
                "steps": len(lengths),
                "start": "alike",
                "after each": Close(training.by_one_process(), digits=5),
                "ranks": "alike",
            },
            hint=training.hint,
        )
