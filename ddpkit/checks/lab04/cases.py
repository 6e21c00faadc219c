"""Lab 04: data parallel. Each answer must give one process's results, with the right calls."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ddpkit.checks.lab04 import gradients as grads
from ddpkit.checks.lab04 import hints, replicas
from ddpkit.checks.lab04.epochs import LARGE, drawn, epoch
from ddpkit.checks.lab04.sets import unordered
from ddpkit.checks.shared import training
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Looks, asked, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch.nn import Module

    from ddpkit.exercises.guard import Answer


Missing = dict[int, tuple[int, ...]]  # rank -> numbers of its gradients that are None

OTHER_SETS = "2 ranks, sets in another order on each"
AVERAGES = {  # rank 0's calls, the calls in words, the module in the case with 3 ranks, hints
    # gloo's scatter copies memory as it lies. If the strides of the mean and of the gradient
    # differ, the mean arrives transposed. This exercise is not about strides, hence "linear".
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
TRAININGS = (  # title, lengths of the parts [step][rank], momentum (None: use the default)
    ("2 ranks, even parts", ((3, 3), (3, 3), (3, 3)), None),
    ("4 ranks, momentum, uneven parts", ((3, 2, 2, 2), (2, 2, 2, 2), (2, 1, 1, 1)), 0.9),
    ("3 ranks, an empty part", ((2, 2, 2), (1, 1, 0), (2, 2, 1)), 0.5),
    ("1 rank, momentum", ((4,), (4,), (1,)), 0.9),
)


@exercise("broadcast_parameters", lab="04", points=2, returns=False)
def broadcast_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that all parameters and buffers of one rank are copied to all ranks, in place."""
    for n, src in ((2, 0), (4, None), (3, 2), (3, 1), (1, 0)):
        root = src or 0
        seed = rng.randrange(10**6)
        models = [replicas.model(seed, rank) for rank in range(n)]
        sent = {name: tensor.clone() for name, tensor in replicas.tensors(models[root]).items()}
        nbytes = sum(tensor.numel() * tensor.element_size() for tensor in sent.values())
        call = partial(replicas.broadcast, answer)
        yield Case(
            title(n, "src left out" if src is None else f"from rank {src}"),
            asked(
                call,
                PerRank(models),
                *(() if src is None else (src,)),
                world_size=n,
                see={"replicas": "returned", "moved": replicas.moved},
            ),
            {
                "model": replicas.flat(sent),
                f"like rank {root}": "all",
                "in place": True,
                "buffers in place": True,
                "frozen": "as before",
                "sent": "all",
            },
            read=partial(replicas.compared, sent=sent, src=root, nbytes=nbytes if n > 1 else 0),
            hints=hints.BROADCAST_PARAMETERS,
            given={"src": root},
            trivial=n == 1,
        )


