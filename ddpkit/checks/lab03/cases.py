"""Lab 03: six all-reduces, which share one table of questions, and what they cost.

`_lab03_question` knows what each has to return and may send, `_lab03_hints` what to say if not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from math import isclose
from typing import Any

from ddpkit.checks.lab03.hints import hint
from ddpkit.checks.lab03.question import Question, Way, inputs_for, observe
from ddpkit.cluster.torchrun.job import TooFewRanks
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.values import Close
from ddpkit.simulate import ALL_REDUCE, schedule
from ddpkit.simulate.costs import terms
from ddpkit.text import count

Answer = Callable[..., Any]

QUESTIONS: dict[int, list[tuple[str, tuple[int, ...]]]] = {  # by number of ranks: what is summed
    4: [("float32", (8,))],
    3: [("int64", (10,)), ("float64", (5, 2))],
    5: [("float32", (2,)), ("int64", (0,))],
    2: [("float32", (9,))],
    1: [("float32", (3,))],
    8: [("float64", (16,))],
}

WAYS = (
    Way(
        "all_to_all",
        2,
        about="Every rank sends x to every other, all at once, and adds in the order of the ranks.",
        a="all-to-all",
        lacks="Each rank adds its own x and one from each of the n - 1 others.",
        twice="Each rank's x counts once, your own too.",
        much="Send x once to each of the others.",
        row="Start all messages before you wait for the first of them.",
    ),
    Way(
        "round_robin",
        2,
        about="An exchange with one rank after the other, in n-1 rounds.",
        a="a round robin",
        lacks="It takes n - 1 rounds, with another distance in each: 1, 2, ..., n - 1.",
        twice="Send x in each round, and not the sum so far.",
        much="In each round send x to one rank, receive one tensor, add it.",
        same_bits=False,
    ),
    Way(
        "master_worker",
        2,
        about="Rank 0 adds up what all send it, and sends them the sum.",
        a="a master",
        lacks=(
            "Rank 0 sends the sum when it has added all n - 1 workers' tensors to its own, not "
            "before."
        ),
        twice="Rank 0 adds each worker's tensor once, and a worker adds nothing.",
        much="A worker sends x to rank 0 only, and rank 0 the sum once to each worker.",
        row="All workers send at the same time, and rank 0 sends to all at the same time.",
    ),
    Way(
        "tree",
        2,
        about="Up a binomial tree and down again.",
        a="a binomial tree",
        lacks="A rank hands its sum over when all below it are in it; down goes the whole sum.",
        twice="On the way down the sum is copied, not added.",
        much="A rank sends up once, and down once to each of those below it.",
        row="In a round many pairs talk at the same time: ceil(log2 n) up, and as many down.",
        settled=False,
    ),
    Way(
        "butterfly",
        3,
        about="Recursive doubling, with any number of ranks.",
        a="a butterfly",
        lacks=(
            "Exchange at distance 1, 2, 4, ... until all are in it, and each time send the sum so "
            "far. Ranks beyond the largest power of two give first and get the sum at the end."
        ),
        twice="The distance doubles in each round: 1, 2, 4, ...",
        much="In each round a rank exchanges its sum with one other, rank ^ distance.",
    ),
    Way(
        "ring",
        4,
        about="Chunks go twice around: share-reduce, then share only.",
        a="a ring",
        lacks=(
            "Each half takes n - 1 steps: first until a rank has the whole sum of one chunk, then "
            "until all ranks have it."
        ),
        twice="In the second half finished chunks are copied, not added.",
        much="Pass on one chunk of n in each step, as it is: not the whole tensor, no padding.",
        alone=(
            "What is added up never gets into the tensor that you return. chunk += received "
            "changes it; chunk = chunk + received and, where x is not contiguous, reshape make "
            "another one."
        ),
    ),
)


def _cases(answer: Answer, rng: random.Random, way: Way) -> Iterator[Case]:
    """The cases that all six have in common, the plainest first. An answer that fails there, or
    raises, would do the same in the others, and take its time: no more is asked then."""
    left = len(QUESTIONS)
    for n, tensors in QUESTIONS.items():
        fractions = _fractions(n, rng) if n == 3 and way.same_bits else None
        question = Question(way, [inputs_for(n, *tensor, rng) for tensor in tensors], fractions)
        run = _Once(partial(observe, answer, question.inputs, fractions, way.settled))
        title = count(n, "rank")
        yield Case(title, run, question.expect, partial(hint, question), read=question.read)
        left -= 1
        if not run.asked:  # by a grader, who asks elsewhere and later
            continue
        if left and (run.seen is None or (n == 4 and run.seen and not question.right(run.seen))):
            yield Case("others", lambda: {"tried": False}, {"tried": True}, weight=left)
            return


def _register(way: Way) -> None:
    def cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
        return _cases(answer, rng, way)

    cases.__doc__ = way.about
    exercise(way.name, lab="03", points=way.points)(cases)


for _way in WAYS:
    _register(_way)


@dataclass
class _Once:
    """Observes, and keeps what was seen; None if the answer raised."""

    observe: Callable[[], Observed]
    seen: Observed | None = None
    asked: bool = False

    def __call__(self) -> Observed:
        self.asked = True
        try:
            self.seen = self.observe()
        except TooFewRanks:
            self.seen = {}  # left out, under torchrun: that says nothing about the others
            raise
        return self.seen


def _fractions(n: int, rng: random.Random) -> list[Any]:
    """Numbers whose sum depends on the order of adding, in its last bits."""
    import torch

    return [torch.tensor([rng.uniform(-1, 1) for _ in range(64)]) for _ in range(n)]


# predict

WORLDS = (1, 2, 3, 4, 6, 8, 1024)
PRICES = {
    "all_to_all": "All messages are under way at once and share a latency; a link carries n - 1.",
    "round_robin": "n - 1 rounds, in each a latency and a tensor.",
    "master_worker": "In, and out again: 2 latencies, and n - 1 tensors each way on one link.",
    "tree": "Up and down take ceil(log2 n) rounds each: (n - 1).bit_length() counts them.",
    "butterfly": "log2 n rounds; where n is no power of two, floor(log2 n) and two more.",
    "ring": "2(n - 1) rounds, in each a latency and a chunk, which is 1/n of a tensor.",
}


@exercise("predict", lab="03", points=2)
def predict(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Seconds of each of the six: so many latencies, and so many tensors over the busiest link."""
    for name in ALL_REDUCE:
        latency, bandwidth = rng.randint(1, 9) * 1e-3, rng.randint(1, 9) * 1e6
        nbytes = rng.randint(1, 9) * 1000
        prices = [_price(name, n) for n in WORLDS]
        seconds = [a * latency + b * nbytes / bandwidth for a, b in prices]
        yield Case(
            name,
            partial(_predicted, partial(answer, name), nbytes, latency, bandwidth),
            {
                "latencies": [round(a, 4) for a, _ in prices],
                "tensors": [round(b, 4) for _, b in prices],
                "seconds with 4 ranks": Close(seconds[WORLDS.index(4)]),
            },
            partial(_price_hint, name),
        )


