"""Lab 20: real sizes: FLOPs, memory, limits, profiles and plans."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ddpkit.checks.lab20 import (
    hints,
    hints_more,
    limits,
    planning,
    profiles,
    rooflines,
    sides,
    sizes,
)
from ddpkit.cluster.torchrun.job import active
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.guard import Answer
from ddpkit.exercises.values import Close


@exercise("model_flops", lab="20", points=3)
def model_flops(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the FLOPs of forward and backward, exact to the last digit."""
    for again in sizes.AGAIN:
        batches = sizes.drawn_batches(rng)
        ways = ["none"] if again == "none" else ["none", again]
        due = {way: [sizes.flops(batch, way) for batch in batches] for way in ways}
        by_idea = [sizes.flops_by_ideas(batch) for batch in batches]
        yield Case(
            "nothing is computed again" if again == "none" else f"again={again!r}",
            observe=partial(sizes.asked_flops, answer, batches, again),
            expect=due,
            hints=hints.FLOPS,
            given={
                "ideas": {name: [each[name] for each in by_idea] for name in by_idea[0]},
                "due": due,
                "again": again,
                "lengths": [batches[0][2], batches[1][2]],
                "words": [f"{s} × {length:,} tokens" for _, s, length in batches],
            },
        )


# fits


@exercise("fits", lab="20", points=4)
def fits(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the peak bytes of a rank, within 5 % of a run of tensors without values."""
    yield _peaks(answer, "ten models", list(sizes.PEAKS), list(sizes.PEAKS.values()), trivial=True)
    if active():
        return  # ranks under torchrun cannot run without values
    from ddpkit.checks.lab20.training import peaks

    for ranks in (rng.choice((2, 4, 8)), rng.choice((16, 32, 64))):
        while True:
            steps = sizes.drawn_steps(rng, ranks)
            run = peaks(tuple(steps))
            if sizes.within(steps, run):
                break
        yield _peaks(answer, f"two drawn models on {ranks} ranks", steps, run)


def _peaks(
    answer: Answer,
    about: str,
    steps: Sequence[sizes.ShardedStep],
    run: Sequence[int],
    *,
    trivial: bool = False,
) -> Case:
    ideas = {
        name: [[sizes.fits(step, **mistake) for step in steps] for mistake in many]
        for name, many in sizes.WRONG_FITS.items()
    }
    return Case(
        about,
        observe=partial(sizes.asked_bytes, answer, steps),
        expect={"within 5 %": [True] * len(steps)},
        read=partial(_near, run),
        hints=hints.FITS,
        given={"ideas": ideas, "run": run, "steps": steps},
        weight=2,
        trivial=trivial,
    )


def _near(run: Sequence[int], observed: Observed) -> Observed:
    """Add "within 5 %": for each answer, True if its bytes are near the bytes of the run."""
    found = observed["bytes"]
    numbers = [
        isinstance(got, int | float) and not isinstance(got, bool) and abs(got / due - 1) <= 0.05
        for got, due in zip(found, run, strict=True)
    ]
    return {"bytes": found, "within 5 %": numbers}


# roof


@exercise("roof", lab="20", points=2)
def roof(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check each operation's limit (arithmetic, memory or launch), and the time of the end."""
    for about, queue in rooflines.drawn(rng):
        names, end = rooflines.right(queue)
        yield Case(
            about,
            observe=partial(rooflines.asked, answer, queue.operations, queue.machine),
            expect={"limits": names, "us": Close(1e6 * end, digits=5)},
            hints=hints.ROOF,
            given={"ideas": rooflines.by_ideas(queue), "has_queue": about.startswith("a long")},
            trivial=not names,
        )


# hidden_from


@exercise("hidden_from", lab="20", points=3)
def hidden_from(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the fewest tokens that hide a communication, by a formula and by runs."""
    for ask in limits.drawn(rng):
        read: Callable[[Observed], Observed] = sides.Sides(ask).read
        if active():  # ranks under torchrun cannot run without values
            read = partial(_number, ask)
        yield Case(
            ask.words,
            observe=partial(limits.asked, answer, ask.arguments),
            expect={"number": "right"},
            read=read,
            hints=hints_more.HIDDEN,
            given={"ask": ask, "due": limits.limit(ask), "ideas": limits.by_ideas(ask)},
            trivial=limits.limit(ask) == 0,
        )


def _number(ask: limits.Hidden, observed: Observed) -> Observed:
    """Judge the answer by the formula alone: torchrun cannot run tensors without values."""
    tokens = observed["tokens"]
    number = isinstance(tokens, int | float) and not isinstance(tokens, bool)
    return {**observed, "exposed": (), "number": sides.verdict(tokens, ask) if number else "wrong"}


# read_profile


@exercise("read_profile", lab="20", points=3)
def read_profile(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the largest problem ("limit") of each trace, and the time that solving it can gain."""
    for about in ("five traces", "five more traces"):
        traces = profiles.drawn(rng)
        right = [profiles.limit(each) for each in traces]
        ideas: Mapping[str, object] = {
            name: [profiles.limit(each, **idea) for each in traces]
            for name, idea in profiles.IDEAS.items()
        }
        yield Case(
            about,
            observe=partial(profiles.asked, answer, traces, profiles.RIDGE),
            expect={
                "limits": [name for name, _ in right],
                "off by 0.1 %": [False] * len(right),
            },
            read=partial(_profiles, [ns for _, ns in right]),
            hints=hints_more.PROFILE,
            given={"ideas": ideas, "right": right, "due": dict(right)},
        )


def _profiles(due: Sequence[int], observed: Observed) -> Observed:
    """Add "malformed", and "off by 0.1 %": for each gain, True if it is off by more than 0.1 %."""
    off = [
        not isinstance(ns, int | float) or abs(ns - right) > 0.001 * right
        for ns, right in zip(observed["ns"], due, strict=True)
    ]
    malformed = not all(
        isinstance(ns, int | float) and isinstance(name, str)
        for name, ns in zip(observed["limits"], observed["ns"], strict=True)
    )
    return {**observed, "malformed": malformed, "off by 0.1 %": off}


# choose


@exercise("choose", lab="20", points=3, returns=False)
def choose(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choice of the fastest plan and the cheapest plan that fit into memory."""
    for about, search in planning.drawn(rng):
        best = planning.best(search)
        fastest = search.costs[best[0]][1] if best else 0.0
        cheapest = planning.bill(best[1], search.costs) if best else 0.0
        takes = search.costs[best[1]][1] if best else 0.0
        yield Case(
            about,
            observe=partial(
                planning.asked,
                *(answer, search.shape, search.batch, search.gpus),
                *(search.host, search.memory, search.costs),
            ),
            expect={
                "plans": "two that fit" if best else "ValueError",
                "fastest": Close(fastest),
                "cheapest": Close(cheapest),
                "cheapest takes": Close(takes),
                "seconds asked": "where a plan fits",
            },
            read=partial(planning.judged, search),
            hints=hints_more.CHOOSE,
            given={"search": search, "best": best},
            trivial=best is None,
        )
