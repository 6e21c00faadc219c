"""Lab 06: averages that overlap with backward, and a DistributedDataParallel built from them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab06.hints import (
    AVERAGE,
    NO_SYNC,
    PARAMETERS,
    REBUILT,
    REDUCER,
    UNUSED,
)
from ddpkit.checks.lab06.traces import all_reduces, before_it_sends
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import asked, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

KB = 1024


# average


@exercise("average", lab="06", points=1)
def average(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that an average over the ranks is started, and that the answer does not wait for it."""
    import torch

    from ddpkit.checks.lab06.on_ranks import started

    small = ((2, "float32"), (4, "float64"), (3, "float32"), (1, "float32"))
    drawn = [(dtype, _values(n, rng.randrange(5001, 5050))) for n, dtype in small]
    large = [[64.0 * rng.randrange(560, 750), 2.0 * rng.randrange(1, 50)] for _ in range(2)]
    for dtype, values in (*drawn, ("float16", large)):
        flats = [torch.tensor(each, dtype=getattr(torch, dtype)) for each in values]
        mean = [sum(column) / len(column) for column in zip(*values, strict=True)]
        yield Case(
            title(len(flats), dtype),
            asked(
                partial(started, answer),
                PerRank(flats),
                world_size=len(flats),
                see={"buffers": "returned", "all-reduces": lambda did: len(before_it_sends(did))},
            ),
            {"buffers": [torch.tensor(mean, dtype=flats[0].dtype)] * len(flats), "all-reduces": 1},
            hints=AVERAGE,
            given={"flats": flats, "n": len(flats)},
            trivial=len(flats) == 1,
        )


def _values(n: int, base: int) -> list[list[float]]:
    """Return four numbers for each rank; float32 holds their mean exactly, and float16 does not."""
    return [[n * (base + 3 * rank + i) / 2 for i in range(4)] for rank in range(n)]


# Reducer

PLAYED = (  # buckets, then backwards: the order in which gradients become ready
    ("3 buckets, in order", [[2], [1], [0]], [[2, 1, 0]]),
    ("2 in each, in order", [[3, 2], [1, 0]], [[3, 2, 1, 0]]),
    ("last bucket first", [[2], [1], [0]], [[0, 1, 2]]),
    ("two backwards", [[2, 1], [0]], [[0, 2, 1], [1, 2, 0]]),
)


@exercise("Reducer", lab="06", points=4)
def reducer_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that full buckets start in order, and that wait() waits once for each bucket."""
    from ddpkit.checks.lab06.reducer import expected, play

    shuffled = ("in random order", [[5, 4], [3], [2, 1, 0]], [rng.sample(range(6), 6)])
    never = ("one is never ready", [[4, 3], [2, 1], [0]], [[4, 3, rng.choice((1, 2)), 0]])
    for about, buckets, backwards in (*PLAYED, shuffled, never):
        named = rng.sample(range(9), sum(map(len, buckets)))  # parameters not drawn have no bucket
        buckets, backwards = (
            [[named[i] for i in row] for row in rows] for rows in (buckets, backwards)
        )
        yield Case(
            about,
            partial(play, answer, buckets, backwards),
            expected(buckets, backwards),
            hints=REDUCER,
            given={"own": [[i + 1 for i in bucket] for bucket in buckets]},
        )


# rebuilt_buckets

MANY = 2101  # parameters; float16 holds 2,100, so that a rounded place is still a place
MOST_OF_AN_ORDER = 16  # bytes for a place; a rank may pass at most so many to torch.distributed
MOST_BESIDES = 4096  # more bytes that a rank may pass


@exercise("rebuilt_buckets", lab="06", points=2)
def rebuilt_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that all ranks rebuild the buckets in the order of rank 0's gradients."""
    from ddpkit.checks.lab06.on_ranks import rebuilt

    for about, n, size, cap, first in (
        ("2 ranks that saw the same", 2, 4, 2 * KB, None),
        # a byte cannot hold all places of so many parameters, and float16 cannot either
        ("3 ranks that saw different orders", 3, MANY, KB, None),
        ("4 ranks, 8 parameters", 4, 8, 4 * KB, None),
        ("2 ranks, a small first bucket", 2, 8, 4 * KB, KB),
    ):
        alike = about.endswith("the same")
        ready = [rng.sample(range(size), size)] * n if alike else _orders(rng, n, size, cap)
        caps = cap / 2**20, first and first / 2**20
        most = MOST_OF_AN_ORDER * size + MOST_BESIDES
        yield Case(
            about,
            asked(
                partial(rebuilt, answer),
                PerRank(ready),
                *caps,
                world_size=n,
                see={"buckets": "returned", "handed in": "handed_in"},
            ),
            {
                "buckets": [_assigned(ready[0], cap, first or cap)] * n,
                "handed in": [
                    Between(0 if alike else size, most),
                    *[Between(0, most)] * (n - 1),  # only rank 0's order is used
                ],
            },
            hints=REBUILT,
            given={"ready": ready},
            trivial=alike,
        )


