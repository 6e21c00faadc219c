"""The next cap to measure, and the number of servers that is enough: right and wrong rules."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypeAlias

from ddpkit.checks.shared.mistakes import Mistake, Question, as_number

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Measure: TypeAlias = Callable[[float], float]
Found: TypeAlias = list[object]  # the cap, then the measured caps in order

# autotune: a question is (seconds of each cap, predicted seconds of each cap)


class Bench:
    """A stand-in for a benchmark: a call returns the seconds of a cap, and records the cap."""

    def __init__(self, takes: Mapping[float, float]) -> None:
        self.takes, self.asked = dict(takes), []  # type: ignore[var-annotated]

    def __call__(self, cap: float) -> float:
        self.asked.append(float(cap))
        return self.takes[cap]


def tuned(answer: Answer, takes: dict[float, float], said: dict[float, float]) -> Found:
    """Return the cap that an answer chooses, and the list of caps that it measures."""
    bench = Bench(takes)
    cap = answer(bench, said)
    return [None if cap is None else as_number(cap), bench.asked]


def _promising(
    caps: Iterable[float], predicted: Mapping[float, float], took: Mapping[float, float]
) -> Iterator[float]:
    """Yield caps until the prediction for a cap is not shorter than the shortest time in `took`."""
    return takewhile(lambda cap: predicted[cap] < min(took.values(), default=math.inf), caps)


def _autotune(measure: Measure, predicted: Mapping[float, float]) -> float:
    took: dict[float, float] = {}
    best_first = sorted(predicted, key=lambda cap: predicted[cap])
    for cap in _promising(best_first, predicted, took):
        took[cap] = measure(cap)
    return min(took, key=lambda cap: took[cap])


def _unmeasured(measure: Measure, predicted: Mapping[float, float]) -> float:
    return min(predicted, key=lambda cap: predicted[cap])


def _best_predicted(measure: Measure, predicted: Mapping[float, float]) -> float:
    cap = _unmeasured(measure, predicted)
    measure(cap)
    return cap


def _all(measure: Measure, predicted: Mapping[float, float]) -> float:
    took = {cap: measure(cap) for cap in predicted}
    return min(took, key=lambda cap: took[cap])


def _all_sorted(measure: Measure, predicted: Mapping[float, float]) -> float:
    took = {cap: measure(cap) for cap in sorted(predicted, key=lambda cap: predicted[cap])}
    return min(took, key=lambda cap: took[cap])


def _first_worse(measure: Measure, predicted: Mapping[float, float]) -> float:
    best, least = 0.0, math.inf
    for cap in sorted(predicted, key=lambda cap: predicted[cap]):
        took = measure(cap)
        if took >= least:
            break
        best, least = cap, took
    return best


def _two_at_least(measure: Measure, predicted: Mapping[float, float]) -> float:
    took: dict[float, float] = {}
    for cap in sorted(predicted, key=lambda cap: predicted[cap]):
        if len(took) > 1 and predicted[cap] >= min(took.values()):
            break
        took[cap] = measure(cap)
    return min(took, key=lambda cap: took[cap])


def _twice(measure: Measure, predicted: Mapping[float, float]) -> float:
    caps: list[float] = []
    for cap in sorted(predicted, key=lambda cap: predicted[cap]):
        if caps and predicted[cap] >= min(map(measure, caps)):
            break
        measure(cap)
        caps.append(cap)
    return min(caps, key=measure)


def _again_at_the_end(measure: Measure, predicted: Mapping[float, float]) -> float:
    asked: list[float] = []

    def noted(cap: float) -> float:
        asked.append(cap)
        return measure(cap)

    _autotune(noted, predicted)
    return min(list(asked), key=measure)


def _as_given(measure: Measure, predicted: Mapping[float, float]) -> float:
    took: dict[float, float] = {}
    for cap in predicted:
        if took and predicted[cap] >= min(took.values()):
            continue
        took[cap] = measure(cap)
    return min(took, key=lambda cap: took[cap])


def _as_given_stops(measure: Measure, predicted: Mapping[float, float]) -> float:
    took: dict[float, float] = {}
    for cap in _promising(predicted, predicted, took):
        took[cap] = measure(cap)
    return min(took, key=lambda cap: took[cap])


def _last(measure: Measure, predicted: Mapping[float, float]) -> float:
    asked: list[float] = []

    def noted(cap: float) -> float:
        asked.append(cap)
        return measure(cap)

    _autotune(noted, predicted)
    return asked[-1]


def _good_prediction(measure: Measure, predicted: Mapping[float, float]) -> float:
    took: dict[float, float] = {}
    best_first = sorted(predicted, key=lambda cap: predicted[cap])
    for cap in _promising(best_first, predicted, took):
        took[cap] = measure(cap)
        if took[cap] <= 1.1 * predicted[cap]:
            break
    return min(took, key=lambda cap: took[cap])


def right_tuning(takes: dict[float, float], said: dict[float, float]) -> Found:
    """Return the best cap, and the list of caps that must be measured to be sure."""
    return tuned(_autotune, takes, said)


TWICE = "Measure each cap only once, and keep its time."
ORDER = "Begin with the smallest prediction, so that you measure the fewest caps."
UNMEASURED = "Only a measurement decides. Measure until no prediction can win."
ALL = (
    "You measured all caps. When the best measurement is below the next prediction, no further cap "
    "can win. Stop there."
)
# fmt: off
TUNING = tuple(Mistake(name, partial(tuned, idea), says) for name, idea, says in (
    ("unmeasured", _unmeasured, UNMEASURED),
    ("unmeasured", _best_predicted, UNMEASURED),
    ("all of them", _all, ALL),
    ("all of them", _all_sorted, ALL),
    ("first worse", _first_worse,
     "A measurement was worse than the previous one, but the next prediction still beat the best "
     "measurement. Continue as long as a prediction beats it."),
    ("two at least", _two_at_least,
     "The first measurement may be below all remaining predictions. Then a second measurement is "
     "useless."),
    ("twice", _twice, TWICE),
    ("twice", _again_at_the_end, TWICE),
    ("as given", _as_given, ORDER),
    ("as given", _as_given_stops, ORDER),
    ("the last", _last, "Choose the best measured cap, not the last."),
    ("good prediction", _good_prediction,
     "A prediction that was good does not prove that all further caps are worse."),
))
# fmt: on
OTHER_TUNING = (
    "Measure in the order of the predictions, and keep the time of each cap. Stop at the first "
    "prediction that is not better than the best measurement."
)


def drawn_tuning(rng: random.Random) -> Question:
    """Draw the times and predictions of six caps.

    The predictions are too low by 2 to 40 %, by a different amount for each cap.
    """
    caps = rng.sample((0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 25.0), 6)
    predicted = {
        cap: ms / 1000 for cap, ms in zip(caps, rng.sample(range(80, 140), 6), strict=True)
    }
    takes = {cap: seconds * rng.uniform(1.02, 1.4) for cap, seconds in predicted.items()}
    return takes, predicted


def as_long_as_the_best(rng: random.Random) -> Question:
    """Draw three caps; the first cap's measured time equals the second cap's prediction."""
    first, second, third = rng.sample((0.25, 0.5, 1.0, 2.0, 4.0), 3)
    least = rng.randrange(80, 100) / 1000
    said = {second: least * 1.25, third: least * 1.5, first: least}
    return {cap: seconds * 1.25 for cap, seconds in said.items()}, said


def nearly_right(rng: random.Random) -> Question:
    """Draw three caps.

    By the predictions, the first cap is the fastest. Its prediction is only 0.3 % too low, but in
    the measurement the second cap is faster.
    """
    first, second, third = rng.sample((0.25, 0.5, 1.0, 2.0, 4.0), 3)
    least = rng.randrange(80, 100) / 1000
    said = {third: least * 1.5, second: least * 1.001, first: least}
    return {third: least * 1.6, second: least * 1.002, first: least * 1.003}, said


def microseconds(rng: random.Random) -> Question:
    """Draw six caps as `drawn_tuning` does, ten thousand times faster."""
    takes, said = drawn_tuning(rng)
    return _scaled(takes), _scaled(said)


def _scaled(seconds: Mapping[float, float]) -> dict[float, float]:
    return {cap: each / 10_000 for cap, each in seconds.items()}


# servers


def busiest(sizes: Sequence[int], servers: int) -> int:
    """Return the bytes on the server with the most bytes.

    The tensors are placed from large to small, each on the server with the fewest bytes.
    """
    load = [0] * servers
    for size in sorted(sizes, reverse=True):
        load[load.index(min(load))] += size
    return max(load)


def _in_turns(sizes: Sequence[int], servers: int) -> int:
    return max(sum(sizes[k::servers]) for k in range(servers))


def _in_blocks(sizes: Sequence[int], servers: int) -> int:
    length = math.ceil(len(sizes) / servers)
    return max(sum(sizes[i : i + length]) for i in range(0, len(sizes), length))


def _as_given_placed(sizes: Sequence[int], servers: int) -> int:
    load = [0] * servers
    for size in sizes:
        load[load.index(min(load))] += size
    return max(load)


def needed(
    sizes: Sequence[int],
    workers: int,
    seconds: float,
    bandwidth: float,
    *,
    ways: float = 2,
    of: Callable[[Sequence[int], int], float] = busiest,
    all_workers: bool = True,
    strict: bool = False,
    less: int = 0,
    none: bool = True,
) -> int | None:
    """Return the smallest number of servers; each keyword can add a mistake to the rule."""
    for servers in range(1, len(sizes) + 1):
        took = ways * (workers if all_workers else 1) * of(sizes, servers) / bandwidth
        if took < seconds or (took == seconds and not strict):
            return servers - less
    return None if none else len(sizes)


def _evenly(sizes: Sequence[int], workers: int, seconds: float, bandwidth: float) -> int:
    return math.ceil(2 * sum(sizes) * workers / (bandwidth * seconds))


SERVERS_OF_ALL = (
    "In turns, one server gets all the large tensors if large and small tensors alternate."
)
# fmt: off
TOO_FEW = (
    Mistake("one way", partial(needed, ways=1),
            "Every byte crosses the link twice, there and back."),
    Mistake("evenly", _evenly,
            "A tensor is never split. Look at the busiest server, not at the average."),
    Mistake("evenly", partial(needed, of=lambda sizes, k: sum(sizes) / k),
            "A tensor is never split. Look at the busiest server, not at the average."),
    Mistake("one worker", partial(needed, all_workers=False),
            "All workers use a server's link: times `workers`."),
    Mistake("in turns", partial(needed, of=_in_turns),
            f"{SERVERS_OF_ALL} Place the largest tensor first, each tensor on the emptiest "
            "server."),
    Mistake("in blocks", partial(needed, of=_in_blocks),
            "Neighbours are often all large or all small. Place the largest tensor first, each "
            "tensor on the emptiest server."),
    Mistake("not the largest first", partial(needed, of=_as_given_placed),
            "A large tensor that comes last makes one server the busiest. Place the largest tensor "
            "first."),
    Mistake("one too few", partial(needed, less=1), "Your result is one server too few."),
    Mistake("bits", partial(needed, ways=16), "Sizes and bandwidth are both in bytes, so do not "
    "multiply by 8."),
)
# fmt: on
OTHER_SERVERS = (
    "Try 1, 2, 3, … servers. Place the tensors, and test if 2 · workers · bytes of the busiest "
    "server / bandwidth is at most `seconds`."
)


def drawn_servers(rng: random.Random) -> Question:
    """Draw large and tiny tensors, mostly alternating; 2 to 8 servers are enough."""
    sizes = []
    for _ in range(rng.randrange(9, 15)):
        sizes += [rng.randrange(2_000_000, 9_000_000), rng.randrange(1_000, 5_000)]
    sizes += [rng.randrange(8_000_000, 12_000_000)]
    workers, bandwidth = rng.choice((4, 6, 8)), rng.uniform(0.5e9, 2e9)
    enough = rng.randrange(3, 8)
    took = 2 * workers * busiest(sizes, enough) / bandwidth
    return sizes, workers, took * rng.uniform(1.001, 1.05), bandwidth


def exactly_hidden(rng: random.Random) -> list[Question]:
    """Draw a model of equal tensors; return a question for each of three values of `seconds`.

    The first value is just enough for a server with two tensors. The second is one byte too short
    for two tensors, so each tensor needs its own server. The third is enough for all tensors on one
    server. A fourth question is like the first, with tensors of at most 512 bytes. All numbers are
    exact in floating point.
    """
    size, bandwidth = 2 ** rng.randrange(16, 24), 2.0 ** rng.randrange(28, 34)
    count, workers = rng.randrange(6, 32, 2), 2 ** rng.randrange(1, 6)
    tiny = 2 ** rng.randrange(4, 10)
    return [
        ([each] * count, workers, 2 * workers * nbytes / bandwidth, bandwidth)
        for each, nbytes in (
            (size, 2 * size),
            (size, 2 * size - 1),
            (size, 32 * size),
            (tiny, 2 * tiny),
        )
    ]


def impossible(rng: random.Random) -> Question:
    """Draw a model with one tensor that alone keeps a server busy for more than `seconds`."""
    sizes = [rng.randrange(30_000_000, 40_000_000), 1000, 2000, 3_000_000]
    return sizes, 8, 0.2, 1e9
