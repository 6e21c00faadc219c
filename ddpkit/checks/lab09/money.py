"""Hours on servers that can be revoked, and the cheapest plan: right and wrong formulas."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from ddpkit.checks.shared.mistakes import Mistake, Question

# expected_hours


def hours_of(
    hours: float,
    ranks: int,
    rate: float,
    save: float,
    interval: float,
    restart: float,
    *,
    all_stop: bool = True,
    from_the_start: bool = False,
) -> float:
    """Return the expected hours, exact for exponential lifetimes; options make the formula wrong.

    A stretch is the time from one checkpoint to the next. Until a try of length T survives, a
    stretch takes (exp(rate · T) - 1) / rate hours on average. Each failure adds a restart.
    """
    danger = rate * (ranks if all_stop else 1)
    stretch = interval + save
    if not danger:
        return hours / interval * stretch
    if from_the_start:
        stretch, interval = hours / interval * stretch, hours
    return hours / interval * (1 / danger + restart) * math.expm1(danger * stretch)


def _first_order(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    work = hours * (1 + save / interval)
    return work * (1 + ranks * rate * (interval / 2 + restart))


def _first_order_of_all(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    work = hours * (1 + save / interval)
    return work + hours * ranks * rate * ((interval + save) / 2 + restart)


def _no_save(hours: float, ranks: int, rate: float, save: float, *others: float) -> float:
    return hours_of(hours, ranks, rate, 0.0, *others)


def _no_restart(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    return hours_of(hours, ranks, rate, save, interval, 0.0)


def _nothing_lost(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    return hours * (1 + save / interval) + hours * ranks * rate * restart


def _nothing_lost_of_all(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    return hours * (1 + save / interval) * (1 + ranks * rate * restart)


def _a_share_lost(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    work = hours * (1 + save / interval)
    return work * (1 + ranks * rate * (interval / 2 / ranks + restart))


RARE = (
    "Your formula is right only for rare revocations: a stretch may fail many times before it "
    "survives."
)
KEPT = "The work since the last checkpoint is lost, and has to be repeated."
# fmt: off
HOURS = (
    Mistake("one rank", partial(hours_of, all_stop=False),
            "Any one of the `ranks` servers stops all of them: ranks · rate."),
    Mistake("first order", _first_order, RARE),
    Mistake("first order", _first_order_of_all, RARE),
    Mistake("no save", _no_save,
            "Each stretch of work ends with a checkpoint, which takes `save` and has to survive "
            "too."),
    Mistake("no restart", _no_restart, "Each failure takes `restart` before work goes on."),
    Mistake("nothing lost", _nothing_lost, KEPT),
    Mistake("nothing lost", _nothing_lost_of_all, KEPT),
    Mistake("from the start", partial(hours_of, from_the_start=True),
            "The ranks go back to the last checkpoint, not to the start. Compute one stretch at a "
            "time."),
    Mistake("a share lost", _a_share_lost,
            "The job is synchronous: all ranks go back, not only the lost rank."),
)
# fmt: on
OTHER_HOURS = (
    "The job has hours / interval stretches. Each stretch has to survive: (exp(λT) - 1) / λ on "
    "average, with λ = ranks · rate and T = interval + save, and `restart` for each of its exp(λT) "
    "- 1 failures."
)


def drawn_hours(rng: random.Random) -> Question:
    """Draw a job of about a day on servers that are revoked every few hours.

    The checkpoints divide the job into equal stretches.
    """
    interval = rng.randrange(20, 97) / 64
    return (
        interval * round(rng.uniform(5, 30) / interval),
        rng.choice((2, 4, 8, 16)),
        rng.uniform(0.02, 0.12),
        rng.uniform(0.01, 0.1),
        interval,
        rng.uniform(0.05, 0.4),
    )


def never_revoked(rng: random.Random) -> Question:
    """Draw a job on servers that are never revoked."""
    hours, ranks, _, *others = drawn_hours(rng)
    return hours, ranks, 0.0, *others


def broken(rng: random.Random, rate: float) -> Question:
    """Draw a job of several stretches between checkpoints, and a shorter last stretch."""
    interval, whole = rng.randrange(20, 97) / 64, rng.randrange(5, 20)
    hours = interval * (whole + rng.choice((0.25, 0.375, 0.5)))
    return hours, rng.choice((2, 4, 8)), rate, rng.uniform(0.01, 0.1), interval, 0.25


def shorter(rng: random.Random, rate: float) -> Question:
    """Draw a job that is shorter than one stretch between checkpoints."""
    _, *others, interval, restart = broken(rng, rate)
    return interval * rng.choice((0.25, 0.375, 0.5)), *others, interval, restart


def _in_whole(
    number: Callable[[float], int],
    hours: float,
    ranks: int,
    rate: float,
    save: float,
    interval: float,
    restart: float,
) -> float:
    stretches = number(hours / interval)
    return hours_of(stretches * interval, ranks, rate, save, interval, restart)


def _at_least_one(
    hours: float, ranks: int, rate: float, save: float, interval: float, restart: float
) -> float:
    return hours_of(hours, ranks, rate, save, min(interval, hours), restart)


# fmt: off
BROKEN = (
    Mistake("rounded up", partial(_in_whole, math.ceil),
            "The last stretch is only a part, and counts as a part: hours / interval."),
    Mistake("rounded down", partial(_in_whole, math.floor),
            "The work after the last whole stretch takes time too: hours / interval, not "
            "rounded."),
)
SHORTER = (
    *BROKEN,
    Mistake("one stretch at least", _at_least_one,
            "A job shorter than `interval` is a part of one stretch: hours / interval of the "
            "stretch's time."),
)
# fmt: on

# plan

Plan: TypeAlias = list[int] | None


def seconds_by(
    fixed: float, sample: float, alpha: float, shared: float, ranks: int, batch: int
) -> float:
    """Return the seconds of a step.

    The terms are `fixed`, `sample` for each sample of a rank's batch, `alpha` for each rank but
    one, and `shared` divided by the number of ranks.
    """
    return fixed + sample * batch + alpha * (ranks - 1) + shared / ranks


def planned(
    answer: Callable[..., object],
    step: tuple[float, float, float, float],
    noise: float,
    least: float,
    worlds: tuple[int, ...],
    batches: tuple[int, ...],
    dollars: float,
    deadline: float,
) -> Plan:
    """Return an answer's plan as a list, or None."""
    found = answer(
        partial(seconds_by, *step), noise, least, list(worlds), list(batches), dollars, deadline
    )
    return None if found is None else [int(each) for each in found]  # type: ignore[attr-defined]


