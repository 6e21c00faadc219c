"""Lab 02: collectives built from messages; the check reads the tensors and the messages.

`collectives` knows the right tensors and messages, and `hints` has a sentence for each mistake.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from ddpkit.checks.lab02.anybody import could_leave
from ddpkit.checks.lab02.collectives import Row, call, collective, looks
from ddpkit.checks.lab02.hints import BARRIER, COLLECTIVES
from ddpkit.checks.lab02.line import LINE, line
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, Looks, asked, looked, title, together
from ddpkit.exercises.values import Close
from ddpkit.simulate import schedule
from ddpkit.trace import messages

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


# A line

SIZES = [1000, 10_000, 100_000, 1_000_000]
MEASURED = (  # title, sizes of messages in bytes, largest relative error of the messages' times
    ("4 sizes, no errors", SIZES, 0.0),
    ("2 sizes, no errors", [0, 64], 0.0),
    ("4 near sizes, errors of 10%", [10_000, 20_000, 30_000, 40_000], 0.1),
    ("one size 8 times, errors of 10%", [1000] * 8 + SIZES[1:], 0.1),
    ("up to 10 GB, no errors", [size * 10_000 for size in SIZES], 0.0),
)


@exercise("fit_link", lab="02", points=2)
def fit_link(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a least-squares fit of latency and bandwidth to the times of round trips."""
    for name, nbytes, error in MEASURED:
        latency, bandwidth = rng.randrange(50, 500) * 1e-6, rng.randrange(5, 50) * 1e6
        off = [1 + error * rng.uniform(0.5, 1) * (-1) ** i for i in range(len(nbytes))]
        one_way = [latency * by + size / bandwidth for size, by in zip(nbytes, off, strict=True)]
        alpha, beta = line(nbytes, one_way)
        yield Case(
            name,
            partial(_fitted, answer, nbytes, [2 * each for each in one_way]),
            {"latency": Close(alpha), "bandwidth": Close(beta)},
            hints=LINE,
            given={"alpha": alpha, "beta": beta, "nbytes": nbytes, "one_way": one_way},
        )


def _fitted(answer: Answer, nbytes: list[int], times: list[float]) -> Observed:
    found = answer(list(nbytes), list(times))
    if isinstance(found, dict | set | str) or not hasattr(found, "__len__") or len(found) != 2:
        return {"returned": type(found).__name__}
    latency, bandwidth = found
    if isinstance(latency, str) or isinstance(bandwidth, str):
        return {"returned": f"{type(found).__name__} with a str in it"}
    return {"latency": float(latency), "bandwidth": float(bandwidth)}


# Collectives

TREE_ROWS: list[Row] = [
    (4, 12, "float32", 0, ""),
    (4, 6, "float64", 2, "transposed"),
    # a reduce on 5 ranks: no rank sends to place 4 (places are counted from the root)
    (5, 7, "int64", 3, ""),
    # a reduce on 6 ranks: place 5 sends to place 4 in the first round, and no rank does later
    (6, 3, "float32", 0, ""),
    (3, 0, "float32", 1, ""),
    (2, 5, "float32", 1, ""),
    (1, 2, "float32", 0, ""),
]
CHUNK_ROWS: list[Row] = [
    (4, 12, "float32", 0, ""),
    (4, 9, "float64", 2, "transposed"),
    (5, 13, "int64", 3, ""),
    (8, 5, "float32", 6, ""),
    (3, 0, "float32", 1, ""),
    (1, 2, "float32", 0, ""),
]
RING_ROWS: list[Row] = [
    (4, 12, "float32", 0, ""),
    (4, 9, "float64", 0, "transposed"),
    (5, 13, "int64", 0, ""),
    (5, 13, "float32", 0, "in place"),
    (8, 5, "float32", 0, ""),
    (3, 0, "float32", 0, ""),
    (1, 2, "float32", 0, ""),
]


