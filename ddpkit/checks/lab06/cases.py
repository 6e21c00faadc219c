"""Lab 06: averages that overlap with backward, and the DistributedDataParallel made of them.

`_lab06_reducer` plays a backward by hand, `_lab06_graph` makes graphs, `_lab06_steps` trains on
ranks beside torch's DDP, `_lab06_asked` tells what came of it, `_lab06_hints` what is wrong there.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

from ddpkit.checks.lab06 import graph, reducer, steps
from ddpkit.checks.lab06.asked import asked
from ddpkit.checks.lab06.hints import average_hint, ddp_hint, order_hint, sync_hint
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import call
from ddpkit.exercises.values import Close
from ddpkit.protocol.per_rank import PerRank
from ddpkit.text import count

Answer = Callable[..., Any]

# average


@exercise("average", lab="06", points=1)
def average(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The mean over the ranks, started and not waited for."""
    for n, dtype in ((2, "float32"), (4, "float64"), (3, "float32"), (1, "float32")):
        base = rng.randrange(1, 50)
        values = [[n * (base + 3 * rank + i) / 2 for i in range(4)] for rank in range(n)]
        yield _average_case(answer, f"{count(n, 'rank')}, {dtype}", values, dtype)
    yield _average_case(answer, "2 ranks, float16", [[40000.0, 2.0], [50000.0, 4.0]], "float16")


def _average_case(answer: Answer, title: str, values: list[list[Any]], dtype: str) -> Case:
    import torch

    flats = [torch.tensor(each, dtype=getattr(torch, dtype)) for each in values]
    means = [sum(column) / len(column) for column in zip(*values, strict=True)]

    def observe() -> Observed:
        did = call(partial(_started, answer), PerRank(flats), world_size=len(flats))
        returned = [span.start_ns for span in did.trace.of(0) if span.is_send]
        posted = [span.start_ns for span in did.trace.of(0) if span.name == "all_reduce"]
        started = [start for start in posted if not returned or start < returned[0]]
        return {"buffers": did.returned, "all-reduces": len(started)}

    return Case(
        title,
        observe,
        expect={
            "buffers": [torch.tensor(means, dtype=flats[0].dtype)] * len(flats),
            "all-reduces": 1,
        },
        hint=partial(average_hint, flats),
    )


def _started(answer: Answer, flat: Any) -> Any:
    """On a rank. The others begin when rank 0 has its Work: who waits inside waits for ever."""
    import torch
    import torch.distributed as dist

    flat, rank = flat.clone(), dist.get_rank()
    bucket = SimpleNamespace(buffer=lambda: flat, index=lambda: 0, is_last=lambda: True)
    if rank:
        dist.recv(torch.zeros(1), src=rank - 1)
    work = answer(bucket)
    if rank < dist.get_world_size() - 1:
        dist.send(torch.zeros(1), dst=rank + 1)
    work.wait()
    return flat


# Reducer

STORIES: dict[str, tuple[list[list[int]], list[list[int]]]] = {
    "3 buckets, in order": ([[2], [1], [0]], [[2, 1, 0]]),
    "2 in each, in order": ([[3, 2], [1, 0]], [[3, 2, 1, 0]]),
    "last bucket first": ([[2], [1], [0]], [[0, 1, 2]]),
    "two backwards": ([[2, 1], [0]], [[0, 2, 1], [1, 2, 0]]),
}


@exercise("Reducer", lab="06", points=4)
def reducer_cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Starts a bucket when it is complete, in order, and waits once, at the end."""
    order = list(range(6))
    rng.shuffle(order)
    for title, (buckets, backwards) in {
        **STORIES,
        "in random order": ([[5, 4], [3], [2, 1, 0]], [order]),
    }.items():
        wanted = reducer.expected(buckets, backwards)
        yield Case(
            title,
            observe=partial(reducer.play, answer, buckets, backwards),
            expect=wanted,
            hint=partial(reducer.hint, wanted),
        )


# rebuilt_buckets

KB = 1024


@exercise("rebuilt_buckets", lab="06", points=2)
def rebuilt_buckets(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Rank 0's order of readiness, in buckets, on every rank."""
    shuffled = [rng.sample(range(8), 8) for _ in range(4)]
    while _assigned(shuffled[0], 4 * KB, KB) == _assigned(shuffled[0], 4 * KB, None):
        shuffled[0] = rng.sample(range(8), 8)  # the first bucket's cap has to make a difference
    for title, orders, cap, first in (
        ("2 ranks that saw the same", [[3, 0, 1, 2]] * 2, 2 * KB, None),
        ("3 ranks that saw different orders", [[1, 0, 3, 2], [0, 1, 2, 3], [3, 2, 1, 0]], KB, None),
        ("4 ranks, 8 parameters", shuffled, 4 * KB, None),
        ("1 rank, a small first bucket", shuffled[:1], 4 * KB, KB),
    ):
        rule = _assigned(orders[0], cap, first)
        yield Case(
            title,
            observe=partial(_rebuilt, answer, orders, cap, first),
            expect={"buckets": [rule] * len(orders)},
            hint=partial(order_hint, orders, rule),
        )


def _assigned(order: list[int], cap: int, first: int | None) -> list[list[int]]:
    """Parameter i has i + 1 times 512 bytes; a bucket closes at the cap."""
    buckets: list[list[int]] = [[]]
    for place in order:
        buckets[-1].append(place)
        limit = cap if first is None or len(buckets) > 1 else first
        if sum(512 * (i + 1) for i in buckets[-1]) >= limit:
            buckets.append([])
    return [bucket for bucket in buckets if bucket]


