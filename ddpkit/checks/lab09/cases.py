"""The exercises of lab 09: a cost model, its fit, and decisions by the model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab09 import batches, choices, fits, hints, money, steps
from ddpkit.checks.lab09.choices import tuned
from ddpkit.checks.lab09.money import planned
from ddpkit.checks.lab09.steps import Compute, priced
from ddpkit.checks.shared.mistakes import Idea, Mistake, Question, as_number, hints_for, telling
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


def _asked(call: Answer, questions: Sequence[Question]) -> Observed:
    """Return the answer's results; "kept" is True if all arguments are still unchanged."""
    given = [deepcopy(each) for each in questions]
    answers = [call(*question) for question in given]
    return {"answers": answers, "kept": _equal(given, list(questions))}


def _equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except (RuntimeError, ValueError):  # a tensor or an array in the place of a number
        return False


def _case(
    title: str,
    call: Answer,
    questions: Sequence[Question],
    right: Idea,
    hints: Sequence[Hint],
    *,
    weight: float = 1.0,
    trivial: bool = False,
    digits: int = 4,
) -> Case:
    """Return a case with all questions; floats must be right to `digits` significant digits."""
    answers = [right(*question) for question in questions]
    floats = all(isinstance(each, float) for each in answers)
    return Case(
        title,
        observe=partial(_asked, call, list(questions)),
        expect={"answers": Close(answers, digits) if floats else answers, "kept": True},
        weight=weight,
        hints=hints,
        given={"questions": questions},
        trivial=trivial,
    )


# step_time

STEPS = (
    hints.A_TEXT,
    hints.changed("a list of `compute`"),
    *hints_for(steps.MISTAKES, steps.OTHER),
)


