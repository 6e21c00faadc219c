"""Lab 04: data parallel. Whether each answer does what one process would, and with which calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ddpkit.checks.lab04 import gradients as grads
from ddpkit.checks.lab04 import hints, replicas, training
from ddpkit.checks.lab04.epochs import LARGE, epoch
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Looks, asked, title
from ddpkit.exercises.values import Close
from ddpkit.protocol.per_rank import PerRank

Answer = Callable[..., Any]

EPOCHS = ((12, 4, 2), (50, 16, 4), (40, 16, 3), (10, 8, 4), (40, 20, 1))
AVERAGES = {  # the calls on a rank, the same in words, which gradients 3 ranks have, hints
    # gloo scatters memory as it lies: a mean with other strides than the gradient would arrive
    # transposed, which is no matter of this exercise.
    "average_by_gather": (
        "gather ×{count}, scatter ×{count}, {twice} B",
        "one gather and one scatter for each parameter",
        "linear",
        hints.AVERAGE,
    ),
    "average_per_parameter": (
        "all_reduce ×{count}, {nbytes} B",
        "one all_reduce for each parameter",
        "strided",
        hints.AVERAGE,
    ),
    "average_flat": (
        "all_reduce ×{dtypes}, {nbytes} B",
        "one all_reduce for all gradients of a dtype",
        "strided",
        hints.AVERAGE_FLAT,
    ),
}
TRAININGS = (  # title, lengths of the parts [step][rank], momentum
    ("2 ranks, even parts", ((3, 3), (3, 3), (3, 3)), 0.0),
    ("4 ranks, momentum, uneven parts", ((3, 2, 2, 2), (2, 2, 2, 2), (2, 1, 1, 1)), 0.9),
    ("3 ranks, an empty part", ((2, 2, 2), (1, 1, 0), (2, 2, 1)), 0.5),
    ("1 rank, momentum", ((4,), (4,), (1,)), 0.9),
)


@exercise("broadcast_parameters", lab="04", points=2, returns=False)
def broadcast_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Parameters, frozen ones and all buffers as one rank has them, in place."""
    for n, src in ((2, 0), (4, 0), (3, 2), (1, 0)):
        seed = rng.randrange(1000)
        sent = replicas.tensors(replicas.model(seed, src))
        call = partial(replicas.broadcast, answer)
        yield Case(
            title(n, f"from rank {src}"),
            asked(call, src, seed, world_size=n, see={"replicas": "returned"}),
            {
                "model": replicas.flat(sent),
                f"like rank {src}": "all",
                "in place": True,
                "frozen": "as before",
            },
            read=partial(replicas.compared, sent=sent, src=src),
            hints=hints.BROADCAST_PARAMETERS,
            given={"src": src},
        )


@exercise("shard", lab="04", points=2)
def shard(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A partition of every batch and of every epoch, the same permutation on all ranks."""
    for n, batch_size, world_size in EPOCHS:
        shuffled = {"order": "shuffled", "next epoch": "another"} if n >= LARGE else {}
        yield Case(
            f"{n} by {batch_size}, {title(world_size)}",
            partial(epoch, answer, n, batch_size, world_size, rng.randrange(100)),
            {
                "batches": [min(batch_size, n - at) for at in range(0, n, batch_size)],
                "parts": "even",
                "samples": "each once",
                **shuffled,
            },
            hints=hints.SHARD,
            given={"n": n, "world_size": world_size},
        )


@exercise("gradients_of", lab="04", points=1)
def gradients_of(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """One list on every rank: missing ones as zeros, shared ones once, no frozen ones."""
    for about, kind, missing in (
        ("a Linear", "linear", ()),
        ("one gradient is None", "linear", (1,)),
        ("shared and frozen ones, two dtypes", "mixed", ()),
        ("all are None", "mixed", (0, 1, 2, 3)),
    ):
        seed = rng.randrange(1000)
        yield Case(
            about,
            partial(grads.listed, answer, kind, seed, missing),
            {
                "gradients": grads.due(kind, seed, missing),
                "the very .grad": True,
                "frozen .grad": "None",
            },
            hints=hints.GRADIENTS_OF,
        )


def _average(name: str, answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Cases: plain; one missing; shared, frozen ones and two dtypes; one rank, alone."""
    calls, makes, three, table = AVERAGES[name]
    for about, n, kind, missing in (
        ("4 ranks", 4, "linear", {}),
        ("3 ranks, one None", 3, three, {1: (0,)}),
        ("2 ranks, mixed", 2, "mixed", {0: (0, 3), 1: (3,)}),
        ("1 rank, one None", 1, "linear", {0: (1,)}),
    ):
        seed = rng.randrange(1000)
        own = grads.by_rank(kind, n, seed, missing)
        sums = grads.summed(kind, own)
        see: Looks = {"means": "returned"}
        expect: Observed = {"means": [grads.divided(sums, n)] * n}
        if n > 1:  # alone, a rank may do without any call
            see = {**see, "calls": grads.calls}
            expect = {**expect, "calls": calls.format(**grads.counts(kind))}
        yield Case(
            about,
            asked(partial(grads.averaged, answer), kind, seed, missing, world_size=n, see=see),
            expect,
            hints=table,
            given={"n": n, "missing": missing, "own": own, "sums": sums, "makes": makes},
        )


@exercise("average_by_gather", lab="04", points=2, returns=False)
def average_by_gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, through rank 0."""
    yield from _average("average_by_gather", answer, rng)


@exercise("average_per_parameter", lab="04", points=1, returns=False)
def average_per_parameter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, one all_reduce a parameter."""
    yield from _average("average_per_parameter", answer, rng)


@exercise("average_flat", lab="04", points=3, returns=False)
def average_flat(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean of all ranks' gradients, one all_reduce a dtype."""
    yield from _average("average_flat", answer, rng)


@exercise("train", lab="04", points=3, returns=False)
def train(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """After every step what one process has that trains on the whole batches."""
    for about, lengths, momentum in TRAININGS:
        task = training.Training(lengths, momentum, rng.randrange(1000))
        arguments = PerRank(task.by_rank()), momentum, task.seed
        call = partial(training.steps, answer)
        yield Case(
            about,
            asked(call, *arguments, world_size=task.n, see=training.SEE),
            {
                "steps": len(lengths),
                "start": "alike",
                "after each": Close(task.trained(), digits=5),
                "ranks": "alike",
            },
            hints=hints.TRAIN,
            given=task,
        )