def _rebuilt(answer: Answer, orders: list[list[int]], cap: int, first: int | None) -> Observed:
    mb = [None if each is None else each / 2**20 for each in (cap, first)]
    did = call(partial(_rebuilt_on_rank, answer), PerRank(orders), *mb, world_size=len(orders))
    return {"buckets": did.returned}


def _rebuilt_on_rank(answer: Answer, order: list[int], *caps: float | None) -> list[list[int]]:
    import torch

    parameters = [torch.nn.Parameter(torch.zeros(128 * (i + 1))) for i in range(len(order))]
    place = {id(p): i for i, p in enumerate(parameters)}
    return [[place[id(p)] for p in bucket] for bucket in answer(parameters, order, *caps)]


# unused_parameters


@exercise("unused_parameters", lab="06", points=3)
def unused_parameters(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """What the graph of an output does not reach."""
    for title, (build, unused) in graph.GRAPHS.items():
        ask = graph.unused_in_time if build is graph.many_paths else graph.unused
        yield Case(
            title,
            observe=partial(ask, answer, build),
            expect={"unused": unused},
            hint=partial(graph.hint, unused),
        )


# no_sync


@exercise("no_sync", lab="06", points=2)
def no_sync(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Silent inside, and as before afterwards, whatever happened."""
    for title, before, fails in (
        ("the flag", True, False),
        ("an exception inside", True, True),
        ("inside another no_sync", False, False),
    ):
        yield Case(
            title,
            observe=partial(_flag, answer, before, fails),
            expect={"inside": False, "after": before, "raised": "KeyError" if fails else "nothing"},
            hint=partial(sync_hint, fails=fails),
        )
    yield Case(
        "torch's DDP, 3 backwards on 2 ranks, 2 of them inside",
        observe=partial(_accumulated, answer),
        expect={"all-reduces": 1, "gradients": [Close([8.0, 8.0])] * 2},
        hint=sync_hint,
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


def _accumulated(answer: Answer) -> Observed:
    did = call(partial(_three_backwards, answer), world_size=2)
    return {"all-reduces": len(steps.all_reduces(did.trace)), "gradients": did.returned}


def _three_backwards(answer: Answer) -> Any:
    """Of gradients 1 + rank, 2 + rank and 3.5 + rank."""
    import torch
    import torch.distributed as dist

    ddp = steps.torchs(torch.nn.Linear(2, 1, bias=False))
    rows = [torch.full((1, 2), value + dist.get_rank()) for value in (1.0, 2.0, 3.5)]
    with answer(ddp):
        for x in rows[:2]:
            ddp(x).sum().backward()
    ddp(rows[2]).sum().backward()
    return ddp.module.weight.grad[0].tolist()


# DistributedDataParallel


@exercise("DistributedDataParallel", lab="06", points=6)
def distributed_data_parallel(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Torch's gradients bit for bit, torch's all-reduces, and one copy of the gradients."""

    def case(title: str, n: int, ask: Any, expect: Observed, *arguments: Any) -> Case:
        observe = partial(asked, partial(ask, answer), n, ask, arguments)
        return Case(title, observe, expect, partial(ddp_hint, ask))

    yield case("3 ranks start alike", 3, steps.start, {"rank 0's start": [True] * 3})
    early = {"on their way": steps.BUCKETS, "ranks agree": True}
    yield case("rank 1 is late", 2, steps.gated, early)
    twin = [Close(g) for g in _twin(range(4))]
    yield case("4 ranks, the whole batch", 4, steps.one_backward, {"gradients": twin})
    both = {"as torch's": [True, True], "storages": steps.BUCKETS}
    yield case("3 steps beside torch's", 2, steps.beside_torchs, both)
    yield case("micro-batches in no_sync", 2, steps.beside_torchs, both, 3)
    sizes = {"all-reduces": [1024 + 4 + 2**20, 2 * 4096]}
    yield case("default caps", 2, steps.default_caps, sizes)
    order = {"before": [128, 96, 64, 32], "after": [64, 128, 32, 96]}
    sums = [Close(a + b) for a, b in zip(_twin(range(2)), _twin(range(2), step=1), strict=True)]
    third = {"gradients": sums, "a third adds": [Close(g) for g in _twin([1])]}
    yield case("2 forwards, 3 backwards", 2, steps.two_forwards, third)
    yield case("another order", 2, steps.sizes, order)
    used = PerRank([[0, 1], [0]])
    expect = {"as torch's": [True, True], "None": [2]}
    yield case("unused parameters", 2, steps.partly_used, expect, used)
    yield case("a gradient is missing", 2, steps.said_of_missing, {"said": "names layers.1"})


def _twin(ranks: Iterable[int], step: int = 0) -> Iterator[Any]:
    """Gradients of these ranks' batches in one process, without a batch norm's view of a part."""
    import torch

    whole = steps.linear()
    parts = [steps.batch(step, rank) for rank in ranks]
    x, y = (torch.cat(part) for part in zip(*parts, strict=True))
    torch.nn.functional.cross_entropy(whole(x), y).backward()  # type: ignore[no-untyped-call]
    return (p.grad for p in whole.parameters())