@exercise("step_time", lab="09", points=3)
def step_time(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the seconds of a step with all-reduces that overlap with backward."""
    call, right = partial(_step, answer), steps.by_the_simulator
    telling_ones = telling(rng, steps.drawn, 6, right, steps.MISTAKES)
    yield _case("6 networks", call, telling_ones, right, STEPS, weight=3)
    for title, question in steps.special(rng):
        yield _case(title, call, [question], right, STEPS)
    asked = steps.drawn(rng)
    yield Case(
        "`price` is asked once for each bucket",
        observe=partial(_calls, answer, *asked),
        expect={"calls": steps.buckets(asked[0], asked[1])},
        hints=ASKED_TWICE,
        given={},
    )


ASKED_TWICE = (
    Hint("price asked twice", lambda s: s.wrong("calls"),
         lambda s: f"`price` was called {s.calls} times for {s.expect['calls']} buckets. Call "
         "`price` once for each bucket, because a price may take a measurement."),
)  # fmt: skip


def _calls(answer: Answer, compute: Compute, cap: float, alpha: float, per_byte: float) -> Observed:
    """Return the number of times that the answer calls `price`."""
    asked: list[int] = []

    def price(nbytes: int) -> float:
        asked.append(nbytes)
        return priced(alpha, per_byte, nbytes)

    answer(deepcopy(compute), cap, price)
    return {"calls": len(asked)}


def _step(answer: Answer, compute: Compute, cap: float, alpha: float, per_byte: float) -> object:
    return as_number(answer(compute, cap, partial(priced, alpha, per_byte)))


# fit


def _most(s: Seen) -> bool:
    """True if some answer has more coefficients than its question has features."""
    pairs = zip(s.answers, s.questions, strict=True)
    return any(len(found) > len(features[0]) for found, (features, _) in pairs)


FITS = (
    Hint("no list", lambda s: s.wrong("a list"), "Return a list of Python floats; tolist() makes "
         "one from a tensor with one dimension."),
    hints.changed("`features` or `seconds`"),
    Hint("a constant", _most,
         "For n features, you return more than n coefficients, but the model has no constant."),
    *hints_for(fits.MISTAKES, fits.OTHER),
)  # fmt: skip
FIT_QUESTIONS = (
    ("all-reduces of 1 kB to 1 GB, with noise", fits.drawn, 4),
    ("without noise", fits.exact, 1),
    ("steps of 1 to 256 samples", fits.batches, 1),
    ("one feature", fits.one_feature, 1),
    ("tensors and bytes", fits.servers, 1),
    ("three features", fits.three, 1),
    ("times that fall", fits.falling, 1),
)


@exercise("fit", lab="09", points=2)
def fit(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the coefficients of a fit that minimizes the relative errors."""
    for number, (title, draw, count) in enumerate(FIT_QUESTIONS):
        questions = [draw(rng) for _ in range(count)]
        if not number:
            questions = telling(rng, draw, count, fits.fitted, fits.MISTAKES)
        found = [fits.fitted(*question) for question in questions]
        columns = {f"c[{k}]": Close([each[k] for each in found]) for k in range(len(found[0]))}
        yield Case(
            title,
            observe=partial(_fitted, answer, questions),
            expect={
                "coefficients": [len(each) for each in found],
                **columns,
                "kept": True,
                "a list": True,
            },
            read=partial(_by_column, len(found[0])),
            weight=2 if not number else 1,
            hints=FITS,
            given={"questions": questions},
        )


def _fitted(answer: Answer, questions: Sequence[Question]) -> Observed:
    seen = _asked(answer, questions)
    plain = all(
        isinstance(each, list) and all(isinstance(c, float) for c in each)
        for each in seen["answers"]
    )
    answers = [[float(c) for c in each] if plain else [] for each in seen["answers"]]
    return {**seen, "answers": answers, "a list": plain}


def _by_column(count: int, observed: Observed) -> Observed:
    """Group the answers by coefficient: the values of one coefficient have similar sizes."""
    answers = observed["answers"]
    columns = {f"c[{k}]": [each[k] for each in answers if len(each) > k] for k in range(count)}
    return {**observed, "coefficients": [len(each) for each in answers], **columns}


# autotune


@exercise("autotune", lab="09", points=2)
def autotune(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that the answer finds the best cap, and measures only the caps that it must measure."""
    call, right = partial(tuned, answer), choices.right_tuning
    questions = telling(rng, choices.drawn_tuning, 5, right, choices.TUNING)
    yield _case("5 tables", call, questions, right, hints.TUNING, weight=3)
    takes, said = questions[0]
    perfect = (said, said)
    yield _case("a model without error", call, [perfect], right, hints.TUNING)
    as_long = choices.as_long_as_the_best(rng)
    nearly = choices.nearly_right(rng)
    yield _case("a prediction as long as the best", call, [as_long, nearly], right, hints.AS_LONG)
    fast = [choices.microseconds(rng)]
    yield _case("microseconds", call, fast, right, hints.FAST)
    cap = next(iter(said))
    yield _case("one cap", call, [({cap: takes[cap]}, {cap: said[cap]})], right, hints.TUNING)


# servers


@exercise("servers", lab="09", points=2, returns=False)
def servers(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the smallest number of parameter servers that hides the communication."""
    call = partial(_counted, answer)
    questions = telling(rng, choices.drawn_servers, 5, choices.needed, choices.TOO_FEW)
    exact, never = choices.exactly_hidden(rng), choices.impossible(rng)
    yield _case("5 models", call, questions, choices.needed, hints.TOO_FEW, weight=3)
    yield _case(
        "just enough, a byte less, plenty, tiny tensors", call, exact, choices.needed, hints.EXACT
    )
    yield _case(
        "a tensor that is too large", call, [never], choices.needed, hints.NEVER, trivial=True
    )


def _counted(answer: Answer, sizes: Sequence[int], *others: float) -> object:
    """Return the answer's result; a whole number of any type becomes an int."""
    found = answer(sizes, *others)
    return found if found is None or found != int(found) else int(found)


# noise_scale


@exercise("noise_scale", lab="09", points=2)
def noise_scale(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the gradient noise scale, computed from numbers that data parallelism already has."""
    call = partial(_scale, answer)
    questions = [
        *telling(rng, batches.drawn_noise, 4, batches.scale, _but(batches.NOISE, "below nothing")),
    ]
    yield _case("4 gradients", call, questions, batches.scale, hints.NOISE, weight=3)
    yield _case(
        *("noise covers it", call, [batches.covered(rng)], batches.scale, hints.NOISE), trivial=True
    )
    yield _case("a small signal", call, [batches.small(rng)], batches.scale, hints.SMALL)
    exactly = [batches.just_covered(rng)]
    yield _case("no signal at all", call, exactly, batches.scale, hints.NO_SIGNAL, trivial=True)


def _but(mistakes: Sequence[Mistake], name: str) -> list[Mistake]:
    return [each for each in mistakes if each.name != name]


def _scale(answer: Answer, squares: Sequence[float], *others: float) -> object:
    return as_number(answer(list(squares), *others))


# adasum


@exercise("adasum", lab="09", points=2)
def adasum(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check Adasum: it adds orthogonal gradients, and averages equal gradients."""
    for number, (title, pairs) in enumerate(batches.pairs(rng).items()):
        yield Case(
            title,
            observe=partial(_added, answer, pairs),
            expect={"sums": Close([batches.adasum(*pair) for pair in pairs]), "kept": True},
            weight=1 if number else 3,
            hints=hints.ADASUM,
            given={"pairs": pairs},
        )


def _added(answer: Answer, pairs: Sequence[tuple[Any, Any]]) -> Observed:
    import torch

    sums, kept = [], True
    for pair in pairs:
        a, b = (each.clone() for each in pair)
        found = answer(a, b)
        sums.append(found.float().clone() if torch.is_tensor(found) else type(found).__name__)
        kept = kept and torch.equal(a, pair[0]) and torch.equal(b, pair[1])
    return {"sums": sums, "kept": kept}


# expected_hours


@exercise("expected_hours", lab="09", points=2)
def expected_hours(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the expected hours of a synchronous job on servers that can be revoked."""
    call = partial(_hours, answer)
    questions = telling(rng, money.drawn_hours, 4, money.hours_of, money.HOURS)
    yield _case("4 clusters", call, questions, money.hours_of, hints.HOURS, weight=3)
    never = [money.never_revoked(rng), money.broken(rng, 0.0)]
    yield _case("never revoked", call, never, money.hours_of, hints.NEVER_REVOKED)
    broken = [money.broken(rng, 0.05)]
    yield _case("stretches and a part of one", call, broken, money.hours_of, hints.BROKEN)
    shorter = [money.shorter(rng, 0.05)]
    yield _case("less than one stretch", call, shorter, money.hours_of, hints.SHORTER)


def _hours(answer: Answer, *question: float) -> object:
    return as_number(answer(*question))


# plan


@exercise("plan", lab="09", points=3, returns=False)
def plan(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choice of the ranks and the batch that cost the least within a deadline."""
    call, right = partial(planned, answer), money.right_plan
    questions = telling(rng, money.drawn_plan, 6, right, money.PLANS)
    yield _case("6 jobs", call, questions, right, hints.PLANS, weight=4)
    few = telling(rng, money.a_few_steps, 3, right, money.FEW)
    yield _case("a few steps", call, few, right, hints.FEW)
    yield _case("equally cheap", call, money.equally_cheap(rng), right, hints.EQUAL)
    yield _case("one plan is just in time", call, [money.just_in_time(rng)], right, hints.IN_TIME)
    yield _case("no plan is in time", call, [money.hopeless(rng)], right, hints.LATE, trivial=True)