def _orders(rng: random.Random, n: int, size: int, cap: int) -> list[list[int]]:
    """Draw an order of the parameters for each rank.

    No two of the orders give the same buckets, and a smaller first cap changes the buckets of each
    order.
    """
    while True:
        ready = [rng.sample(range(size), size) for _ in range(n)]
        made = {str(_assigned(order, cap, first)) for order in ready for first in (cap, KB)}
        if len(made) == n * len({cap, KB}) and sorted(ready[0]) not in (ready[0], ready[0][::-1]):
            return ready


def _assigned(order: list[int], cap: int, first: int) -> list[list[int]]:
    """Return the buckets of parameters in this order; `nbytes_of` gives their bytes.

    A bucket closes when its bytes reach the cap; the first bucket has its own cap.
    """
    from ddpkit.checks.lab06.on_ranks import nbytes_of

    buckets: list[list[int]] = [[]]
    for i in order:
        buckets[-1].append(i)
        if sum(map(nbytes_of, buckets[-1])) >= (first if len(buckets) == 1 else cap):
            buckets.append([])
    return [bucket for bucket in buckets if bucket]


# unused_parameters


@exercise("unused_parameters", lab="06", points=3)
def unused_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the parameters that the answer finds unused: the output's graph does not reach them."""
    from ddpkit.checks.lab06.graphs import GRAPHS, NO_GRAPH, Graph, drawn, unused

    model, unreached = drawn(rng)
    at_random: Graph = ("at random", unused, model, unreached)
    for about, ask, build, places in (*GRAPHS, at_random):
        order = rng.sample(range(PARAMETERS), PARAMETERS)
        yield Case(
            about,
            partial(ask, answer, build, order),
            {"unused": sorted(order[place] for place in places)},
            hints=UNUSED,
            trivial=about == NO_GRAPH,
        )


# no_sync


@exercise("no_sync", lab="06", points=2)
def no_sync(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check no_sync: no all-reduce inside the block, and the old flag afterwards."""
    from ddpkit.checks.lab06.on_ranks import accumulated

    several = rng.sample([(True, ""), (True, "KeyError"), (False, ""), (False, "KeyError")], 4)
    for about, tries, trivial in (
        ("the flag", [(True, "")], True),
        ("an exception inside", [(True, "KeyError"), (True, "KeyboardInterrupt")], False),
        ("inside another no_sync", [(False, "")], True),
        ("4 times, in any order", several, False),
    ):
        yield Case(
            about,
            partial(_flags, answer, tries),
            {
                "inside": [False for _ in tries],
                "after": [before for before, _ in tries],
                "raised": [fails or "nothing" for _, fails in tries],
            },
            hints=NO_SYNC,
            given={"tries": tries},
            trivial=trivial,
        )
    values = [[rng.randrange(1, 40) / 2 for _ in range(3)] for _ in range(2)]
    mean = sum(map(sum, values)) / 2
    yield Case(
        "torch's DDP, 3 backwards on 2 ranks, 2 of them inside",
        asked(
            partial(accumulated, answer),
            PerRank(values),
            world_size=2,
            see={"all-reduces": lambda did: len(all_reduces(did.trace)), "gradients": "returned"},
        ),
        {"all-reduces": 1, "gradients": [Close([mean, mean])] * 2},
        hints=NO_SYNC,
        trivial=True,
    )


def _flags(answer: Answer, tries: Sequence[tuple[bool, str]]) -> Observed:
    """Observe the flag inside the block and afterwards, and the exception that leaves the block.

    Each of `tries` holds the value of the flag before the block, and the name of the exception that
    is raised inside the block; "" stands for no exception.
    """
    seen: dict[str, list[Any]] = {"inside": [], "after": [], "raised": []}
    for before, fails in tries:
        ddp, raised, inside = SimpleNamespace(require_backward_grad_sync=before), "nothing", None
        try:
            with answer(ddp):
                inside = ddp.require_backward_grad_sync
                if fails:
                    raise KeyboardInterrupt if fails == "KeyboardInterrupt" else KeyError("inside")
        except (KeyError, KeyboardInterrupt) as error:
            raised = type(error).__name__
        for name, value in zip(seen, (inside, ddp.require_backward_grad_sync, raised), strict=True):
            seen[name].append(value)
    return seen


# DistributedDataParallel


@exercise("DistributedDataParallel", lab="06", points=6)
def distributed_data_parallel(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an answer's DDP: torch's gradients to the bit, torch's all-reduces, torch's memory."""
    from ddpkit.checks.lab06.wrapped import questions

    yield from questions(answer, rng)