def _price(name: str, n: int) -> tuple[float, float]:
    """Latencies and tensors; of tree and butterfly by rounds, as textbooks count."""
    if name in ("tree", "butterfly"):
        rounds = float(schedule(name, n, length=1).rounds)
        return rounds, rounds
    ((latencies, tensors),) = terms(name, n)
    return latencies, tensors


def _predicted(answer: Answer, nbytes: int, latency: float, bandwidth: float) -> Observed:
    """The two prices, each by making the other one nothing, and both together."""
    t = nbytes / bandwidth
    return {
        "latencies": [round(answer(n, 0, latency, bandwidth) / latency, 4) for n in WORLDS],
        "tensors": [round(answer(n, nbytes, 0.0, bandwidth) / t, 4) for n in WORLDS],
        "seconds with 4 ranks": float(answer(4, nbytes, latency, bandwidth)),
    }


def _price_hint(name: str, seen: Observed) -> str | None:
    if "error" in seen:
        return None
    for which, price in enumerate(("latencies", "tensors")):
        for n, got in zip(WORLDS, seen[price], strict=True):
            due = round(_price(name, n)[which], 4)
            if n == 1 and got != due:
                return "One rank alone sends nothing, and needs no time."
            if due and isclose(got, 1000 * due, rel_tol=1e-3):
                return "That is in milliseconds: give seconds."
            if got != due:
                return f"With {n} ranks you count {got:g} {price}, not {due:g}. {PRICES[name]}"
    return (
        "Both prices are right, but not their sum: latencies * latency + tensors * S / bandwidth."
    )
