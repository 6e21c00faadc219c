"""Points for claims: each value is compared with what was expected, here, outside."""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ddpkit.errors
from ddpkit.errors import LessonError
from ddpkit.exercises.compare import difference
from ddpkit.exercises.counts import IN_WORDS
from ddpkit.exercises.exercise import Case, Exercise, earned
from ddpkit.exercises.hint import Advice
from ddpkit.exercises.raised import Trouble, from_claim
from ddpkit.exercises.verdict import NOT_TRIED
from ddpkit.grade.decode import decode
from ddpkit.grade.questions import SealedCase
from ddpkit.text import sign

# By what a case ended in, where the answer raised.
BLANK = "not answered yet"
ENDS = {
    "Deadlock": "deadlock",
    "RunTimeout": "timeout",
    "TookTooLong": "timeout",
    "RankDied": "exited",
}


@dataclass(frozen=True)
class CaseScore:
    """One case: whether it is right, and what to tell the student."""

    case: Case
    status: str
    says: tuple[str, ...] = ()
    hint: str = ""
    hint_name: str = ""  # "" for a hint without one
    trouble: Trouble | None = None  # what the answer ended in; None if it gave values
    measured: tuple[tuple[str, float], ...] = ()  # of a right one, what its case `measures`

    @property
    def title(self) -> str:
        """The case's."""
        return str(self.case.title)


@dataclass(frozen=True)
class Score:
    """One exercise: its points, those earned, and `feedback`, which are lines of plain text."""

    name: str
    status: str
    points: float
    earned: float
    feedback: tuple[str, ...]
    cases: tuple[tuple[str, str, str], ...] = ()  # title, status and name of the hint, of each
    measured: tuple[tuple[str, float], ...] = ()  # what right cases measured, one after the other


def score_case(question: SealedCase, claim: Any) -> CaseScore:
    """Judge one claim, whatever it is; what is no claim of ours earns nothing.

    Raises nothing but MemoryError.
    """
    try:
        return _score_case(question, claim)
    except MemoryError:  # the caller sets the limit of memory
        raise
    except Exception:  # forged: no claim of ours makes this raise
        return CaseScore(question.case, "error", ("it gave no values",))


def left_blank(question: SealedCase) -> CaseScore:
    """The score of a case whose answer is not there yet."""
    return CaseScore(question.case, "fail", (BLANK,))


def _score_case(question: SealedCase, claim: Any) -> CaseScore:
    case = question.case
    if not isinstance(claim, dict) or claim.get("key") != question.key:
        return CaseScore(case, "error", ("it gave no values",))
    if claim.get("undefined"):
        return CaseScore(case, "error", (f"{question.exercise} is not defined",))
    if "blank" in claim:
        return left_blank(question)
    if "seen" not in claim:
        return _raised(case, claim)
    try:
        seen = decode(claim["seen"])
        if not isinstance(seen, dict):
            raise LessonError("the answer gave no values")
        seen = case.reading(seen)
        wrong = tuple(_wrong(question, seen))
    except (LessonError, RecursionError) as error:
        return CaseScore(case, "error", (str(error),))
    if not wrong:
        return CaseScore(
            case, "pass", measured=tuple((name, float(seen[name])) for name in case.measures)
        )
    return CaseScore(case, "fail", wrong, *_advice(case.advice(seen)))


def _wrong(question: SealedCase, seen: Mapping[str, Any]) -> Iterator[str]:
    for name, expected in question.case.expect.items():
        found = difference(seen[name], expected) if name in seen else None
        if name not in seen:
            yield f"{name} is missing"
        elif found is not None and name in IN_WORDS and seen[name] is False:
            yield IN_WORDS[name]
        elif found is not None:
            known = f", expected {found.expected}" if name in question.shown else ""
            yield f"{name}{found.where} is {found.got}{known}"


def _raised(case: Case, claim: Mapping[str, Any]) -> CaseScore:
    kinds = [str(kind) for kind in claim.get("kinds", [])][:20]
    says = [str(claim.get("summary", "it raised"))[:400]]
    says += [str(line)[:400] for line in claim.get("lines", [])][:8]
    status = next((ENDS[kind] for kind in kinds if kind in ENDS), "error")
    error = _rebuilt(kinds, str(claim.get("message", "")))
    trouble = from_claim(claim.get("trouble"))
    advice = _advice(case.advice({}, error, trouble))
    return CaseScore(case, status, tuple(says), *advice, trouble)


def _advice(advice: Advice | None) -> tuple[str, str]:
    return (advice.says, advice.name) if advice else ("", "")


def _rebuilt(kinds: Sequence[str], message: str) -> Exception:
    """An exception like the one that was raised there, of a class that is known here."""
    for kind in kinds:
        found = getattr(ddpkit.errors, kind, None) or getattr(builtins, kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            with contextlib.suppress(TypeError):
                return found(message)
    return Exception(message)


def until_one_stops(rows: Sequence[CaseScore], questions: Sequence[SealedCase]) -> list[CaseScore]:
    """The rows, in which all after a case that stops the exercise count as not tried."""
    kept: list[CaseScore] = []
    stopped = False
    for each, question in zip(rows, questions, strict=True):
        kept.append(not_tried(question.case) if stopped else each)
        blank = each.says == (BLANK,)  # says so itself, and stops nothing
        stopped |= not blank and question.case.stops(each.status == "pass", each.trouble)
    return kept


def not_tried(case: Case) -> CaseScore:
    """The score of a case that comes after one that stops the exercise."""
    return CaseScore(case, "fail", (NOT_TRIED,))


def score(exercise: Exercise, rows: Sequence[CaseScore], notes: Sequence[str] = ()) -> Score:
    """The score of an exercise: the points of its right cases, as `earned` counts them."""
    status = next((each.status for each in rows if each.status != "pass"), "pass")
    points = float(exercise.points)
    got = earned(points, [(each.case, each.status == "pass") for each in rows])
    cases = tuple((each.title, _tried(each), each.hint_name) for each in rows)
    measured = tuple(pair for each in rows for pair in each.measured)
    return Score(exercise.name, status, points, got, (*notes, *_feedback(rows)), cases, measured)


def _tried(row: CaseScore) -> str:
    """The status of a case, which is its own word where nobody tried it."""
    says = row.says[0] if len(row.says) == 1 else ""
    return {NOT_TRIED: "not tried", BLANK: "blank"}.get(says, row.status)


def none(exercise: Exercise, status: str, *says: str) -> Score:
    """The score of an exercise that was not judged: no points, and why."""
    return Score(exercise.name, status, float(exercise.points), 0.0, says)


def _feedback(rows: Sequence[CaseScore]) -> Iterator[str]:
    if rows and all(each.says == (BLANK,) for each in rows):
        yield BLANK
        return
    helped = False
    for each in rows:
        told = "; ".join(each.says[: 3 if each.status == "fail" else 1])
        yield f"{sign(each.status == 'pass')} {each.title}{'   ' * bool(told)}{told}"
        if each.status != "pass" and not helped:
            helped = True
            if each.status != "fail":
                yield from (f"    {line}" for line in each.says[1:])
            if each.hint:
                yield f"  Hint: {each.hint}"
