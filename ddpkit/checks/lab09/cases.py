"""The exercises of lab 09: a cost model, its fit, and decisions by the model."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab09 import batches, choices, fits, money, steps
from ddpkit.checks.lab09.batches import Pair
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


def _is_text(answer: object) -> bool:
    first = answer[0] if isinstance(answer, list) else answer  # autotune: [cap, measured caps]
    return isinstance(first, str | bytes)


A_TEXT = Hint("a text", lambda s: any(map(_is_text, s.answers)),
              "You return a text with a number in it. Return the number itself.")  # fmt: skip


def _changed(what: str) -> Hint:
    says = f"You have changed {what}, but later cells use the same object. Work on a copy."
    return Hint("changed", lambda s: not s.kept, says)


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

STEPS = (A_TEXT, _changed("a list of `compute`"), *hints_for(steps.MISTAKES, steps.OTHER))


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
    _changed("`features` or `seconds`"),
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

PREDICTED = _changed("`predicted`")
TUNING = (A_TEXT, PREDICTED, *hints_for(choices.TUNING, choices.OTHER_TUNING))
AS_LONG = (
    PREDICTED,
    Hint(
        "good prediction",
        lambda s: s.answers[0] == s.expect["answers"][0],
        "A good prediction proves nothing: a cap with a larger prediction may be better.",
    ),
    Hint("as long", say="A prediction equal to the best measurement cannot win. Stop there."),
)


@exercise("autotune", lab="09", points=2)
def autotune(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that the answer finds the best cap, and measures only the caps that it must measure."""
    call, right = partial(tuned, answer), choices.right_tuning
    questions = telling(rng, choices.drawn_tuning, 5, right, choices.TUNING)
    yield _case("5 tables", call, questions, right, TUNING, weight=3)
    takes, said = questions[0]
    perfect = (said, said)
    yield _case("a model without error", call, [perfect], right, TUNING)
    as_long = choices.as_long_as_the_best(rng)
    nearly = choices.nearly_right(rng)
    yield _case("a prediction as long as the best", call, [as_long, nearly], right, AS_LONG)
    cap = next(iter(said))
    yield _case("one cap", call, [({cap: takes[cap]}, {cap: said[cap]})], right, TUNING)


# servers

SIZES = _changed("`sizes`")
TOO_FEW = (
    Hint("not whole", lambda s: any(type(each) not in (int, type(None)) for each in s.answers),
         "Servers are counted. Return a whole number, or None."),
    SIZES,
    *hints_for(choices.TOO_FEW, choices.OTHER_SERVERS),
)  # fmt: skip
EXACT = (
    SIZES,
    Hint("just enough", lambda s: s.answers[0] != s.expect["answers"][0],
         "Just enough time is enough: at most `seconds`, not less than `seconds`."),
    Hint("one", lambda s: s.answers[2] != 1, "One server may be enough. Begin with 1."),
    Hint("one for each", say="There may be as many servers as tensors, one for each tensor."),
)  # fmt: skip
NEVER = (
    SIZES,
    Hint("no None", lambda s: s.answers == [len(q[0]) for q in s.questions],
         "Even one server for each tensor is too slow. Return None."),
    Hint("too large", say="One tensor keeps its server busy too long: more servers do not help."),
)  # fmt: skip


