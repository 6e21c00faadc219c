"""Lab 19: the exercises about training over slow links."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ddpkit.checks.lab19 import hints, hints_more, plans, rosters
from ddpkit.checks.shared.meeting import Visit
from ddpkit.cluster.torchrun.job import active
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.guard import Answer
from ddpkit.exercises.ranks import Did, asked, timed, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank


def _exchanges(ranks: Sequence[int], did: Did) -> list[int]:
    """Return the number of collectives that each of these ranks calls."""
    return [sum(one.is_collective for one in did.trace.of(rank)) for rank in ranks]


def _handed_in(ranks: Sequence[int], did: Did) -> list[int]:
    return [did.handed_in[rank] for rank in ranks]


def _of_each(name: str, ranks: Sequence[int], did: Did) -> list[object]:
    return [did.returned[rank][name] for rank in ranks]


def _all_kept(ranks: Sequence[int], did: Did) -> bool:
    return all(did.returned[rank]["kept"] for rank in ranks)


# steps_between


@exercise("steps_between", lab="19", points=1)
def steps_between(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the fewest steps between exchanges that take at most a given share of the time."""
    drawn = [
        ("1 Gbit/s", plans.drawn_plan(rng, gbit=1)),
        ("0.1 Gbit/s", plans.drawn_plan(rng, gbit=0.1)),
        ("10 Gbit/s", plans.drawn_plan(rng, gbit=10)),
        ("ten billion parameters", (100, 4 * 10**10 + rng.randrange(10**9), 14, 60, 1, 0.05)),
        ("a whole number of steps", plans.whole(rng)),
        ("few bytes", (rng.randrange(300, 900), 1000, 2, 1, 10, 0.2)),
        ("one rank", (rng.randrange(5, 100), 50_000, 1, 30, 1, 0.25)),
    ]
    for about, plan in drawn:
        found = plans.ideas(plan)
        right = max(1, -int(-found["right"] // 1))
        yield Case(
            f"{about}, {plan[2]} ranks" if plan[2] > 1 else about,
            partial(plans.steps_asked, answer, plan),
            {"steps": right},
            hints=hints.STEPS,
            given={"ideas": found, "n": plan[2],
                   "exchange_ms": found["right"] * plan[5] * plan[0] / (1 - plan[5])},
            trivial=right == 1,
        )  # fmt: skip


# Outer


def _after_read(seen: Observed) -> Observed:
    """Add "ranks agree"; keep only the outer optimizer's `start` after the last round."""
    after = seen["after"]
    return {
        **{name: value for name, value in seen.items() if name != "start"},
        "start": [each[-1] for each in seen["start"]],
        "ranks agree": all(same(each, after[0]) for each in after),
    }


@exercise("Outer", lab="19", points=4, returns=False)
def outer(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an outer optimizer with Nesterov momentum, and exchanges that need no waiting."""
    from ddpkit.checks.lab19 import on_ranks
    from ddpkit.checks.lab19.outer import IDEAS, NBYTES, Rounds

    for n, lr, momentum, keep in (
        (4, 0.7, 0.9, 0.0), (3, 0.5, 0.5, 0.5), (2, 1.0, 0.0, 0.0), (2, 0.7, 0.9, 0.25),
        (1, 0.6, 0.8, 0.0),
    ):  # fmt: skip
        asks, alone = Rounds(rng, n, lr, momentum, keep), n == 1
        right = asks.run()
        about = f"lr {lr:g}, momentum {momentum:g}" + (f", keep {keep:g}" if keep else "")
        observe = on_ranks.outer_steps if alone else on_ranks.outer_rounds
        wanted: dict[str, object] = {"after": [Close(each) for each in right]}
        wanted["start"] = [Close(right[0][-1])] * n if not keep else [Close(_start(asks))] * n
        if not keep:
            wanted["ranks agree"] = True
        see: dict[str, Any] = {name: partial(_of_each, name, range(n))
                               for name in ("after", "start")}  # fmt: skip
        if not alone:
            see["exchanges"], see["handed in"] = partial(_exchanges, range(n)), "handed_in"
            wanted["exchanges"] = [asks.count] * n
            wanted["handed in"] = [Between(asks.count * NBYTES, asks.count * NBYTES)] * n
        yield Case(
            title(n, about, *["step alone"] * alone),
            asked(
                *(partial(observe, answer), asks.parameters(), lr, momentum),
                PerRank([asks.steps(rank) for rank in range(n)]),
                keep,
                world_size=n,
                see=see,
            ),
            wanted,
            read=_after_read,
            hints=hints.OUTER,
            given={"models": {idea: asks.run(idea) for idea in IDEAS}, "n": n, "keep": keep,
                   "lr": lr, "momentum": momentum, "rounds": asks.count},
            trivial=alone,
            stop_if="raised",
        )  # fmt: skip
    if not active():
        yield _meanwhile(answer, rng)


def _start(asks: Any) -> object:
    """Return the right `start` after the last round, computed back from rank 0's parameters."""
    last = asks.count - 1
    mine = asks.run()[0]
    before = mine[last - 1] + asks.before[last, 0]
    now = before + asks.during[last, 0]
    return (mine[last] - asks.keep * now) / (1 - asks.keep)


FAST, LINK = "1 TFLOP/s", "10 Gbit/s, 100 us"


def _ns(observed: Observed) -> Observed:
    seen = dict(timed(observed, FAST, LINK))
    return {"ns": round(1e6 * seen.pop("ms")), **seen}


def _meanwhile(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab19.on_ranks import outer_timed

    numbers = 2 * rng.randrange(100_000, 150_000)
    nbytes = 4 * numbers
    return Case(
        title(4, "10 products between begin and end"),
        asked(
            *(partial(outer_timed, answer), numbers, 10, 500),
            world_size=4,
            see={"programs": "programs", "handed in": "handed_in"},
            machine=FAST,
            link=LINK,
        ),
        {"ns": Between(2_499_000, 2_600_000), "handed in": [Between(nbytes, nbytes)] * 4},
        read=_ns,
        hints=hints.OUTER,
        given={"n": 4, "keep": 0, "rounds": 1},
    )


# stream


@exercise("stream", lab="19", points=2)
def stream(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the fragments that begin and the fragments that end after each step."""
    for about, asks in plans.drawn_streams(rng):
        begin, end = asks.right()
        models = {"all at once": asks.all_at_once(), "by turns": asks.by_turns(),
                  "reversed": asks.reversed(), "begin": begin, "end": end}  # fmt: skip
        yield Case(
            f"{asks.fragments} fragments, every {asks.every} steps, {about}",
            partial(plans.streamed, answer, asks.fragments, asks.every, asks.delay),
            {"begin": begin, "end": end},
            read=asks.read,
            hints=hints.STREAM,
            given={"models": models, "fragments": asks.fragments, "every": asks.every,
                   "delay": asks.delay},
        )  # fmt: skip


# mean_by_bytes


@exercise("mean_by_bytes", lab="19", points=3)
def mean_by_bytes(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the mean of numbers that are sent as one byte each, and the errors of rounding."""
    from ddpkit.checks.lab19.exchanges import BYTES_IDEAS, ROUNDS, Rounded
    from ddpkit.checks.lab19.on_ranks import by_bytes

    for sizes, about in (
        ((0.1, 1.0, 10.0, 100.0), "sizes from 0.1 to 100"),
        ((1.0, 0.0, 2.0), "a line of zeros"),
        ((3.0, 2.0), ""),
        ((3e-9, 2e-9), "small numbers"),
        ((1.0,), ""),
    ):
        n = len(sizes)
        asks = Rounded(rng, sizes, rng.randrange(20, 60))
        means, errors = asks.run()
        yield Case(
            title(n, f"{asks.numbers} numbers", *filter(None, [about])),
            asked(
                *(partial(by_bytes, answer), PerRank([asks.of(rank) for rank in range(n)])),
                world_size=n,
                see={
                    **{name: partial(_of_each, name, range(n)) for name in ("mean", "error")},
                    "left alone": partial(_all_kept, range(n)),
                    "exchanges": partial(_exchanges, range(n)),
                    "handed in": "handed_in",
                },
            ),
            {
                "mean": [Close(each) for each in means],
                "error": [Close(each, digits=3) for each in errors],
                "left alone": True,
                "exchanges": [ROUNDS] * n,
                "handed in": [Between(ROUNDS * asks.numbers, ROUNDS * (asks.numbers + 4))] * n,
            },
            hints=hints_more.BYTES,
            given={"models": {idea: asks.run(idea) for idea in BYTES_IDEAS}, "rounds": ROUNDS},
            trivial=n == 1,
        )


# mean_of


@exercise("mean_of", lab="19", points=2)
def mean_of(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the mean of the ranks' differences, weighted by the number of steps of each rank."""
    from ddpkit.checks.lab19.exchanges import Weighted
    from ddpkit.checks.lab19.on_ranks import mean_by_steps

    for steps, members, about in (
        ((8, 4, 8, 0), None, "8, 4, 8 and 0 steps"),
        ((300, 1), None, "300 steps and 1"),
        ((3, 5, 2), (0, 2), "a group of ranks 0 and 2"),
        ((0, 0), None, "no step at all"),
        ((7,), None, ""),
    ):
        asks, n = Weighted(rng, steps, members), len(steps)
        ranks, alone = asks.ranks, len(asks.ranks) == 1
        yield Case(
            title(n, *filter(None, [about])),
            asked(
                partial(mean_by_steps, answer),
                *(PerRank(list(asks.x)), PerRank(list(steps)), members),
                world_size=n,
                see={
                    "mean": partial(_of_each, "mean", ranks),
                    "left alone": partial(_all_kept, ranks),
                    "exchanges": partial(_exchanges, ranks),
                    "handed in": partial(_handed_in, ranks),
                },
            ),
            {
                "mean": [Close(asks.right())] * len(ranks),
                "left alone": True,
                "exchanges": [1] * len(ranks),
                "handed in": [Between(4 * asks.numbers, 4 * asks.numbers + 4)] * len(ranks),
            },
            hints=hints_more.MEAN,
            given={"models": asks.models(), "right": [asks.right()] * len(ranks), "n": n,
                   "ranks": ranks, "numbers": asks.numbers,
                   "taken": [asks.steps[rank] for rank in ranks],
                   "idle": [rank for rank in ranks if not asks.steps[rank]]},
            trivial=alone,
        )  # fmt: skip


# quorum


def _moment(rng: random.Random, least: float, most: float) -> float:
    """Draw a time between `least` and `most` seconds, in whole milliseconds."""
    return round(rng.uniform(least, most), 3)


@exercise("quorum", lab="19", points=3)
def quorum(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the list of a round's ranks: equal on all ranks; the earliest deadline decides."""
    name, seconds = rng.choice(["round", "step", "try"]), _moment(rng, 1.8, 2.2)

    def at(*moments: float | None) -> list[list[Visit]]:
        return [[] if each is None else [(f"{name} 0", each)] for each in moments]

    def drawn(count: int) -> list[float]:
        return [_moment(rng, 0.0, 0.6) for _ in range(count)]

    four, three, late = drawn(4), drawn(3), _moment(rng, 4.0, 6.0)
    away = rng.randrange(1, 4)
    one_away = [None if rank == away else each for rank, each in enumerate(four)]
    of_twelve = [None if rank == away else each for rank, each in enumerate(drawn(12))]
    again = at(*three[:2], late)
    decided = min(three[:2]) + seconds
    for rank, visits in enumerate(again):  # all come to round 1 after the late rank's round 0
        wait = 0.0 if rank == 2 else late - decided
        visits.append((f"{name} 1", round(wait + _moment(rng, 0.1, 0.4), 3)))
    for about, plan, least in (
        ("4 ranks come", at(*four), 3),
        ("rank 0 of 3 never comes", at(None, *drawn(2)), 2),
        (f"rank {away} of 4 never comes", at(*one_away), 2),
        ("rank 2 of 3 is late", at(*three[:2], late), 2),
        ("rank 2 of 3 is late, and all come again", again, 2),
        (f"rank {away} of 12 never comes", at(*of_twelve), 9),
        ("1 of 3 is too few", at(None, _moment(rng, 0.0, 0.5), None), 2),
        ("a second rank comes at last", at(three[0], seconds - _moment(rng, 0.3, 0.6), None), 2),
        ("a rank alone", at(_moment(rng, 0.0, 0.5)), 1),
    ):
        ends, _ = rosters.right(plan, least, seconds)
        yield Case(
            f"{about}, {least} needed",
            partial(rosters.lists, answer, plan, least, seconds),
            {"lists": ends, "in time": True},
            read=partial(rosters.read, plan, least, seconds),
            hints=hints_more.QUORUM,
            given={"plans": plan, "least": least, "n": len(plan), "seconds": seconds,
                   "late": 2 if "late" in about else None},
            trivial=len(plan) == 1,
        )  # fmt: skip
    yield Case(
        "two ranks decide at the same time, 2 needed",
        partial(rosters.races, answer, seconds, [each / 200 for each in range(30)]),
        {"one list": True},
        read=rosters.read_races,
        hints=hints_more.RACES,
    )


# catch_up


def _received(did: Did) -> list[int]:
    return [did.trace.traffic.received(rank) for rank in did.trace.ranks]


def _shares(ranks: Sequence[int], nbytes: int, did: Did) -> list[int]:
    return [did.bytes[rank] // nbytes for rank in ranks]


def _sent_by(ranks: Sequence[int], did: Did) -> list[int]:
    """Return the numbers of bytes that these ranks send, in ascending order."""
    return sorted(did.bytes[rank] for rank in ranks)


@exercise("catch_up", lab="19", points=3, returns=False)
def catch_up(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that each rank without the tensors receives them once from a rank that has them."""
    from ddpkit.checks.lab19.exchanges import drawn_tensors
    from ddpkit.checks.lab19.on_ranks import caught_up

    for n, have, lack in (
        (4, [0, 2], [1, 3]), (4, [1, 2, 3], [0]), (4, [3], [0, 1, 2]), (4, [1, 3], [0]),
        (6, [2, 5], [0, 1, 3, 4]), (7, [2, 4, 5], [0, 1, 3, 6]),
        (3, [0, 1], [2]), (3, [0, 1, 2], []), (1, [0], []),
    ):  # fmt: skip
        before, new = drawn_tensors(rng, n, have)
        after = [new if rank in have + lack else before[rank] for rank in range(n)]
        nbytes = sum(each.nbytes for each in new)
        turns = [len(lack[i :: len(have)]) for i in range(len(have))]
        yield Case(
            title(n, f"ranks {have} have the tensors, {lack} lack them"),
            asked(
                *(partial(caught_up, answer), PerRank(before), have, lack),
                world_size=n,
                see={
                    "values": "returned",
                    "received": _received,
                    "sent by have": partial(_sent_by, have),
                    "collectives": "collectives",
                    "shares": partial(_shares, have, nbytes),
                    "passed on": partial(_passes_on, lack),
                },
            ),
            {
                "values": after,
                "received": [nbytes * (rank in lack) for rank in range(n)],
                "sent by have": sorted(nbytes * each for each in turns),
                "collectives": [],
            },
            hints=hints_more.CATCH_UP,
            given={"before": before, "have": have, "lack": lack, "n": n},
            trivial=not lack,
        )


def _passes_on(ranks: Sequence[int], did: Did) -> bool:
    return any(did.bytes[rank] for rank in ranks)
