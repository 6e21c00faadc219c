"""`judge`: runs an exercise's cases with an answer. No wrong answer makes it raise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from ddpkit.asked import asking
from ddpkit.cluster.torchrun.job import NotUnderTorchrun, active
from ddpkit.errors import LessonError
from ddpkit.exercises.assess import Assessment, Status, assess, assess_raised
from ddpkit.exercises.counts import counted
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
from ddpkit.exercises.verdict import Verdict
from ddpkit.rank import compiler


class Unanswered(Exception):
    """Raised if the student has not yet changed the exercise."""

    def __init__(self, size: str) -> None:
        super().__init__(size)
        self.size = size


def judge(
    exercise: Exercise, answer: object, seed: Seed | None = None, limit: float = LIMIT_S
) -> Verdict:
    """Run every case with the answer, and return the verdict with the points.

    All cases run, even after a failure, so that an answer can get partial points. Only a case that
    hangs, or a case with `Case.stop_if`, ends the exercise. A case may take `limit` seconds.

    Raises:
        LessonError: the exercise itself is broken.
        KeyboardInterrupt: the reader pressed Stop.
    """
    seed = seed or current_seed()
    results: list[Assessment] = []
    why_skipped, ended = list[str](), False
    try:
        with compiler.absent():
            for case in _ask_for_cases(exercise, answer, seed, limit):
                if ended:
                    results.append(Assessment(case, Status.NOT_TRIED))
                    continue
                result, error = _ask(exercise, case, limit)
                if isinstance(error, NotUnderTorchrun) and active():
                    why_skipped.append(error.reason)
                    continue
                ended = result.ends_exercise
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
        earned(points, [(each.case, each.passed) for each in results]),
        tuple(results),
        why_skipped=tuple(why_skipped),
    )


def _ask_for_cases(exercise: Exercise, answer: object, seed: Seed, limit: float) -> Iterator[Case]:
    """Yield the exercise's cases.

    If the answer raises an error while a case is made, the last case fails with this error.
    """
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


def _raise(error: BaseException) -> Callable[[], Observed]:
    def observe() -> Observed:
        raise error

    return observe


def _ask(exercise: Exercise, case: Case, limit: float) -> tuple[Assessment, BaseException | None]:
    output = Tail()
    try:
        with captured(output), asking(exercise.name):
            seen = limited(lambda: case.reading(case.observe()), limit)
        if not isinstance(seen, dict):
            raise LessonError(
                f"The check of `{exercise.name}` is broken: observe() must return a dict."
            )
        assessed = assess(case, seen)
        return replace(assessed, got=_got(assessed, seen), printed=output.last()), None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # answers may raise SystemExit or their own classes
        if isinstance(error, LessonError) and student_line(error) is None:
            raise
        if is_unanswered(error):
            raise Unanswered(size_of_blank(error)) from error
        explanation = explain(error)
        assessed = assess_raised(
            case,
            error,
            trouble_of(error),
            kinds=[kind.__name__ for kind in type(error).__mro__],
            headline=explanation.summary,
            lines=explanation.lines,
        )
        return replace(assessed, printed=output.last()), error


def _got(assessed: Assessment, seen: Observed) -> str:
    """Return the observed values as text: for a right answer only the counts, otherwise all."""
    expect = assessed.case.expect
    if assessed.passed:
        return ", ".join(filter(None, (counted(key, seen[key]) for key in expect)))
    names = [*expect, *(key for key in seen if key not in expect)]
    return ", ".join(
        f"{key} {show_value(seen[key], digits_of(expect.get(key)))}" for key in names if key in seen
    )
