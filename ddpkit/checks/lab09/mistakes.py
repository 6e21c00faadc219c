"""A wrong idea as a function: an answer that gives its numbers gets its sentence.

A question is the arguments of an answer. The first case of an exercise asks several at once, on
which all wrong ideas give other numbers than the right one and than each other; so its hint names
the mistake and not one that looks alike.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any, TypeAlias

from ddpkit.exercises.hint import Hint, Seen

Idea: TypeAlias = Callable[..., Any]
Question: TypeAlias = tuple[Any, ...]
Named: TypeAlias = tuple[str, Idea]


@dataclass(frozen=True)
class Mistake:
    """What a wrong answer computes, and what is said of it."""

    name: str
    idea: Idea
    says: str


def hints_for(mistakes: Iterable[Mistake], other: str) -> tuple[Hint, ...]:
    """The table of hints: each mistake by its numbers, and what is said of any other answer."""
    known = (Hint(each.name, partial(answers_as, each.idea), each.says) for each in mistakes)
    return *known, Hint("other", say=other)


def as_number(value: Any) -> Any:
    """A number of any make as a float; a text stays one, whatever stands in it."""
    return value if isinstance(value, str | bytes) else float(value)


def answers_as(idea: Idea, s: Seen) -> bool:
    """Whether the answers to all questions are those of an idea, where another would be right."""
    return bool(s.questions) and near(s.answers, [_of(idea, each) for each in s.questions])


def near(one: Any, other: Any) -> bool:
    """Whether numbers, or lists of them, are the same to six digits."""
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
    """So many questions on which all wrong ideas differ from the right one and from each other.

    They may agree on some of the questions. Ideas of one name have one sentence.
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
    """The pairs of ideas that agree on all questions; who differs is asked no further."""
    for question in questions:
        asked = {idea for pair in alike for _, idea in pair}
        said = {idea: _of(idea, question) for idea in asked}
        alike = [(a, b) for a, b in alike if near(said[a[1]], said[b[1]])]
    return alike


def _of(idea: Idea, question: Question) -> Any:
    """What an idea answers; a text where it raises, which is near to nothing else."""
    try:
        return idea(*question)
    except ArithmeticError as error:
        return type(error).__name__
