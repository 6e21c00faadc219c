"""Common mistakes as functions: an answer that returns the same numbers gets the mistake's hint.

An idea is a function that computes the numbers in a right or a wrong way. A question is the
arguments of one call. The first case of an exercise asks several questions at once. No two ideas
give equal numbers on all of these questions. Therefore the hint names the mistake that was made,
and never a similar mistake.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, SupportsFloat, TypeAlias

from ddpkit.exercises.hint import Hint, Seen

Idea: TypeAlias = Callable[..., Any]
Question: TypeAlias = tuple[Any, ...]
Named: TypeAlias = tuple[str, Idea]


@dataclass(frozen=True)
class Mistake:
    """A wrong function (`idea`), and the sentence for answers that return the same numbers."""

    name: str
    idea: Idea
    says: str


def hints_for(mistakes: Iterable[Mistake], other: str) -> tuple[Hint, ...]:
    """Return a hint for each mistake, and a last hint that says `other` to all other answers."""
    known = (Hint(each.name, partial(answers_as, each.idea), each.says) for each in mistakes)
    return *known, Hint("other", say=other)


def as_number(value: SupportsFloat | str | bytes) -> float | str | bytes:
    """Return any kind of number as a float; return a text unchanged."""
    return value if isinstance(value, str | bytes) else float(value)


def answers_as(idea: Idea, s: Seen) -> bool:
    """True if the student's answers to all questions are equal to the results of `idea`."""
    return bool(s.questions) and near(s.answers, [_of(idea, each) for each in s.questions])


def near(one: object, other: object) -> bool:
    """True if two numbers, or two lists of numbers, agree to six digits."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(near, one, other))
    if isinstance(one, int | float) and isinstance(other, int | float):
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        return one == other or math.isclose(one, other, rel_tol=1e-6)
    return bool(one == other)


def telling(
    rng: random.Random,
    draw: Callable[[random.Random], Question],
    count: int,
    right: Idea,
    mistakes: Sequence[Mistake],
) -> list[Question]:
    """Draw `count` questions on which the right function and all mistakes give different answers.

    Two functions may agree on some of the questions. Functions with the same name have the same
    sentence, so the questions need not tell these functions apart.
    """
    ideas = [("right", right), *((each.name, each.idea) for each in mistakes)]
    alike = [(a, b) for a, b in combinations(ideas, 2) if a[0] != b[0]]
    while True:
        questions = [draw(rng) for _ in range(count)]
        if not _left_alike(alike, questions):
            return questions


def _left_alike(
    alike: list[tuple[Named, Named]], questions: Sequence[Question]
) -> list[tuple[Named, Named]]:
    """Return those pairs of ideas in `alike` that give equal answers to all questions."""
    for question in questions:
        asked = {idea for pair in alike for _, idea in pair}
        said = {idea: _of(idea, question) for idea in asked}
        alike = [(a, b) for a, b in alike if near(said[a[1]], said[b[1]])]
    return alike


def _of(idea: Idea, question: Question) -> Any:
    """Return the result of `idea` for a question; after an ArithmeticError, the error's name."""
    try:
        return idea(*question)
    except ArithmeticError as error:
        return type(error).__name__