@exercise("shard", lab="04", points=2)
def shard(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that the ranks share out every batch of an epoch, by one random permutation."""
    for n, batch_size, world_size in drawn(rng):
        shuffled = {"order": "shuffled", "other epochs": "others", "global seed": "left alone"}
        yield Case(
            f"{n} by {batch_size}, {title(world_size)}",
            partial(epoch, answer, n, batch_size, world_size, rng.randrange(10**6)),
            {
                "batches": [min(batch_size, n - at) for at in range(0, n, batch_size)],
                "parts": "even",
                "samples": "each once",
                **(shuffled if n >= LARGE else {}),
            },
            hints=hints.SHARD,
            given={"n": n, "batch_size": batch_size, "world_size": world_size},
            trivial=world_size == 1,
        )


OLD_OF_FROZEN = "equal shapes, one frozen after a backward"


@exercise("gradients_of", lab="04", points=1)
def gradients_of(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a list of gradients: zeros for None, shared ones once, no frozen parameters."""
    for about, kind, missing in (
        ("a Linear", "linear", ()),
        ("one gradient is None", "linear", (1,)),
        ("shared and frozen ones, two dtypes", "mixed", ()),
        ("all are None", "mixed", (0, 1, 2, 3)),
        (OLD_OF_FROZEN, "alike", (0, 2)),
    ):
        own = grads.drawn_gradients(kind, rng.randrange(10**6), missing)
        own = grads.with_old(kind, own) if about == OLD_OF_FROZEN else own
        yield Case(
            about,
            partial(grads.listed, answer, grads.module(kind), own),
            {
                "gradients": grads.due(kind, own),
                "the very .grad": True,
                "frozen .grad": "as before",
            },
            read=partial(grads.looked_at_list, kind, own),
            hints=hints.GRADIENTS_OF,
            trivial=about == "a Linear",
        )


def _average(name: str, answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield the cases of an average: plain gradients, one None, mixed modules, and one rank.

    `gradients.module` explains mixed modules.
    """
    calls, makes, three, table = AVERAGES[name]
    rows: list[tuple[str, int, str, Missing]] = [
        ("4 ranks", 4, "linear", {}),
        ("3 ranks, one None", 3, three, {1: (0,)}),
        ("2 ranks, mixed", 2, "mixed", {0: (2, 3), 1: (0, 3)}),
        ("1 rank, one None", 1, "linear", {0: (1,)}),
    ]
    if name == "average_flat":
        rows.insert(3, (OTHER_SETS, 2, "mixed", {}))
    for about, n, kind, missing in rows:
        own = [
            grads.drawn_gradients(kind, rng.randrange(10**6), missing.get(rank, ()))
            for rank in range(n)
        ]
        nets = [grads.module(kind, rng.randrange(1, 50)) for _ in range(n)]
        sums = grads.summed(kind, own)
        see: Looks = {"gave": "returned"}
        expect: Observed = {"means": [grads.divided(sums, n)] * n, "parameters": "kept"}
        if n > 1:  # a single rank needs no call
            see = {**see, "calls": grads.calls}
            expect = {**expect, "calls": calls.format(**grads.counts(kind))}
            if name == "average_by_gather":
                see, expect = {**see, "root": grads.root}, {**expect, "root": 0}
        ask = partial(_averages, kind == "strided", nets, own, see)
        yield Case(
            about,
            partial(_of_other_sets, ask, answer) if about == OTHER_SETS else partial(ask, answer),
            expect,
            read=partial(
                grads.looked_at_means, [[p.detach() for p in net.parameters()] for net in nets]
            ),
            hints=table,
            given={
                "n": n,
                "missing": missing,
                "own": own,
                "sums": sums,
                "makes": makes,
                "shared": kind == "mixed",
                "sets": about == OTHER_SETS,
            },
            trivial=n == 1,
        )


def _averages(
    strided: bool, nets: list[Module], own: list[grads.Gradients], see: Looks, answer: Answer
) -> Observed:
    call = partial(grads.averaged, answer, strided)
    return asked(call, PerRank(nets), PerRank(own), world_size=len(nets), see=see)()


def _of_other_sets(ask: Callable[[Answer], Observed], answer: Answer) -> Observed:
    return ask(unordered(answer))


@exercise("average_by_gather", lab="04", points=2, returns=False)
def average_by_gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the mean of all ranks' gradients, computed on rank 0."""
    yield from _average("average_by_gather", answer, rng)


@exercise("average_per_parameter", lab="04", points=1, returns=False)
def average_per_parameter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the mean of all ranks' gradients, with one all_reduce for each parameter."""
    yield from _average("average_per_parameter", answer, rng)


@exercise("average_flat", lab="04", points=3, returns=False)
def average_flat(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the mean of all ranks' gradients, with one all_reduce for each dtype."""
    yield from _average("average_flat", answer, rng)


@exercise("train", lab="04", points=3, returns=False)
def train(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that training on ranks gives the parameters of one process on the whole batches."""
    for about, lengths, momentum in TRAININGS:
        task = training.Training(lengths, momentum or 0.0, rng.randrange(10**6))
        models = [training.model(task.seed + rank) for rank in range(task.n)]
        whole, several = sum(p.nbytes for p in models[0].parameters()), task.n > 1
        yield Case(
            about,
            asked(
                partial(training.steps, answer),
                PerRank(models),
                PerRank(task.by_rank()),
                *(() if momentum is None else (momentum,)),
                world_size=task.n,
                see=training.SEE,
            ),
            {
                "steps": len(lengths),
                "start": "alike",
                "after each": Close(task.trained(), digits=5),
                "ranks": "alike",
                "for training": True,
                "handed in": [
                    Between(several * whole * sum(map(bool, own)), _enough(whole, lengths))
                    for own in zip(*lengths, strict=True)
                ],
            },
            hints=hints.TRAIN,
            given=task,
            trivial=task.n == 1,
        )


def _enough(whole: int, lengths: training.Lengths) -> int:
    """Return an upper limit for the bytes of the first broadcast and all steps.

    The limit also allows a root that sends to itself.
    """
    return (len(lengths) + 1) * (len(lengths[0]) + 2) * whole
