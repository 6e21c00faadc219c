"""`check`: tests a student's answer, and prints the result or the mistake."""

from __future__ import annotations

from collections.abc import Iterator

from ddpkit.errors import LessonError
from ddpkit.exercises.exercise import find, name_of
from ddpkit.exercises.judge import judge
from ddpkit.exercises.keep import keep
from ddpkit.exercises.limit import LIMIT_S
from ddpkit.exercises.progress import record
from ddpkit.exercises.say import say, speaks
from ddpkit.exercises.seeds import current_seed
from ddpkit.exercises.verdict import Verdict, verdict_text


def check(answer: object, *, hint: int = 1, limit: float = LIMIT_S) -> Verdict:
    """Run the exercise's cases with your function or class, and print the results and the verdict.

    The name in the function's definition selects the exercise. A wrong answer never makes check()
    raise an exception. When all cases pass, your version is saved for `carry`. The first hint is
    short; ``check(ring, hint=2)`` prints a longer hint.

    A case may take `limit` seconds. After this time, the check ends the case and prints the line
    that was running.

    If `DDPKIT_SEED` is set (the grader's secret), the inputs are drawn from this seed, and no
    expected value is shown.

    Raises:
        LessonError: `answer` is no function or class, no exercise has its name, `hint` is neither
            1 nor 2, or `limit` is no number above 0.
        KeyboardInterrupt: you pressed Stop.
    """
    exercise = find(name_of(answer))
    if hint not in (1, 2):
        raise LessonError(
            f"check({exercise.name}, hint={hint!r}): hint= takes 1, or 2 for a longer hint"
        )
    if type(limit) not in (int, float) or not limit > 0:
        raise LessonError(
            f"check({exercise.name}, limit={limit!r}): limit= takes a number of seconds above 0"
        )
    seed = current_seed()
    verdict = judge(exercise, answer, seed, limit)
    notes = list(_remember(verdict, answer)) if speaks() else []
    # Notes depend on the student's folder; a text under a secret seed must not depend on it.
    say(verdict_text(verdict, [] if seed.secret else notes, secret=seed.secret, hint=hint))
    return verdict


def _remember(verdict: Verdict, answer: object) -> Iterator[str]:
    if verdict.blank is not None or verdict.skipped:
        return
    if verdict.passed:
        yield keep(verdict.name, answer)
    if (trouble := record(verdict)) is not None:
        yield trouble
