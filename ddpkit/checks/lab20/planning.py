"""Lab 20: plans of replicas, stages, slices and micro-batches, with their bytes and seconds.

A question holds two tables: the bytes and the seconds of each combination that an answer may ask
about. So the question does not contain the formulas of `fits` and `model_flops`.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab20.sizes import AGAIN, ShardedStep, TransformerShape, fits, flops

if TYPE_CHECKING:
    from ddpkit.exercises.exercise import Observed
    from ddpkit.exercises.guard import Answer

Key = tuple[int, int, int, str, int]  # replicas, stages, slices, again, micro
Costs = Mapping[Key, tuple[float, float]]  # bytes and seconds


@dataclass(frozen=True)
class Search:
    """A question: a model, a batch, numbers of GPUs, a memory limit, and the costs of plans."""

    shape: TransformerShape
    batch: int
    gpus: Sequence[int]
    host: int
    memory: float
    costs: Costs  # bytes and seconds of each legal plan

    def is_legal(self, key: Key) -> bool:
        """True if a plan divides everything evenly, and its number of GPUs is in `gpus`.

        Stages divide the layers, slices divide the key heads and a host's GPUs, and replicas ×
        micro divides the batch.
        """
        replicas, stages, slices, again, micro = key
        sizes = replicas, stages, slices, micro
        if not all(type(each) is int and each > 0 for each in sizes) or again not in AGAIN:
            return False
        divides = (
            self.shape.layers % stages == 0
            and self.shape.kv_heads % slices == 0
            and self.host % slices == 0
            and self.batch % (replicas * micro) == 0
        )
        return divides and replicas * stages * slices in self.gpus

    @property
    def legal(self) -> list[Key]:
        """All legal plans."""
        return [*self.costs]


def bill(key: Key, costs: Costs) -> float:
    """Return the GPU seconds of one step of a plan."""
    return costs[key][1] * key[0] * key[1] * key[2]


def fitting(ask: Search) -> list[Key]:
    """Return the legal plans that fit into memory."""
    return [key for key in ask.legal if ask.costs[key][0] <= ask.memory]


def best(ask: Search) -> tuple[Key, Key] | None:
    """Return the fastest and the cheapest plan; None if no plan fits."""
    found = fitting(ask)
    if not found:
        return None
    return (
        min(found, key=lambda key: ask.costs[key][1]),
        min(found, key=lambda key: (bill(key, ask.costs), ask.costs[key][1])),
    )


def _cost(key: Key, ask: Search, length: int, rate: float) -> tuple[float, float]:
    """Return bytes and seconds of a plan, as the lesson's `plan_bytes` and `plan_seconds` do."""
    replicas, stages, slices, again, micro = key
    shape, turns = ask.shape, max(1, ask.batch // (replicas * micro))
    layers = max(1, shape.layers // stages)
    held = min(stages, turns)
    stage = replace(shape, layers=layers)
    nbytes = fits(ShardedStep(stage, replicas, held * micro, length, again)) / slices
    work = flops((shape, micro, length), again) / 4e14 / (stages * slices)
    sums = layers * (6 if again == "full" else 4)
    moved = 2 * micro * length * shape.width
    added = sums * 2 * (slices - 1) * (3e-6 + moved / slices / 450e9)
    travels = 8 / 3 * shape.parameters / shape.layers
    gathers = 3 * layers * (replicas - 1) * (5e-6 + travels / replicas / rate)
    return nbytes, (turns + stages - 1) * max(work + added, gathers)


def _search(
    rng: random.Random, rate: float, gigabytes: float, gpus: Sequence[int], host: int = 8
) -> Search:
    shape = TransformerShape(12, 2048, 16, 4, 5632, rng.randrange(30_000, 34_000))
    ask = Search(shape, 48, gpus, host, gigabytes * 1e9 * rng.uniform(0.97, 1.03), {})
    length, costs = 2048 + 8 * rng.randrange(64), {}
    for n in gpus:
        for stages, slices in itertools.product(_divisors(shape.layers), _divisors(ask.host)):
            for again, micro in itertools.product(AGAIN, _divisors(ask.batch)):
                key = n // (stages * slices), stages, slices, again, micro
                if ask.is_legal(key):
                    nbytes, seconds = _cost(key, ask, length, rate)
                    costs[key] = nbytes, seconds * rng.uniform(0.999, 1.001)
    return replace(ask, costs=costs)


def _divisors(n: int) -> list[int]:
    return [each for each in range(1, n + 1) if n % each == 0]


def _filled_by_the_fastest(ask: Search) -> Search:
    """Return a search in which the fastest plan needs exactly the memory of a GPU."""
    plans = best(ask)
    assert plans
    return replace(ask, memory=ask.costs[plans[0]][0])


def _with_equal_bills(ask: Search) -> Search:
    """Return a search in which a plan on other GPUs has exactly the bill of the cheapest plan.

    The two numbers of GPUs must be powers of two, so that both bills are equal in float64.
    """
    cheapest = best(ask)
    assert cheapest
    n = math.prod(cheapest[1][:3])
    other = next(key for key in fitting(ask) if math.prod(key[:3]) != n)
    nbytes, seconds = ask.costs[other][0], ask.costs[cheapest[1]][1]
    return replace(ask, costs={**ask.costs, other: (nbytes, seconds * n / math.prod(other[:3]))})


def drawn(rng: random.Random) -> list[tuple[str, Search]]:
    """Return four questions with their titles; in the first, common mistakes give wrong plans.

    In the second, the fastest plan needs all the memory, and a host has 6 GPUs, which 4 slices do
    not divide.
    """
    while True:
        first = _search(rng, 100e9, rng.uniform(1.9, 3.6), [8, 16, 24])
        fastest, cheapest = best(first) or ((), ())
        few = min((math.prod(key[:3]) for key in fitting(first)), default=0)
        if fastest and few < math.prod(cheapest[:3]) < math.prod(fastest[:3]):
            break
    tight = _search(rng, 100e9, 0.3, [8, 16])
    full = _filled_by_the_fastest(_search(rng, 5e9, 8, [6, 12, 24], host=6))
    return [
        (f"100 GB/s, {first.memory / 1e9:.1f} GB", first),
        (f"5 GB/s, {full.memory / 1e9:.1f} GB, which the fastest plan fills", full),
        ("100 GB/s, 60 GB", _with_equal_bills(_search(rng, 100e9, 60, [8, 32]))),
        ("nothing fits", tight),
    ]


def asked(
    answer: Answer,
    shape: TransformerShape,
    batch: int,
    gpus: Sequence[int],
    host: int,
    memory: float,
    costs: Costs,
) -> dict[str, object]:
    """Return the answer's two plans, and each plan for which the answer called `seconds`.

    A combination without an entry in the table needs one byte on each GPU, and takes one
    nanosecond.
    """
    timed = list[Key]()

    def size(plan: Any) -> float:
        return costs.get(_key(plan), (1.0, 0.0))[0]

    def seconds(plan: Any) -> float:
        key = _key(plan)
        timed.append(key)
        return costs.get(key, (0.0, 1e-9))[1]

    try:
        found = answer(shape, batch, list(gpus), host, memory, seconds, size)
    except ValueError:
        return {"plans": "ValueError", "timed": timed}
    plans = [_key(each) for each in found] if isinstance(found, list | tuple) else found
    return {"plans": plans, "timed": timed}


def _key(plan: Any) -> Key:
    return plan.replicas, plan.stages, plan.slices, plan.again, plan.micro


def judged(ask: Search, observed: Observed) -> dict[str, object]:
    """Return the seconds and the GPU seconds of the answer's plans, or describe wrong plans."""
    plans, timed = observed["plans"], {tuple(key) for key in observed["timed"]}
    fit = set(fitting(ask))
    seen: dict[str, object] = {
        "seconds asked": "where a plan fits" if timed <= fit else "for others too",
        "asked": len(timed),
        "fit": len(fit),
        "cheapest takes": 0.0,
    }
    if plans == "ValueError" or not isinstance(plans, list | tuple):
        said = "ValueError" if plans == "ValueError" else type(plans).__name__
        return {**seen, "plans": said, "fastest": 0.0, "cheapest": 0.0}
    keys = [tuple(each) for each in plans]
    if len(keys) != 2:
        return {**seen, "plans": f"{len(keys)} plans", "fastest": 0.0, "cheapest": 0.0}
    for key in keys:
        if not ask.is_legal(key) or key not in ask.costs:
            return {**seen, "plans": "does not divide", "bad": key, "fastest": 0.0,
                    "cheapest": 0.0}  # fmt: skip
        if key not in fit:
            return {**seen, "plans": "does not fit", "bad": key, "fastest": 0.0, "cheapest": 0.0}
    fast, cheap = keys
    return {
        **seen,
        "plans": "two that fit",
        "fastest": ask.costs[fast][1],
        "cheapest": bill(cheap, ask.costs),
        "cheapest takes": ask.costs[cheap][1],
        "keys": (fast, cheap),
    }
