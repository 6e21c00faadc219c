"""Lab 06: averages that overlap with backward, and the DistributedDataParallel made of them."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from ddpkit.checks.lab06.hints import AVERAGE, DDP, NO_SYNC, REBUILT, REDUCER, UNUSED
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, Looks, asked, title
from ddpkit.exercises.values import Close
from ddpkit.protocol.per_rank import PerRank
from ddpkit.trace import Trace

Answer = Callable[..., Any]
KB = 1024


def all_reduces(trace: Trace) -> list[int]:
    """The bytes of each all_reduce of rank 0, as they were posted."""
    spans = sorted(trace.of(0), key=lambda span: span.start_ns)
    return [span.bytes for span in spans if span.name == "all_reduce"]


def communicated(trace: Trace) -> list[int]:
    """The bytes of everything that rank 0 sends or takes part in, as it was posted."""
    spans = sorted(trace.of(0), key=lambda span: span.start_ns)
    return [span.bytes for span in spans if span.is_comm]


def before_it_sends(did: Did) -> list[int]:
    """When rank 0 posts all_reduces, those before its first message."""
    spans = did.trace.of(0)
    first = min((span.start_ns for span in spans if span.is_send), default=math.inf)
    return [one.start_ns for one in spans if one.name == "all_reduce" and one.start_ns < first]


# average


@exercise("average", lab="06", points=1)
def average(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean over the ranks, started and not waited for."""
    import torch

    from ddpkit.checks.lab06.on_ranks import started

    small = ((2, "float32"), (4, "float64"), (3, "float32"), (1, "float32"))
    drawn = [(dtype, _values(n, rng.randrange(1, 50))) for n, dtype in small]
    for dtype, values in (*drawn, ("float16", [[40000.0, 2.0], [50000.0, 4.0]])):
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
        )


def _values(n: int, base: int) -> list[list[float]]:
    """Four numbers by rank, whose mean is no matter of rounding."""
    return [[n * (base + 3 * rank + i) / 2 for i in range(4)] for rank in range(n)]


# Reducer

PLAYED = (  # buckets; backwards, in which gradients become ready
    ("3 buckets, in order", [[2], [1], [0]], [[2, 1, 0]]),
    ("2 in each, in order", [[3, 2], [1, 0]], [[3, 2, 1, 0]]),
    ("last bucket first", [[2], [1], [0]], [[0, 1, 2]]),
    ("two backwards", [[2, 1], [0]], [[0, 2, 1], [1, 2, 0]]),
)


@exercise("Reducer", lab="06", points=4)
def reducer_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Starts a bucket when it is complete, in order, and waits once, at the end."""
    from ddpkit.checks.lab06.reducer import expected, play

    order = list(range(6))
    rng.shuffle(order)
    shuffled = ("in random order", [[5, 4], [3], [2, 1, 0]], [order])
    for about, buckets, backwards in (*PLAYED, shuffled):
        yield Case(
            about,
            partial(play, answer, buckets, backwards),
            expected(buckets, backwards),
            hints=REDUCER,
        )


# rebuilt_buckets


@exercise("rebuilt_buckets", lab="06", points=2)
def rebuilt_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Rank 0's order of readiness, in buckets, on every rank."""
    from ddpkit.checks.lab06.on_ranks import rebuilt

    shuffled = [rng.sample(range(8), 8) for _ in range(4)]
    while _assigned(shuffled[0], 4 * KB, KB) == _assigned(shuffled[0], 4 * KB, 4 * KB):
        shuffled[0] = rng.sample(range(8), 8)  # the first bucket's cap has to make a difference
    for about, ready, cap, first in (
        ("2 ranks that saw the same", [[3, 0, 1, 2]] * 2, 2 * KB, None),
        ("3 ranks that saw different orders", [[1, 0, 3, 2], [0, 1, 2, 3], [3, 2, 1, 0]], KB, None),
        ("4 ranks, 8 parameters", shuffled, 4 * KB, None),
        ("1 rank, a small first bucket", shuffled[:1], 4 * KB, KB),
    ):
        caps = cap / 2**20, first and first / 2**20
        yield Case(
            about,
            asked(
                partial(rebuilt, answer),
                PerRank(ready),
                *caps,
                world_size=len(ready),
                see={"buckets": "returned"},
            ),
            {"buckets": [_assigned(ready[0], cap, first or cap)] * len(ready)},
            hints=REBUILT,
            given={"ready": ready},
        )


def _assigned(order: list[int], cap: int, first: int) -> list[list[int]]:
    """Parameter i has i + 1 times 512 bytes; a bucket closes at the cap, the first at its own."""
    buckets: list[list[int]] = [[]]
    for i in order:
        buckets[-1].append(i)
        if sum(512 * (each + 1) for each in buckets[-1]) >= (first if len(buckets) == 1 else cap):
            buckets.append([])
    return [bucket for bucket in buckets if bucket]


# unused_parameters


@exercise("unused_parameters", lab="06", points=3)
def unused_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """What the graph of an output does not reach."""
    from ddpkit.checks.lab06.graphs import GRAPHS

    for about, ask, build, unused in GRAPHS:
        yield Case(about, partial(ask, answer, build), {"unused": unused}, hints=UNUSED)


