"""Lab 11: a pipeline of ranks, with one layer on each rank."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import floor
from typing import Any

from ddpkit.checks.lab11.hints import (
    BUBBLE,
    GPIPE,
    ONE_F_ONE_B,
    PIPELINE_STEP,
    RNN_LAYER,
    SPLIT_BACKWARD,
    TICKS,
)
from ddpkit.checks.lab11.replay import BACKWARD, FORWARD, in_words, replayed
from ddpkit.cluster.torchrun.job import active
from ddpkit.errors import LessonError
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.guard import Answer
from ddpkit.exercises.hint import Hint
from ddpkit.exercises.ranks import asked, timed, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank
from ddpkit.simulate.step.pipeline import Op, gpipe, one_f_one_b, op_name, pipeline_time
from ddpkit.text import count

MACHINE = "laptop core"  # emulated in cases with a link
SLACK = 1.03  # largest time allowed, as a multiple of a prediction that omits small operations
MANY = 16  # stages plus pieces; for fewer, an answer could hold all right results in a table

# ticks


@exercise("ticks", lab="11", points=1)
def ticks(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the list of the stages that work in each tick of a pipeline."""
    few = rng.randrange(3, 5)
    for stages, pieces in (
        (few, few + rng.randrange(1, 4)),
        (rng.randrange(2, 9), 1),
        (rng.randrange(60, 200), rng.randrange(3, 50)),  # more stages than pieces
        (1, rng.randrange(3, 12)),
        (rng.randrange(5, 60), rng.randrange(60, 200)),
    ):
        yield Case(
            f"{count(stages, 'stage')}, {count(pieces, 'piece')}",
            observe=partial(_ticks, answer, stages, pieces),
            expect={"ticks": _diagonals(stages, pieces)},
            read=_sorted,
            hints=TICKS,
            given={"stages": stages, "pieces": pieces},
            trivial=min(stages, pieces) == 1 or stages + pieces < MANY,
        )


def _diagonals(stages: int, pieces: int) -> list[list[tuple[int, int]]]:
    """Return the right ticks: tick t has all pairs (stage, piece) with stage + piece = t."""
    diagonals: list[list[tuple[int, int]]] = [[] for _ in range(stages + pieces - 1)]
    for stage, piece in product(range(stages), range(pieces)):
        diagonals[stage + piece].append((stage, piece))
    return diagonals


def _ticks(answer: Answer, stages: int, pieces: int) -> Observed:
    return {"ticks": answer(stages, pieces)}


def _sorted(observed: Observed) -> Observed:
    """Sort the pairs in each tick, if the ticks are lists of pairs."""
    ticks = observed["ticks"]
    try:
        return {"ticks": [sorted((int(a), int(b)) for a, b in tick) for tick in ticks]}
    except (TypeError, ValueError):
        return observed


# rnn_layer


