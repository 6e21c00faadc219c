"""Lab 19: steps between exchanges, and the steps at which fragments begin and end."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.guard import Answer, values

Plan = tuple[float, int, int, float, float, float]  # the arguments of steps_between

# steps_between


def _exchange_ms(
    rounds: float, latencies: float, sent: float, latency: float, gbit: float
) -> float:
    """Return the ms of `latencies` latencies and of `rounds` messages of `sent` bytes each."""
    return latencies * latency + rounds * sent * 8 / gbit / 1e6


def _steps(exchange_ms: float, step_ms: float, share: float) -> float:
    return exchange_ms * (1 - share) / (share * step_ms)


def ideas(plan: Plan) -> dict[str, float]:
    """Return the right number of steps, and the numbers of common mistakes, before rounding up."""
    step_ms, nbytes, n, latency, gbit, share = plan
    rounds, part = 2 * (n - 1), nbytes / n
    ms = partial(_exchange_ms, latency=latency, gbit=gbit)
    right = ms(rounds, rounds, part)
    times = {
        "right": right,
        "one latency": ms(rounds, 1, part),
        "half a ring": right / 2,
        "whole line": ms(rounds, rounds, nbytes),
        "n rounds": ms(2 * n, 2 * n, part),
        "bits": ms(rounds, rounds, part / 8),
    }
    found = {name: _steps(time, step_ms, share) for name, time in times.items()}
    found["share of what"] = right / (share * step_ms)
    found["share of the step"] = right * (1 - share) / step_ms
    return found


def drawn_plan(rng: random.Random, *, gbit: float) -> Plan:
    """Return a plan for which each mistake gives a wrong number of steps, off by 2 or more."""
    while True:
        n = rng.randrange(3, 17)
        nbytes = n * rng.randrange(20_000, 900_000)
        plan = (rng.randrange(5, 200), nbytes, n, rng.randrange(5, 80), gbit,
                rng.choice((0.05, 0.1, 0.2, 0.25)))  # fmt: skip
        found = [math.ceil(each) for each in ideas(plan).values()]
        apart = min(abs(each - found[0]) for each in found[1:])
        exact = ideas(plan)["right"]
        if apart > 1 and found[0] > 4 and 0.05 < exact - int(exact) < 0.95:
            return plan


def whole(rng: random.Random) -> Plan:
    """Return a plan for which the right number of steps is whole, without a rounding error."""
    carried_ms, latency_ms = rng.randrange(3, 200), rng.randrange(5, 80)
    return (2, 250_000 * carried_ms, 2, latency_ms, 1, 0.5)


def steps_asked(answer: Answer, plan: Plan) -> Observed:
    """Return the number of steps that the answer computes."""
    return {"steps": answer(*plan)}


# stream

Schedule = tuple[list[list[int]], list[list[int]]]


def _schedule(fragments: int, every: int, delay: int, steps: int) -> Schedule:
    first = [(k + 1) * every // fragments for k in range(fragments)]

    def due(t: int) -> list[int]:
        return [k for k, f in enumerate(first) if t >= f and (t - f) % every == 0]

    every_step = range(1, steps + 1)
    return [due(t) for t in every_step], [due(t - delay) for t in every_step]


class Stream:
    """The fragments that begin and end after each step: the right lists, and lists of mistakes."""

    def __init__(self, fragments: int, every: int, delay: int) -> None:
        self.fragments, self.every, self.delay = fragments, every, delay
        self.steps = 4 * every

    def right(self) -> Schedule:
        """Return the fragments that begin and those that end, for each step."""
        return _schedule(self.fragments, self.every, self.delay, self.steps)

    def by_turns(self) -> list[list[int]]:
        """Return the fragments that begin, if one begins every `every // fragments` steps."""
        turn = self.every // self.fragments
        due = [(t // turn - 1) % self.fragments for t in range(self.steps + 1) if turn]
        return [[due[t]] if turn and t % turn == 0 else [] for t in range(1, self.steps + 1)]

    def reversed(self) -> list[list[int]]:
        """Return the fragments that begin, if the order of the fragments is reversed."""
        return [[self.fragments - 1 - k for k in each] for each in self.right()[0]]

    def all_at_once(self) -> list[list[int]]:
        """Return the fragments that begin, if all fragments begin together every `every` steps."""
        all_of_them = list(range(self.fragments))
        return [[] if t % self.every else all_of_them for t in range(1, self.steps + 1)]

    def read(self, seen: Observed) -> Observed:
        """Sort each list of numbers, and add the first steps with wrong lists."""
        lists = {name: [_sorted(each) for each in seen[name]] for name in ("begin", "end")}
        return {**lists, **self._found(lists)}

    def _found(self, lists: Mapping[str, list[Any]]) -> Observed:
        begin, end = self.right()
        found: dict[str, Any] = {}
        for name, due in (("begin", begin), ("end", end)):
            steps = (t for t in range(self.steps) if lists[name][t] != due[t])
            at = next(steps, None)
            if at is not None:
                found[f"{name}s at"] = [at + 1, lists[name][at], due[at]]
        begun: set[int] = set()
        for t in range(self.steps):
            begun |= set(lists["begin"][t]) if isinstance(lists["begin"][t], list) else set()
            early = [k for k in lists["end"][t] if k not in begun]
            if early:
                found["ends first"] = [t + 1, early[0]]
                break
        return found


def _sorted(found: Any) -> object:
    numbers = isinstance(found, list) and all(type(each) is int for each in found)
    return sorted(found) if numbers else found


def streamed(answer: Answer, fragments: int, every: int, delay: int) -> Observed:
    """Return the answer's two lists of fragments (begin, end) after each step of four periods."""
    begin, end = [], []
    for t in range(1, 4 * every + 1):
        begins, ends = values(answer(t, fragments, every, delay), 2)
        begin.append(_listed(begins))
        end.append(_listed(ends))
    return {"begin": begin, "end": end}


def _listed(found: object) -> object:
    return list(found) if isinstance(found, list | tuple | range) else "no list"


def drawn_streams(rng: random.Random) -> list[tuple[str, Stream]]:
    """Return schedules; in some of them, the fragments divide the period evenly."""
    k, m = rng.randrange(2, 6), rng.randrange(4, 25)
    uneven, odd = rng.randrange(3, 7), rng.randrange(14, 80)
    odd += odd % uneven == 0
    last = rng.randrange(15, 90)
    return [
        ("a period that the fragments divide", Stream(k, k * m, rng.randrange(1, k * m))),
        ("another period", Stream(uneven, odd, rng.randrange(1, odd))),
        ("the longest delay", Stream(rng.randrange(2, 6), last, last - 1)),
        ("no delay", Stream(rng.randrange(2, 6), rng.randrange(20, 120), 0)),
        ("one fragment", Stream(1, rng.randrange(20, 90), rng.randrange(1, 20))),
    ]


def first_of(found: Sequence[object]) -> object:
    """Return the first element, or None if there is no element."""
    return found[0] if found else None
