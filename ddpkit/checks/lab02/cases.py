"""Lab 02: collectives from messages, judged by what they leave in the tensors and what they send.

`_lab02_question` knows what each has to leave and may send, `_lab02_hints` what to say if not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from math import isclose
from statistics import fmean, linear_regression
from typing import Any

from ddpkit.checks.lab02.hints import barrier_hint, hint
from ddpkit.checks.lab02.question import Question, call, chunk_question, tree_question
from ddpkit.errors import Deadlock, Mismatch
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, together
from ddpkit.exercises.values import Close
from ddpkit.simulate import schedule
from ddpkit.text import count
from ddpkit.trace import messages

Answer = Callable[..., Any]
Told = Callable[[], Did]


# A line


@exercise("fit_link", lab="02", points=2)
def fit_link(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Latency and bandwidth from the times of round trips, by least squares."""
    sizes = [1000, 10_000, 100_000, 1_000_000]
    for title, nbytes, error in (
        ("4 sizes, no errors", sizes, 0.0),
        ("2 sizes, no errors", [0, 64], 0.0),
        ("4 near sizes, errors of 10%", [10_000, 20_000, 30_000, 40_000], 0.1),
        ("one size 8 times, errors of 10%", [1000] * 8 + sizes[1:], 0.1),
        ("up to 10 GB, no errors", [size * 10_000 for size in sizes], 0.0),
    ):
        latency, bandwidth = rng.randrange(50, 500) * 1e-6, rng.randrange(5, 50) * 1e6
        off = [1 + error * rng.uniform(0.5, 1) * (-1) ** i for i in range(len(nbytes))]
        times = [
            2 * (latency * by + size / bandwidth) for size, by in zip(nbytes, off, strict=True)
        ]
        due = _line(nbytes, [each / 2 for each in times])
        yield Case(
            title,
            observe=partial(_fitted, answer, nbytes, times),
            expect={"latency": Close(due[0]), "bandwidth": Close(due[1])},
            hint=partial(_line_hint, nbytes, times, due),
        )


def _fitted(answer: Answer, nbytes: list[int], times: list[float]) -> Observed:
    latency, bandwidth = answer(list(nbytes), list(times))
    return {"latency": float(latency), "bandwidth": float(bandwidth)}


