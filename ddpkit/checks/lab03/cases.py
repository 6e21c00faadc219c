"""The exercises of lab 03: six all-reduces, which share one table of inputs, and their costs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from ddpkit.checks.lab03.hints import PRICE, SUM
from ddpkit.checks.lab03.sent import counts, simulated
from ddpkit.checks.lab03.sums import TENSORS, fractions_for, inputs_for, summed, told_of
from ddpkit.checks.lab03.ways import WAYS, Way
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import title
from ddpkit.exercises.values import Close
from ddpkit.simulate import ALL_REDUCE, schedule
from ddpkit.simulate.messages.costs import terms

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


def _register(way: Way) -> None:
    """Register the exercise of one of the six algorithms."""

    def cases(answer: Answer, rng: random.Random) -> Iterator[Case]:
        return _cases(answer, rng, way)

    cases.__doc__ = way.about
    exercise(way.name, lab="03", points=way.points)(cases)


def _cases(answer: Answer, rng: random.Random, way: Way) -> Iterator[Case]:
    """Yield the cases that all six exercises share, the simplest first.

    An answer that is wrong or raises an error in a simple case would fail in the later cases too,
    and would take a long time. `stop_if` ends the exercise after such a case.
    """
    for n, tensors in TENSORS.items():
        n = way.uneven if n == 5 else n
        fractions = {"bits": fractions_for(n, rng)} if n == 3 and way.same_bits else {}
        inputs = {name: inputs_for(n, *tensor, rng) for name, tensor in tensors.items()}
        sums = {name: sum(by_rank) for name, by_rank in inputs.items()}
        traffic = {"settled": way.settled, "whole": way.whole}
        plans = [simulated(way.name, n, x) for x, *_ in inputs.values()]
        yield Case(
            title(n),
            observe=partial(summed, answer, inputs, fractions, traffic),
            expect={
                **sums,
                "x": "kept",
                **dict.fromkeys(fractions, "same"),
                **counts(plans, **traffic),
            },
            read=partial(told_of, sums, n),
            hints=SUM,
            given={"n": n, "inputs": inputs, "way": way},
            stop_if="wrong" if n == 4 else "raised",
            trivial=n == 1,
        )


for _way in WAYS:
    _register(_way)

# predict

WORLDS = (1, 2, 3, 4, 6, 8, 1024)


@exercise("predict", lab="03", points=2)
def predict(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the predicted seconds of each all-reduce, for a given latency and bandwidth."""
    for name in ALL_REDUCE:
        latency, bandwidth = rng.randint(10, 99) * 1e-4, rng.randint(10, 99) * 1e5
        nbytes = rng.randint(10, 99) * 100
        prices = [_price(name, n) for n in WORLDS]
        seconds = [a * latency + b * nbytes / bandwidth for a, b in prices]
        yield Case(
            name,
            observe=partial(_predicted, partial(answer, name), nbytes, latency, bandwidth),
            expect={
                "latencies": _by_ranks([a for a, _ in prices]),
                "tensors": _by_ranks([b for _, b in prices]),
                "seconds with 4 ranks": Close(seconds[WORLDS.index(4)]),
            },
            hints=PRICE,
            given={"algorithm": name, "bandwidth": bandwidth},
        )


def _price(name: str, n: int) -> tuple[float, float]:
    """Return the time of an all-reduce on n ranks as two counts: latencies, and tensors sent.

    Each round of a tree or a butterfly counts as one latency and one tensor, as in textbooks.
    """
    if name in ("tree", "butterfly"):
        rounds = float(schedule(name, n, length=1).rounds)
        return rounds, rounds
    ((latencies, tensors),) = terms(name, n)
    return latencies, tensors


def _by_ranks(counts: list[float]) -> dict[str, float]:
    """Return a dict like {"with 2 ranks": 1, "with 3 ranks": 1.3333}; whole numbers become ints."""
    rounded = [round(float(each), 4) for each in counts]
    whole = [int(each) if each.is_integer() else each for each in rounded]
    return {f"with {title(n)}": each for n, each in zip(WORLDS, whole, strict=True)}


def _predicted(answer: Answer, nbytes: int, latency: float, bandwidth: float) -> Observed:
    """Observe the answer's prediction without bytes, without latency, and with both."""
    t = nbytes / bandwidth
    return {
        "latencies": _by_ranks([answer(n, 0, latency, bandwidth) / latency for n in WORLDS]),
        "tensors": _by_ranks([answer(n, nbytes, 0.0, bandwidth) / t for n in WORLDS]),
        "seconds with 4 ranks": float(answer(4, nbytes, latency, bandwidth)),
    }