def _plan(
    step: Callable[[int, int], float],
    noise: float,
    least: float,
    worlds: list[int],
    batches: list[int],
    dollars: float,
    deadline: float,
    *,
    steps: str = "right",
    by: str = "dollars",
    in_hours: bool = True,
    in_time: bool = True,
    of_all: bool = False,
    whole: Callable[[float], float] = float,
) -> tuple[int, int] | None:
    """Return the cheapest plan that meets the deadline; each keyword can add a mistake."""

    def count(ranks: int, batch: int) -> float:
        return (
            least
            * {
                "right": 1 + noise / (ranks * batch),
                "of one rank": 1 + noise / batch,
                "of the ranks": 1 + noise / ranks,
                "constant": 1.0,
                "in proportion": noise / (ranks * batch),
            }[steps]
        )

    found = []
    for ranks in worlds:
        for batch in batches:
            second = step(ranks, ranks * batch if of_all else batch)
            hours = whole(count(ranks, batch)) * second / (3600 if in_hours else 1)
            cost = {"dollars": ranks * dollars * hours, "hours": hours}[by]
            if hours <= deadline or not in_time:
                found.append((cost, hours, ranks, batch))
    return min(found)[2:] if found else None


# fmt: off
PLANS = tuple(
    Mistake(name, partial(planned, partial(_plan, **wrong)), says)
    for name, wrong, says in (
        ("one rank's batch", {"steps": "of one rank"},
         "The batches of all ranks average the noise: n · b samples."),
        ("ranks alone", {"steps": "of the ranks"},
         "A step has n · b samples, so divide the noise by n · b, not by n."),
        ("the whole batch", {"of_all": True},
         "`step_seconds` takes the batch of one rank: step_seconds(n, b)."),
        ("constant steps", {"steps": "constant"},
         "A small batch needs more steps: least_steps · (1 + noise / (n · b))."),
        ("in proportion", {"steps": "in proportion"},
         "Beyond the noise scale, a larger batch saves no steps: there are never fewer than "
         "least_steps."),
        ("fastest", {"by": "hours"},
         "You choose the fastest plan, or pay for one rank. Every rank costs, even while it "
         "waits."),
        ("too late", {"in_time": False}, "Your plan is not done within `deadline` hours."),
        ("seconds", {"in_hours": False},
         "`deadline` and `dollars` count hours, but `step_seconds` counts seconds. Divide by "
         "3600."),
    )
)
FEW = tuple(
    Mistake("whole steps", partial(planned, partial(_plan, whole=whole)),
            "The number of steps is an average: do not round it.")
    for whole in (round, math.ceil, math.floor)
)
# fmt: on
OTHER_PLANS = (
    "For each n and b: steps = least_steps · (1 + noise / (n·b)), hours = steps · seconds / 3600, "
    "dollars = n · dollars · hours. Keep the plans in time, and take the cheapest."
)