@exercise("servers", lab="09", points=2, returns=False)
def servers(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the smallest number of parameter servers that hides the communication."""
    call = partial(_counted, answer)
    questions = telling(rng, choices.drawn_servers, 5, choices.needed, choices.TOO_FEW)
    exact, never = choices.exactly_hidden(rng), choices.impossible(rng)
    yield _case("5 models", call, questions, choices.needed, TOO_FEW, weight=3)
    yield _case("just enough, a byte less, plenty", call, exact, choices.needed, EXACT)
    yield _case("a tensor that is too large", call, [never], choices.needed, NEVER, trivial=True)


def _counted(answer: Answer, sizes: Sequence[int], *others: float) -> object:
    """Return the answer's result; a whole number of any type becomes an int."""
    found = answer(sizes, *others)
    return found if found is None or found != int(found) else int(found)


# noise_scale

NOISE = (A_TEXT, *hints_for(batches.NOISE, batches.OTHER_NOISE))


@exercise("noise_scale", lab="09", points=2)
def noise_scale(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the gradient noise scale, computed from numbers that data parallelism already has."""
    call = partial(_scale, answer)
    questions = [
        *telling(rng, batches.drawn_noise, 4, batches.scale, _but(batches.NOISE, "below nothing")),
    ]
    yield _case("4 gradients", call, questions, batches.scale, NOISE, weight=3)
    yield _case(
        *("noise covers it", call, [batches.covered(rng)], batches.scale, NOISE), trivial=True
    )
    exactly = [batches.just_covered(rng)]
    yield _case("no signal at all", call, exactly, batches.scale, NO_SIGNAL, trivial=True)


NO_SIGNAL = (
    Hint("exactly 0", lambda s: s.raised == "ZeroDivisionError" or s.error is None,
         "The signal is exactly 0 here, so noise covers the signal. Return math.inf."),
)  # fmt: skip


def _but(mistakes: Sequence[Mistake], name: str) -> list[Mistake]:
    return [each for each in mistakes if each.name != name]


def _scale(answer: Answer, squares: Sequence[float], *others: float) -> object:
    return as_number(answer(list(squares), *others))


# adasum


def _sums_as(idea: Pair, s: Seen) -> bool:
    pairs = zip(s.sums, s.pairs, strict=True)
    return all(
        each.allclose(idea(a, b), rtol=1e-4, atol=1e-4 * float(a.abs().max() + b.abs().max()))
        for each, (a, b) in pairs
    )


def _short(s: Seen) -> bool:
    return all(0 < float(a.norm()) < 0.3 for a, _ in s.pairs)


ADASUM = (
    Hint("no tensor", lambda s: any(isinstance(each, str) for each in s.sums),
         "Return a tensor of the same kind as the gradients."),
    Hint("not a number", lambda s: any(bool(each.isnan().any()) for each in s.sums),
         "A gradient of zeros has no direction: 0 / 0. Return the nonzero gradient unchanged."),
    Hint("changed", lambda s: not s.kept, "The gradients belong to the ranks. Do not change them."),
    *(Hint(name, partial(_sums_as, idea), says) for name, idea, says in batches.SUMS),
    Hint("short ones", _short,
         "These gradients are short: |a|² is below 0.1. A small number that you add to |a|², or a "
         "rounding, makes a difference here."),
    Hint("other", say="The answer is (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b."),
)  # fmt: skip


@exercise("adasum", lab="09", points=2)
def adasum(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check Adasum: it adds orthogonal gradients, and averages equal gradients."""
    for number, (title, pairs) in enumerate(batches.pairs(rng).items()):
        yield Case(
            title,
            observe=partial(_added, answer, pairs),
            expect={"sums": Close([batches.adasum(*pair) for pair in pairs]), "kept": True},
            weight=1 if number else 3,
            hints=ADASUM,
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

HOURS = (A_TEXT, *hints_for(money.HOURS, money.OTHER_HOURS))
BROKEN = (A_TEXT, *hints_for(money.BROKEN, money.OTHER_HOURS))
NEVER_REVOKED = (
    Hint("rate of 0", lambda s: s.raised == "ZeroDivisionError" or s.answers[0] != s.answers[0],
         "Servers that are never revoked take hours · (1 + save / interval). There is no rate to "
         "divide by."),
    *HOURS,
)  # fmt: skip


@exercise("expected_hours", lab="09", points=2)
def expected_hours(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the expected hours of a synchronous job on servers that can be revoked."""
    call = partial(_hours, answer)
    questions = telling(rng, money.drawn_hours, 4, money.hours_of, money.HOURS)
    yield _case("4 clusters", call, questions, money.hours_of, HOURS, weight=3)
    never = [money.never_revoked(rng), money.broken(rng, 0.0)]
    yield _case("never revoked", call, never, money.hours_of, NEVER_REVOKED)
    broken = [money.broken(rng, 0.05)]
    yield _case("stretches and a part of one", call, broken, money.hours_of, BROKEN)


def _hours(answer: Answer, *question: float) -> object:
    return as_number(answer(*question))


# plan

PLANS = hints_for(money.PLANS, money.OTHER_PLANS)
EQUAL = (Hint("the slower", lambda s: s.answers[0] is not None,
              "Of equally cheap plans, choose the faster plan."),)  # fmt: skip
IN_TIME = (Hint("just in time", lambda s: s.answers == [None],
                "A plan that takes exactly `deadline` hours is in time."),)  # fmt: skip
LATE = (Hint("not None", say="No plan is done in time. Return None."),)


@exercise("plan", lab="09", points=3, returns=False)
def plan(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the choice of the ranks and the batch that cost the least within a deadline."""
    call, right = partial(planned, answer), money.right_plan
    questions = telling(rng, money.drawn_plan, 6, right, money.PLANS)
    yield _case("6 jobs", call, questions, right, PLANS, weight=4)
    yield _case("equally cheap", call, [money.equally_cheap(rng)], right, EQUAL)
    yield _case("one plan is just in time", call, [money.just_in_time(rng)], right, IN_TIME)
    yield _case("no plan is in time", call, [money.hopeless(rng)], right, LATE, trivial=True)
