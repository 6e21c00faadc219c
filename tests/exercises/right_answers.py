"""Right answers of another make than the kit's: a check that fails one of them is wrong.

    @right("double")
    def by_adding(n):
        return n + n

    test_a_right_answer_of_another_make_passes = passes(__name__)

A file `test_right_labNN.py` holds those of lab NN, so that workers share them.
"""

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import cloudpickle
import pytest

from ddpkit.exercises import find, judge
from ddpkit.exercises.verdict import verdict_text

Answer = TypeVar("Answer", bound=Callable[..., Any])
RIGHT: list[tuple[str, Callable[..., Any]]] = []


def right(exercise: str) -> Callable[[Answer], Answer]:
    """Register a function or class as a right answer to `exercise`."""

    def register(answer: Answer) -> Answer:
        RIGHT.append((exercise, answer))
        return answer

    return register


def passes(module: str) -> Callable[..., None]:
    """A test for each right answer of that module."""
    cloudpickle.register_pickle_by_value(sys.modules[module])  # ranks cannot import tests
    found = [each for each in RIGHT if each[1].__module__ == module]
    names = [f"{exercise}-{answer.__name__}" for exercise, answer in found]

    @pytest.mark.processes("some")
    @pytest.mark.parametrize(("exercise", "answer"), found, ids=names)
    def test_a_right_answer_of_another_make_passes(
        exercise: str, answer: Callable[..., Any]
    ) -> None:
        verdict = judge(find(exercise), answer)
        assert verdict, verdict_text(verdict)

    return test_a_right_answer_of_another_make_passes