def right_plan(*question: object) -> Plan:
    """Return the cheapest plan that meets the deadline."""
    return planned(_plan, *question)  # type: ignore[arg-type]


WORLDS, BATCHES = (1, 2, 4, 8, 16, 32, 64), (8, 16, 32, 64, 128)


def drawn_plan(rng: random.Random) -> Question:
    """Draw a job with a deadline, and world sizes and batches in any order.

    Mostly the deadline rules out small numbers of ranks. In every third job, on average, the
    deadline is thousands of times longer, and a large part of a step is shared by the ranks.
    """
    loose = not rng.randrange(3)
    shared = rng.uniform(0.5, 3) if loose else 0.0
    step = (rng.uniform(0.02, 0.08), rng.uniform(0.001, 0.004), rng.uniform(0.0005, 0.003), shared)
    noise, least = rng.uniform(100, 2000), rng.uniform(20_000, 80_000)
    worlds, batches = rng.sample(WORLDS, len(WORLDS)), rng.sample(BATCHES, len(BATCHES))
    deadline = _fastest(step, noise, least) * rng.uniform(1.2, 4) * (4000 if loose else 1)
    return step, noise, least, tuple(worlds), tuple(batches), rng.uniform(0.5, 3), deadline


def _fastest(step: tuple[float, float, float, float], noise: float, least: float) -> float:
    """Return the hours of the fastest plan."""
    return min(
        least * (1 + noise / (ranks * batch)) * seconds_by(*step, ranks, batch) / 3600
        for ranks in WORLDS
        for batch in BATCHES
    )


def a_few_steps(rng: random.Random) -> Question:
    """Draw a job of a few steps, on one to four ranks."""
    step = (rng.uniform(1, 3), rng.uniform(0.1, 0.5), rng.uniform(0.1, 0.5), rng.uniform(1, 3))
    noise, least = rng.uniform(2, 20), rng.uniform(1, 4)
    return step, noise, least, (1, 2, 4), (1, 2, 4, 8), 2.0, 1.0


def hopeless(rng: random.Random) -> Question:
    """Draw a job with a deadline that no plan meets."""
    *others, _ = drawn_plan(rng)
    return *others, 0.001


def just_in_time(rng: random.Random) -> Question:
    """Draw a job for two world sizes: the smaller is too late, the larger is just in time.

    The time of the larger world size equals the deadline exactly, in any order of multiplications
    and divisions. A step takes `shared / ranks` seconds, and there is no noise.
    """
    while True:
        ranks, batch = 2 ** rng.randrange(2, 6), 2 ** rng.randrange(2, 8)
        shared, least = rng.randrange(1, 64) / 8, 3600.0 * rng.randrange(1, 64)
        second = shared / ranks
        deadline = least * second / 3600
        others = (second / 3600 * least, least / 3600 * second)
        if all(each == deadline for each in others):
            step = (0.0, 0.0, 0.0, shared)
            return step, 0.0, least, (ranks // 2, ranks), (batch,), 2.0, deadline


def equally_cheap(rng: random.Random) -> list[Question]:
    """Draw plans of exactly equal cost: twice as many ranks take half as long.

    The fastest plan is the last in the first question, and the first in the second. In the third
    question, a rank costs nothing.
    """
    few, batch = 2 ** rng.randrange(5), 2 ** rng.randrange(2, 8)
    up = (few, 2 * few, 4 * few, 8 * few)
    job = (0.0, 0.0, 0.0, 0.125), 0.0, float(2**17)
    *others, deadline = drawn_plan(rng)
    others[5] = 0.0
    return [
        (*job, up, (batch,), 2.0, 1e6),
        (*job, up[::-1], (batch,), 2.0, 1e6),
        (*others, deadline),
    ]