def _line(nbytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """Latency and bandwidth of the line t = latency + size / bandwidth."""
    slope, intercept = linear_regression(nbytes, seconds)
    return intercept, 1 / slope


def _line_of_sizes(nbytes: Sequence[float], seconds: Sequence[float]) -> tuple[float, float]:
    """The same, if sizes are fitted over times: size = bandwidth * (t - latency)."""
    slope, intercept = linear_regression(seconds, nbytes)
    return -intercept / slope, slope


def _line_hint(
    nbytes: list[int], times: list[float], due: tuple[float, float], seen: Observed
) -> str | None:
    if "error" in seen:
        return None
    latency, bandwidth = due
    one_way = [each / 2 for each in times]
    ends = sorted(zip(nbytes, one_way, strict=True))[:: len(nbytes) - 1]
    means = {
        size: fmean(t for s, t in zip(nbytes, one_way, strict=True) if s == size) for size in nbytes
    }
    for mistake, says in (
        ((bandwidth, latency), "First the latency, then the bandwidth."),
        ((2 * latency, bandwidth / 2), "A round trip is two messages: one takes half the time."),
        ((latency, bandwidth / 2), "A round trip carries the bytes twice, there and back."),
        ((2 * latency, bandwidth), "A round trip pays the latency twice, there and back."),
        ((latency, 1 / bandwidth), "The slope is in seconds per byte, a bandwidth in bytes per s."),
        ((latency, 8 * bandwidth), "That is in bits per second. Give bytes per second."),
        (_line(*zip(*ends, strict=True)), "Not through two points only: every measurement counts."),
        (
            _line(list(means), list(means.values())),
            "Every measurement counts: take no means first.",
        ),
        (_line_of_sizes(nbytes, one_way), "The errors are in the times: t over S, not S over t."),
        ((1e3 * latency, bandwidth), "That latency is in milliseconds: give seconds."),
        ((1e6 * latency, bandwidth), "That latency is in microseconds: give seconds."),
        ((latency, bandwidth / 1e6), "That is in MB per second. Give bytes per second."),
        ((latency, bandwidth / 4), "The bytes are halved twice: 1 / b of one way is all of it."),
        ((min(one_way), bandwidth), "The shortest message has bytes too. α is where S would be 0."),
    ):
        if all(isclose(seen[k], v, rel_tol=1e-3) for k, v in zip(seen, mistake, strict=True)):
            return says
    if not seen["latency"]:
        return "The line need not go through zero: where it meets 0 bytes is the latency."
    if isclose(seen["bandwidth"], bandwidth, rel_tol=1e-3):
        if abs(seen["latency"] - latency) < 1e-5 * max(one_way):
            return (
                "The bandwidth is right, the latency not quite: a small difference of large "
                "numbers, which float32 has not enough digits for. Compute in float64."
            )
        return (
            "The bandwidth is right, the latency is not: the mean of t minus b times the mean of "
            "S, all of them one way."
        )
    return "The line is t = a + b S, by the sums above: a is the latency, and 1 / b the bandwidth."


# Collectives

Row = tuple[int, int, str, int, str]  # ranks, elements or columns, dtype, root, how they lie

TREES: list[Row] = [
    (4, 12, "float32", 0, ""),
    (4, 6, "float64", 2, "transposed"),
    (5, 7, "int64", 3, ""),
    (8, 3, "float32", 6, ""),
    (3, 0, "float32", 1, ""),
    (2, 5, "float32", 1, ""),
    (1, 2, "float32", 0, ""),
]
CHUNKS: list[Row] = [
    (4, 12, "float32", 0, ""),
    (4, 9, "float64", 2, "transposed"),
    (5, 13, "int64", 3, ""),
    (8, 5, "float32", 6, ""),
    (3, 0, "float32", 1, ""),
    (1, 2, "float32", 0, ""),
]
IN_PLACE: Row = (5, 13, "float32", 0, "in place")
RINGS = [(*row[:3], 0, row[4]) for row in CHUNKS]
RINGS.insert(3, IN_PLACE)


@exercise("broadcast", lab="02", points=3)
def broadcast(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """x of one rank to all ranks, by a binomial tree."""
    yield from _cases(answer, [tree_question("broadcast", *row, rng) for row in TREES])


@exercise("reduce", lab="02", points=3)
def reduce(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The sum of all x on one rank, by a binomial tree."""
    yield from _cases(answer, [tree_question("reduce", *row, rng) for row in TREES])


@exercise("scatter", lab="02", points=1)
def scatter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A chunk for each rank, from one."""
    yield from _cases(answer, [chunk_question("scatter", *row, rng) for row in CHUNKS])


@exercise("gather", lab="02", points=1)
def gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """A chunk from each rank, to one."""
    yield from _cases(answer, [chunk_question("gather", *row, rng) for row in CHUNKS])


@exercise("all_gather", lab="02", points=2)
def all_gather(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """All chunks on all ranks, around a ring."""
    yield from _cases(answer, [chunk_question("all_gather", *row, rng) for row in RINGS])


@exercise("reduce_scatter", lab="02", points=3)
def reduce_scatter(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """The sum of one chunk on each rank, around a ring."""
    yield from _cases(answer, [chunk_question("reduce_scatter", *row, rng) for row in RINGS])


def _cases(answer: Answer, questions: Sequence[Question]) -> Iterator[Case]:
    """The first question in a run of its own, then one run for each number of ranks."""
    first, *others = questions
    first = replace(first, plain=True)
    runs = []
    for group in [[first], *(list(each) for _, each in groupby(others, key=lambda one: one.n))]:
        told = together(partial(call, first.op, answer), [one.calls for one in group])
        runs.append([_case(one, each) for one, each in zip(group, told, strict=True)])
    yield from _until_one_is_stuck(runs)


def _case(question: Question, told: Told) -> tuple[Case, Told]:
    observe = partial(question.put.observe, told, "rounds" in question.expect)
    return Case(question.title, observe, question.expect, partial(hint, question)), told


def _until_one_is_stuck(runs: Sequence[Sequence[tuple[Case, Told]]]) -> Iterator[Case]:
    """The cases of all runs; after one that hangs, others would too, two seconds each."""
    for number, run in enumerate(runs, 1):
        yield from (case for case, _ in run)
        left = sum(map(len, runs[number:]))
        if left and _is_stuck(run[0][1]):
            yield Case("the other cases", lambda: {"tried": "no"}, {"tried": "yes"}, weight=left)
            return


def _is_stuck(told: Told) -> bool:
    try:
        told()
    except (Deadlock, Mismatch):
        return True
    except Exception:
        return False
    return False


@exercise("barrier", lab="02", points=2)
def barrier(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """No rank leaves before all have come."""
    runs = []
    for n in (4, 2, 3, 5, 8, 1):
        (told,) = together(answer, [[()] * n])
        rounds = schedule("barrier", n, 0).rounds
        expect = {"left early": "nobody", "rounds": rounds}
        case = Case(
            count(n, "rank"),
            partial(_left, told),
            expect,
            partial(barrier_hint, n, rounds),
        )
        runs.append([(case, told)])
    yield from _until_one_is_stuck(runs)


def _left(told: Told) -> Observed:
    did = told()
    early = [
        f"rank {rank}, without word of rank {min(unheard)}"
        for rank, known in enumerate(_heard(did))
        if (unheard := set(did.trace.ranks) - known)
    ]
    return {"left early": early[0] if early else "nobody", "rounds": did.rounds}


def _heard(did: Did) -> list[set[int]]:
    """Of which ranks each has heard by the time it returns, by messages, also through others.

    Told from the order of events, so that no rank has to be late for a bad barrier to be found.
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