@exercise("rnn_layer", lab="11", points=3, returns=False)
def rnn_layer(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a recurrent net with one layer on each rank, which sends its outputs one by one."""
    import torch
    from torch import nn

    from ddpkit.checks.lab11.alone import outputs_of
    from ddpkit.checks.lab11.on_ranks import F_S, forwards_and_sends, layer_of_rank, waits_ahead

    for n, steps, kind, dtype in (
        (2, 3, nn.RNNCell, "float64"),
        (4, 5, nn.GRUCell, "float32"),
        (1, 3, nn.RNNCell, "float32"),
    ):
        torch.manual_seed(rng.randrange(10**6))
        width, batch, of_dtype = rng.randrange(3, 6), 2, {"dtype": getattr(torch, dtype)}
        cells = [kind(width, width, **of_dtype) for _ in range(n)]
        start, *xs = torch.randn(1 + steps, batch, width, **of_dtype)
        empty = [torch.zeros_like(x) for x in xs]
        fresh = outputs_of(cells, xs[:1], start)
        sends = [sum(x.nbytes for x in xs)] * (n - 1)
        yield Case(
            title(n, count(steps, "step"), kind.__name__, dtype),
            asked(
                partial(layer_of_rank, answer),
                PerRank(cells),
                PerRank([xs, *[empty] * (n - 1)]),
                start,
                world_size=n,
                see={
                    "outputs": "returned",
                    "bytes": "bytes",
                    "order": forwards_and_sends,
                    "waits ahead": waits_ahead,
                },
            ),
            {
                "outputs": [*[[]] * (n - 1), Close(outputs_of(cells, xs, start))],
                "bytes": [*sends, 0],
                "order": [*["fs" * steps] * (n - 1), "f" * steps],
                "waits ahead": [0] * n,
            },
            hints=RNN_LAYER,
            given={"n": n, "expect_first": fresh[0]},
            trivial=n == 1,
        )
        if n == 4 and not active():  # torchrun emulates no link
            # A message takes as long as a step, and travels while the sender computes the next.
            link, due = "20 ms", (steps + n - 1 + n - 1) * 1e3 * F_S
            yield Case(
                title(n, count(steps, "step"), f"a link of {link}"),
                asked(
                    partial(layer_of_rank, answer),
                    PerRank(cells),
                    PerRank([xs, *[empty] * (n - 1)]),
                    start,
                    True,
                    world_size=n,
                    see={"outputs": "returned", "programs": "programs"},
                    machine=MACHINE,
                    link=link,
                ),
                {
                    "outputs": [*[[]] * (n - 1), Close(outputs_of(cells, xs, start))],
                    "ms": _about(due),
                },
                read=partial(_timed, link),
                hints=RNN_LAYER,
                given={"n": n, "expect_first": fresh[0], "link": link},
            )


def _about(ms: float) -> Between:
    """Return the range of measured times that is accepted if `ms` is predicted."""
    return Between(floor(ms), floor(SLACK * ms))


def _timed(link: str, observed: Observed) -> Observed:
    """Add the ms of the step; "not counted" if the answer computes in a thread of its own."""
    try:
        seen = timed(observed, MACHINE, link)
    except LessonError:
        rest = {name: value for name, value in observed.items() if name != "programs"}
        return {**rest, "ms": "not counted"}
    return {**seen, "ms": floor(seen["ms"])}


# gpipe and one_f_one_b


def _sizes(rng: random.Random) -> Iterator[tuple[int, int]]:
    """Yield random pairs (stages, micro-batches); no pair comes twice."""
    stages = rng.randrange(3, 6)
    yield stages, stages + rng.randrange(2, 6)
    yield 2, rng.randrange(3, 9)
    stages = rng.randrange(20, 120)
    yield stages, rng.randrange(4, stages - 1)  # fewer micro-batches than stages
    yield rng.randrange(3, 9), 1
    yield 1, rng.randrange(4, 12)
    yield rng.randrange(6, 60), rng.randrange(60, 180)


@exercise("gpipe", lab="11", points=1)
def gpipe_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check plans of GPipe: all forwards, then all backwards."""
    yield from _plans(answer, rng, GPIPE, lambda stages, micro: [micro] * stages)


@exercise("one_f_one_b", lab="11", points=3)
def one_f_one_b_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check plans of 1F1B: one backward after each forward, as early as possible."""
    yield from _plans(
        answer,
        rng,
        ONE_F_ONE_B,
        lambda stages, micro: [min(micro, stages - stage) for stage in range(stages)],
    )


def _plans(
    answer: Answer,
    rng: random.Random,
    hints: Sequence[Hint],
    held: Callable[[int, int], list[int]],
) -> Iterator[Case]:
    """Yield cases that replay an answer's plans for all stages, because several plans are right."""
    for stages, micro in _sizes(rng):
        shortest, least = float((micro + stages - 1) * (FORWARD + BACKWARD)), held(stages, micro)
        yield Case(
            f"{count(stages, 'stage')}, {count(micro, 'micro-batch')}",
            observe=partial(_all_stages, answer, stages, micro),
            expect={"step": in_words(shortest, least)},
            read=partial(replayed, stages=stages, micro=micro),
            hints=hints,
            given={"shortest": shortest, "least": least},
            trivial=min(stages, micro) == 1 or stages + micro < MANY,
        )


def _all_stages(answer: Answer, stages: int, micro: int) -> Observed:
    return {"plans": [answer(stage, stages, micro) for stage in range(stages)]}


# bubble


@exercise("bubble", lab="11", points=1)
def bubble(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the share of a step in which a rank of a pipeline does nothing."""
    for stages, micro in (
        # no two mistakes that have a hint give the same number here: micro != (stages - 1) ** 2
        (rng.randrange(5, 8), rng.randrange(8, 15)),
        (rng.randrange(60, 300), rng.randrange(2, 50)),
        (rng.randrange(2, 10), 1),
        (1, rng.randrange(3, 12)),
        (rng.randrange(20, 200), rng.randrange(200, 900)),
    ):
        share = (stages - 1) / (micro + stages - 1)
        yield Case(
            f"{count(stages, 'stage')}, {count(micro, 'micro-batch')}",
            observe=partial(_bubble, answer, stages, micro),
            expect={"bubble": Close(share, 5)},
            hints=BUBBLE,
            given={"stages": stages, "micro": micro, "expect_bubble": share},
            trivial=min(stages, micro) == 1 or stages < 8,
        )


def _bubble(answer: Answer, stages: int, micro: int) -> Observed:
    return {"bubble": answer(stages, micro)}


# pipeline_step


def _as_they_like(stage: int, stages: int, micro: int) -> list[Op]:
    """Return a plan of three micro-batches, with forwards 1, 2, 0 and backwards 2, 1, 0."""
    if stage < stages - 1:
        return [("F", 1), ("F", 2), ("F", 0), ("B", 2), ("B", 1), ("B", 0)]
    return [("F", 1), ("F", 2), ("B", 2), ("F", 0), ("B", 1), ("B", 0)]


STEPS = (  # about, plan, ranks, micro-batches, link, dtype of the inputs, dtype of the messages
    ("GPipe", gpipe, 2, 2, None, "float32", "float32"),
    ("1F1B", one_f_one_b, 2, 4, None, "int64", "float64"),
    ("GPipe", gpipe, 3, 4, "10 ms", "float32", "float32"),
    ("a generator's plan", _as_they_like, 3, 3, None, "float32", "float32"),
    ("1F1B", one_f_one_b, 4, 5, None, "float32", "float32"),
    ("1F1B", one_f_one_b, 1, 3, None, "float32", "float32"),
)


@exercise("pipeline_step", lab="11", points=5, returns=False)
def pipeline_step(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that a rank carries out its plan, with the gradients of one process."""
    import torch

    from ddpkit.checks.lab11.alone import whole_batch
    from ddpkit.checks.lab11.on_ranks import B_S, BEFORE, F_S, lopsided, of_ranks, step_of_rank

    for about, make, n, micro, between, of_inputs, dtype in STEPS:
        link, once = None if active() else between, "generator" in about
        torch.manual_seed(rng.randrange(10**6))
        plans = [make(stage, n, micro) for stage in range(n)]
        like = torch.zeros(2, 3, dtype=getattr(torch, dtype))
        weights = list(torch.randn(n, 3, 3, dtype=like.dtype))
        inputs = [torch.randn(2, 3).mul(2).to(getattr(torch, of_inputs)) for _ in range(micro)]
        targets = list(torch.randn(micro, 2, 3, dtype=like.dtype))
        order = [operation[1] for operation in plans[0] if operation[0] == "F"]
        mixed = [
            whole_batch(weights, [inputs[i] for i in xs], [targets[i] for i in ys], lopsided)[1]
            for xs, ys in ((order, range(micro)), (range(micro), order))
        ]
        loss, gradients = whole_batch(weights, inputs, targets, lopsided)
        _, turned = whole_batch(weights, inputs, targets, lambda y, target: lopsided(target, y))
        inner = [micro * ((rank < n - 1) + (rank > 0)) for rank in range(n)]
        nothing = [None] * micro
        expected = [BEFORE + gradient for gradient in gradients]
        yield Case(
            title(
                *(n, about, count(micro, "micro-batch")),
                *filter(None, (link and f"link {link}", of_inputs != dtype and dtype)),
            ),
            asked(
                partial(step_of_rank, answer),
                PerRank(plans),
                PerRank(weights),
                PerRank([inputs, *[nothing] * (n - 1)]),
                PerRank([*[nothing] * (n - 1), targets]),
                like,
                once,
                link is not None,
                world_size=n,
                see={
                    "gradient": of_ranks("gradient"),
                    "loss": of_ranks("loss"),
                    "order": of_ranks("order"),
                    "messages": "messages",
                    "collectives": "collectives",
                    "too long": of_ranks("too long"),
                    "graphs kept": of_ranks("graphs kept"),
                    "module": of_ranks("module"),
                    **({"programs": "programs"} if link else {}),
                },
                machine=MACHINE if link else None,
                link=link,
            ),
            {
                "gradient": Close(expected),
                "loss": [*[None] * (n - 1), Close(loss)],
                "order": [" ".join(map(op_name, plan)) for plan in plans],
                "messages": inner,
                "collectives": [],
                "too long": [0] * n,
                "graphs kept": [0] * n,
                "module": ["as it was"] * n,
                **({"ms": _about(_predicted(plans, link, F_S, B_S))} if link else {}),
            },
            read=partial(_timed, link) if link else None,
            hints=PIPELINE_STEP,
            given={
                "n": n,
                "micro": micro,
                "before": BEFORE,
                "once": once,
                "link": link,
                "expect_gradients": expected,
                "turned": turned,
                "mixed": mixed,
            },
            trivial=n == 1,
        )


def _predicted(plans: Sequence[Any], link: str, forward: float, backward: float) -> float:
    """Return the simulated time of a step with these plans, in ms."""
    return pipeline_time(plans, forward=forward, backward=backward, link=link).duration_ms


# split_backward


@exercise("split_backward", lab="11", points=2)
def split_backward(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a split backward: the input's gradient at once, the parameters' gradients later."""
    import torch

    from ddpkit.checks.lab11.alone import split
    from ddpkit.checks.lab11.on_ranks import both_parts

    for about, micro, before in (
        ("a micro-batch", 1, None),
        ("gradients from before", 1, 2.0),
        ("3 micro-batches, their second parts last", 3, None),
    ):
        torch.manual_seed(rng.randrange(10**6))
        weights = [torch.randn(3, 4), torch.randn(4, 2)]
        xs, gradients = ([torch.randn(5, width) for _ in range(micro)] for width in (3, 2))
        made = [split(x, g, weights) for x, g in zip(xs, gradients, strict=True)]
        alone = [sum(column) for column in zip(*(each for _, each in made), strict=True)]
        grown = [(before or 0.0) + gradient for gradient in alone]
        yield Case(
            about,
            partial(both_parts, answer, xs, gradients, weights, before),
            {
                "of x": [Close(of_x) for of_x, _ in made],
                "early": 0,
                "grads": [*map(Close, grown), None],
                "x.grad": [None] * micro,
                "freed": True,
                "with a graph": 0,
            },
            hints=SPLIT_BACKWARD,
            given={"expect_alone": made[-1][1]},
        )
