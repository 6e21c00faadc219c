"""Points for claims. Each claimed value is compared with the expected value.

This comparison runs outside the sandbox.
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ddpkit.errors
from ddpkit.errors import LessonError
from ddpkit.exercises.assess import Assessment, Status, Wrong, assess, assess_raised
from ddpkit.exercises.counts import IN_WORDS
from ddpkit.exercises.exercise import Case, Exercise, earned
from ddpkit.exercises.raised import from_claim
from ddpkit.grade.decode import decode
from ddpkit.grade.questions import SealedCase
from ddpkit.text import sign

MOST_WRONG = 3  # wrong values of a case that feedback mentions
NO_VALUES = "it gave no values"
UNANSWERED = "not answered yet"


@dataclass(frozen=True)
class Score:
    """The score of one exercise: its points, the earned points, and `feedback` in lines of text."""

    name: str
    status: str
    points: float
    earned: float
    feedback: tuple[str, ...]
    cases: tuple[tuple[str, str, str], ...] = ()  # title, status and hint's name of each case
    measured: tuple[tuple[str, float], ...] = ()  # (name, value) for `measures` of passed cases


def score_case(question: SealedCase, claim: Any) -> Assessment:
    """Return the assessment of one claim; a claim that ddpkit cannot have written earns nothing.

    Raises nothing but MemoryError.
    """
    try:
        return _score_case(question, claim)
    except MemoryError:  # the caller has set a limit of memory, and handles this error
        raise
    except Exception:  # the claim is forged: no claim that ddpkit has written raises an error
        return Assessment(question.case, Status.ERROR, got=NO_VALUES)


def left_blank(question: SealedCase) -> Assessment:
    """Return the assessment of one case, for an exercise without an answer."""
    return Assessment(question.case, Status.BLANK)


def _score_case(question: SealedCase, claim: Any) -> Assessment:
    case = question.case
    if not isinstance(claim, dict) or claim.get("key") != question.key:
        return Assessment(case, Status.ERROR, got=NO_VALUES)
    if claim.get("undefined"):
        return Assessment(case, Status.ERROR, got=f"{question.exercise} is not defined")
    if "blank" in claim:
        return left_blank(question)
    if "seen" not in claim:
        return _raised(case, claim)
    try:
        seen = decode(claim["seen"])
        if not isinstance(seen, dict):
            raise LessonError("the answer gave no values")
        assessed = assess(case, case.reading(seen))
    except (LessonError, RecursionError) as error:
        return Assessment(case, Status.ERROR, got=str(error))
    return replace(assessed, wrong=tuple(_unsaid(each, question) for each in assessed.wrong))


def _unsaid(wrong: Wrong, question: SealedCase) -> Wrong:
    """Return a wrong value, without the expected value if the student must not know it."""
    if wrong.found is None or wrong.name in question.shown:
        return wrong
    return replace(wrong, found=replace(wrong.found, expected=""))


def _raised(case: Case, claim: Mapping[str, Any]) -> Assessment:
    kinds = [str(kind) for kind in claim.get("kinds", [])][:20]
    return assess_raised(
        case,
        _rebuilt(kinds, str(claim.get("message", ""))),
        from_claim(claim.get("trouble")),
        kinds=kinds,
        headline=str(claim.get("summary", "it raised"))[:400],
        lines=[str(line)[:400] for line in claim.get("lines", [])][:8],
    )


def _rebuilt(kinds: Sequence[str], message: str) -> Exception:
    """Return an exception of the class that was raised, or of the nearest known base class."""
    for kind in kinds:
        found = getattr(ddpkit.errors, kind, None) or getattr(builtins, kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            with contextlib.suppress(TypeError):
                return found(message)
    return Exception(message)


def score(exercise: Exercise, rows: Sequence[Assessment], notes: Sequence[str] = ()) -> Score:
    """Return the score of an exercise: the points of its right cases, counted by `earned`."""
    status = next((each.status.of_exercise for each in rows if not each.passed), "pass")
    points = float(exercise.points)
    got = earned(points, [(each.case, each.passed) for each in rows])
    cases = tuple((each.title, str(each.status), each.hint_name) for each in rows)
    measured = tuple(pair for each in rows for pair in each.measured)
    return Score(exercise.name, status, points, got, (*notes, *_feedback(rows)), cases, measured)


def none(exercise: Exercise, status: str, *says: str) -> Score:
    """Return the score of an exercise that was not judged: zero points, and the reason."""
    return Score(exercise.name, status, float(exercise.points), 0.0, says)


def _feedback(rows: Sequence[Assessment]) -> Iterator[str]:
    if rows and all(each.status is Status.BLANK for each in rows):
        yield UNANSWERED
        return
    helped = False
    for each in rows:
        text = says(each)
        yield f"{sign(each.passed)} {each.title}{'   ' * bool(text)}{text}"
        if not each.passed and not helped:
            helped = True
            yield from (f"    {line}" for line in each.details)
            if each.hint:
                yield f"  Hint: {each.hint}"


def says(row: Assessment) -> str:
    """Return the text beside a case's title in the feedback."""
    match row.status:
        case Status.BLANK:
            return UNANSWERED
        case Status.NOT_TRIED:
            return str(Status.NOT_TRIED)
    return "; ".join(_in_words(each) for each in row.wrong[:MOST_WRONG]) or row.got


def _in_words(wrong: Wrong) -> str:
    if (found := wrong.found) is None:
        return f"{wrong.name} is missing"
    if wrong.name in IN_WORDS and found.got == "False":
        return IN_WORDS[wrong.name]
    known = f", expected {found.expected}" if found.expected else ""
    return f"{wrong.name}{found.where} is {found.got}{known}"
