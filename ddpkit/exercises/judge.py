"""Puts an exercise's cases to an answer. No wrong answer makes this raise."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from ddpkit.asked import asking
from ddpkit.cluster.torchrun.job import NotUnderTorchrun, active
from ddpkit.errors import LessonError
from ddpkit.exercises.compare import Difference, difference
from ddpkit.exercises.counts import counted, differs
from ddpkit.exercises.exercise import Case, Exercise, Observed, earned
from ddpkit.exercises.explain import (
    explain,
    is_unanswered,
    size_of_blank,
    size_of_blanks,
    student_line,
)
from ddpkit.exercises.guard import own
from ddpkit.exercises.limit import LIMIT_S, limited
from ddpkit.exercises.raised import trouble_of
from ddpkit.exercises.seeds import Seed, current_seed
from ddpkit.exercises.sources import source_of
from ddpkit.exercises.tail import Tail, captured
from ddpkit.exercises.values import digits_of, show_value
from ddpkit.exercises.verdict import NOT_TRIED, CaseResult, Verdict
from ddpkit.rank import compiler

WRONG = 3  # wrong values told of in a case's row


class Unanswered(Exception):
    """The answer is the exercise as shipped."""

    def __init__(self, size: str) -> None:
        super().__init__(size)
        self.size = size


def judge(
    exercise: Exercise, answer: object, seed: Seed | None = None, limit: float = LIMIT_S
) -> Verdict:
    """Put every case to the answer and count the points.

    All cases are asked, also after a failure, for partial points; only a case that hung ends the
    asking, or one that says so itself (`Case.stop_if`). A case may take `limit` seconds.

    Raises:
        LessonError: the exercise itself is broken.
        KeyboardInterrupt: the reader pressed Stop.
    """
    seed = seed or current_seed()
    results: list[CaseResult] = []
    cases: list[tuple[Case, bool]] = []
    why_skipped, stopped = list[str](), False
    try:
        with compiler.absent():
            for case in _ask_for_cases(exercise, answer, seed, limit):
                if stopped:
                    result = CaseResult(case.title, False, NOT_TRIED, tried=False)
                else:
                    result, error = _ask(exercise, case, limit)
                    if isinstance(error, NotUnderTorchrun) and active():
                        why_skipped.append(error.reason)
                        continue
                    stopped = case.stops(result.passed, result.trouble)
                cases.append((case, result.passed))
                results.append(result)
    except Unanswered as blank:
        size = size_of_blanks(source_of(answer)) or blank.size
        return Verdict(exercise.name, False, exercise.points, 0.0, blank=size)
    if not results and not why_skipped:
        raise LessonError(f"The check of `{exercise.name}` has no cases.")
    passed = bool(results) and all(result.passed for result in results)
    points = exercise.points
    return Verdict(
        exercise.name,
        passed,
        points,
        earned(points, cases),
        tuple(results),
        why_skipped=tuple(why_skipped),
    )


def _ask_for_cases(exercise: Exercise, answer: object, seed: Seed, limit: float) -> Iterator[Case]:
    """The exercise's cases; one that cannot be observed stands for those that never came."""
    cases = exercise.asks(own(answer), seed.rng(exercise.name))
    while True:
        output = Tail()
        try:
            with captured(output):
                case = limited(partial(next, cases, None), limit)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if not is_unanswered(error) and student_line(error) is None:
                raise LessonError(
                    f"The check of `{exercise.name}` is broken: {explain(error).summary}."
                ) from error
            yield Case("before the cases", _raise(error), {})
            return
        if case is None:
            return
        yield case


def _raise(error: BaseException) -> Any:
    def observe() -> Observed:
        raise error

    return observe


def _ask(exercise: Exercise, case: Case, limit: float) -> tuple[CaseResult, BaseException | None]:
    output = Tail()
    try:
        with captured(output), asking(exercise.name):
            observed = limited(lambda: case.reading(case.observe()), limit)
        if not isinstance(observed, dict):
            raise LessonError(
                f"The check of `{exercise.name}` is broken: observe() must return a dict."
            )
        return _compare(case, observed, output.last()), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit and a student's own kinds too
        if isinstance(error, LessonError) and student_line(error) is None:
            raise
        if is_unanswered(error):
            raise Unanswered(size_of_blank(error)) from error
        explanation, trouble = explain(error), trouble_of(error)
        advice = case.advice({}, error, trouble)
        return CaseResult(
            case.title,
            passed=False,
            got=explanation.summary,
            hint=advice.says if advice else None,
            details=explanation.lines,
            printed=output.last(),
            hint_name=advice.name if advice else "",
            more=advice.more if advice else "",
            trouble=trouble,
        ), error


def _compare(case: Case, observed: dict[str, Any], printed: tuple[str, ...]) -> CaseResult:
    wrong: list[str] = []
    for key, expected in case.expect.items():
        found = difference(observed[key], expected) if key in observed else _missing(expected)
        if found is not None:
            wrong.append(differs(key, found))
    if not wrong:
        said = (counted(key, observed[key]) for key in case.expect)
        return CaseResult(case.title, True, ", ".join(filter(None, said)))
    names = [*case.expect, *(key for key in observed if key not in case.expect)]
    got = ", ".join(
        f"{key} {show_value(observed[key], digits_of(case.expect.get(key)))}"
        for key in names
        if key in observed
    )
    if len(wrong) > WRONG:
        wrong[WRONG:] = [f"and {len(wrong) - WRONG} more"]
    advice = case.advice(observed)
    return CaseResult(
        case.title,
        False,
        got,
        "; ".join(wrong),
        advice.says if advice else None,
        printed=printed,
        hint_name=advice.name if advice else "",
        more=advice.more if advice else "",
    )


def _missing(expected: object) -> Difference:
    return Difference("", "nothing", show_value(expected))
