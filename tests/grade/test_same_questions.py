"""Questions depend on the secret: knowing the questions of a notebook's check answers nothing.

A question that is the same for every secret could be answered from a list. Trivial cases may be the
same, because they earn no points alone.
"""

from __future__ import annotations

import types
from dataclasses import Field, fields, is_dataclass
from functools import partial
from typing import Any

import pytest
import torch

from ddpkit.exercises import digest, exercises
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.questions import questions
from tests.grade.test_secrets import loaded

# exercise -> cases that are the same for every secret, and the reason why they may be
ALIKE = {
    "barrier": (("4 ranks", "2 ranks", "3 ranks", "5 ranks", "8 ranks"), "it has no arguments"),
    "gradients_of": (("all are None",), "zeros are all that there is"),
    "no_sync": (("an exception inside",), "a flag has two values; the next case mixes them"),
    "pair_groups": (("4 ranks", "8 ranks"), "it has no arguments: it is told of the ranks alone"),
}


def shape(thing: object, above: tuple[int, ...] = ()) -> object:
    """Return the data in a question, in a comparable form: arguments, and closures of functions.

    Code is left out, because it is the same for every secret.
    """
    if id(thing) in above:
        return "itself"
    parts = partial(shape, above=(*above, id(thing)))
    match thing:
        case bool() | int() | float() | str() | bytes() | None:
            return type(thing).__name__, repr(thing)
        case torch.Tensor():
            return digest(thing)
        case list() | tuple():
            return [parts(each) for each in thing]
        case dict():
            return {repr(key): parts(value) for key, value in thing.items()}
        case partial():
            return [parts(thing.func), parts(thing.args), parts(thing.keywords)]
        case types.MethodType():
            return parts(thing.__self__)
        case types.FunctionType():
            cells = [each.cell_contents for each in thing.__closure__ or ()]
            return [thing.__name__, parts(cells), parts(thing.__defaults__)]
        case type() | types.ModuleType():
            return thing.__name__
    held = {each.name: getattr(thing, each.name) for each in _fields(thing)}  # slots too
    return type(thing).__name__, parts({**getattr(thing, "__dict__", {}), **held})


def _fields(thing: object) -> tuple[Field[Any], ...]:
    return fields(thing) if is_dataclass(thing) else ()


def same_for_all(name: str, *seeds: str) -> list[str]:
    """Return the titles of non-trivial cases that have the same question for all seeds."""
    made = [questions(exercises()[name], Seed(each)) for each in seeds]  # public: no second draw
    return [
        one.case.title
        for one, *others in zip(*made, strict=True)
        if not one.case.trivial
        and all(shape(loaded(one)) == shape(loaded(other)) for other in others)
    ]


@pytest.mark.slow  # all labs in one test
@pytest.mark.parametrize("name", sorted(exercises()))
def test_a_question_is_another_for_another_secret(name: str) -> None:
    allowed, _ = ALIKE.get(name, ((), ""))
    assert same_for_all(name, "a secret", "another", "a third", "a fourth") == list(allowed)


def test_a_difference_says_something() -> None:
    """A secret gives the same questions twice."""
    asked = questions(exercises()["token_ring"], Seed("a secret"))
    titles = [each.case.title for each in asked if not each.case.trivial]
    assert same_for_all("token_ring", "a secret", "a secret") == titles