# no_sync


@exercise("no_sync", lab="06", points=2)
def no_sync(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Silent inside, and as before afterwards, whatever happened."""
    from ddpkit.checks.lab06.on_ranks import accumulated

    for about, before, fails in (
        ("the flag", True, False),
        ("an exception inside", True, True),
        ("inside another no_sync", False, False),
    ):
        yield Case(
            about,
            partial(_flag, answer, before, fails),
            {"inside": False, "after": before, "raised": "KeyError" if fails else "nothing"},
            hints=NO_SYNC,
            given={"before": before, "fails": fails},
        )
    yield Case(
        "torch's DDP, 3 backwards on 2 ranks, 2 of them inside",
        asked(
            partial(accumulated, answer),
            world_size=2,
            see={"all-reduces": lambda did: len(all_reduces(did.trace)), "gradients": "returned"},
        ),
        {"all-reduces": 1, "gradients": [Close([8.0, 8.0])] * 2},
        hints=NO_SYNC,
    )


def _flag(answer: Answer, before: bool, fails: bool) -> Observed:
    ddp, raised, inside = SimpleNamespace(require_backward_grad_sync=before), "nothing", None
    try:
        with answer(ddp):
            inside = ddp.require_backward_grad_sync
            if fails:
                raise KeyError("inside")
    except KeyError:
        raised = "KeyError"
    return {"inside": inside, "after": ddp.require_backward_grad_sync, "raised": raised}


# DistributedDataParallel


def _on_their_way(did: Did) -> int | str:
    """How many all_reduces rank 0 posts before it tells rank 1, which it does after all layers."""
    posted = before_it_sends(did)
    layers = [one.end_ns for one in did.trace.of(0) if one.kind == "backward" and one.bytes]
    if len(posted) > 1 and min(posted) > max(layers):
        return "all after the last gradient"
    return len(posted)


# What is observed of the functions of `on_ranks`
LATE: Looks = {"on their way": _on_their_way, "ranks agree": lambda did: same(*did.returned)}
BESIDE_TORCHS: Looks = {
    "as torch's": lambda did: [as_torchs for as_torchs, _ in did.returned],
    "storages": lambda did: did.returned[0][1],
}
PARTLY_USED: Looks = {"as torch's": BESIDE_TORCHS["as torch's"], "None": BESIDE_TORCHS["storages"]}
TWO_FORWARDS: Looks = {
    "gradients": lambda did: did.returned[1][0],
    "a third adds": lambda did: did.returned[1][1],
}
OTHER_ORDER: Looks = {
    "before": lambda did: all_reduces(did.trace.step(0)),
    "after": lambda did: communicated(did.trace.step(2)),
}


@exercise("DistributedDataParallel", lab="06", points=6)
def distributed_data_parallel(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Torch's gradients bit for bit, torch's all-reduces, and one copy of the gradients."""
    from ddpkit.checks.lab06 import on_ranks
    from ddpkit.checks.lab06.models import alone

    rank_0s: Looks = {"gradients": lambda did: did.returned[0]}
    both = {"as torch's": [True, True], "storages": 4}
    sums = [a + b for a, b in zip(alone([0, 1]), alone([0, 1], step=1), strict=True)]
    # fmt: off
    rows: list[tuple[str, int, Answer, Looks, Observed, list[Any]]] = [
        ("3 ranks start alike", 3, on_ranks.start,
         {"rank 0's start": "returned"}, {"rank 0's start": [True] * 3}, []),
        ("rank 1 is late", 2, on_ranks.late,
         LATE, {"on their way": 4, "ranks agree": True}, []),
        ("4 ranks, the whole batch", 4, on_ranks.one_backward,
         rank_0s, {"gradients": [Close(each) for each in alone(range(4))]}, []),
        ("3 steps beside torch's", 2, on_ranks.beside_torchs, BESIDE_TORCHS, both, [1]),
        ("micro-batches in no_sync", 2, on_ranks.beside_torchs, BESIDE_TORCHS, both, [3]),
        ("default caps", 2, on_ranks.default_caps,
         {"all-reduces": lambda did: all_reduces(did.trace)},
         {"all-reduces": [1024 + 4 + 2**20, 2 * 4096]}, []),
        ("2 forwards, 3 backwards", 2, on_ranks.two_forwards, TWO_FORWARDS,
         {"gradients": [Close(each) for each in sums],
          "a third adds": [Close(each) for each in alone([1])]}, []),
        ("another order", 2, on_ranks.other_order,
         OTHER_ORDER, {"before": [128, 96, 64, 32], "after": [64, 128, 32, 96]}, []),
        ("unused parameters", 2, on_ranks.partly_used, PARTLY_USED,
         {"as torch's": [True, True], "None": [2]}, [PerRank([[0, 1], [0]])]),
        ("a gradient is missing", 2, on_ranks.said_of_missing,
         {"said": lambda did: did.returned[0]}, {"said": "names layers.1"}, []),
    ]
    # fmt: on
    for about, n, run, see, expect, more in rows:
        observe = asked(partial(run, answer), *more, world_size=n, see=see)
        yield Case(about, observe, expect, hints=DDP, given={"case": about})