@exercise("broadcast", lab="02", points=3, returns=False)
def broadcast(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a broadcast: all ranks get the root's x, by a binomial tree."""
    yield from _cases("broadcast", TREE_ROWS, answer, rng)


@exercise("reduce", lab="02", points=3, returns=False)
def reduce(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a reduce: the root gets the sum of all x, by a binomial tree."""
    yield from _cases("reduce", TREE_ROWS, answer, rng)


@exercise("scatter", lab="02", points=1, returns=False)
def scatter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a scatter: each rank gets one chunk from the root."""
    yield from _cases("scatter", CHUNK_ROWS, answer, rng)


@exercise("gather", lab="02", points=1, returns=False)
def gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a gather: the root gets one chunk from each rank."""
    yield from _cases("gather", CHUNK_ROWS, answer, rng)


@exercise("all_gather", lab="02", points=2, returns=False)
def all_gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an all-gather: every rank gets the chunks of all ranks, around a ring."""
    yield from _cases("all_gather", RING_ROWS, answer, rng)


@exercise("reduce_scatter", lab="02", points=3, returns=False)
def reduce_scatter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a reduce-scatter: each rank gets the sum of one chunk, around a ring."""
    yield from _cases("reduce_scatter", RING_ROWS, answer, rng)


def _cases(op: str, rows: Sequence[Row], answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Yield the cases of all rows.

    The first row has its own run. Neighbouring rows with the same number of ranks share a run.
    """
    first, *others = [collective(op, row, rng) for row in rows]
    for group in ([first], *(list(each) for _, each in groupby(others, key=lambda c: c.n))):
        calls = together(partial(call, op, answer), [each.calls for each in group])
        for each, did in zip(group, calls, strict=True):
            expect = each.expected(plain=each is first)
            observe = looked(did, looks(op, expect))
            yield Case(
                each.title,
                observe,
                expect,
                hints=COLLECTIVES[op],
                given=each,
                trivial=each.n == 1 or each.units == 0,
            )


@exercise("barrier", lab="02", points=2, returns=False)
def barrier(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check a barrier: no rank returns before all ranks have called it."""
    for n in (4, 2, 3, 5, 8, 1):
        yield Case(
            title(n),
            asked(answer, world_size=n, see=BARRIER_SEE),
            {"left early": "nobody", "rounds": schedule("barrier", n, 0).rounds, "elements": 1},
            hints=BARRIER,
            given={"n": n},
            trivial=n == 1,
        )


def _left_early(did: Did) -> str:
    """Describe the first rank that left the barrier before hearing from all ranks.

    If there is no such rank, return the result of `could_leave`.
    """
    early = (
        f"rank {rank}, without word of rank {min(unheard)}"
        for rank, known in enumerate(_heard(did))
        if (unheard := set(did.trace.ranks) - known)
    )
    return next(early, could_leave(did.trace))


def _elements(did: Did) -> int:
    """Return the number of elements of the first message that does not have exactly one; else 1."""
    import torch

    sends = (one for one in did.trace.spans if one.is_send)
    sizes = (one.bytes // getattr(torch, str(one.args["dtype"])).itemsize for one in sends)
    return next((size for size in sizes if size != 1), 1)


BARRIER_SEE: Looks = {"left early": _left_early, "rounds": "rounds", "elements": _elements}


def _heard(did: Did) -> list[set[int]]:
    """Return, for each rank, the ranks from which it has heard when it returns.

    A rank hears from a second rank by a message from the second rank, or through ranks in between.
    The spans are read in the order of their times, so a wrong barrier is found even if no rank is
    late. If the order of the messages is random, `could_leave` finds the wrong barrier.
    """
    known = [{rank} for rank in did.trace.ranks]
    carried: dict[int, set[int]] = {}
    pairs = messages(did.trace.spans)
    events = [(send.start_ns, 0, number) for number, (send, _) in enumerate(pairs)]
    events += [(max(recv.end_ns, send.start_ns), 1, k) for k, (send, recv) in enumerate(pairs)]
    for at, received, number in sorted(events):
        send, recv = pairs[number]
        if not received:
            carried[number] = set(known[send.rank])
        elif at <= did.trace.window_of(recv.rank)[1]:
            known[recv.rank] |= carried[number]
    return known
