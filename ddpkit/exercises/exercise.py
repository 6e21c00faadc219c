"""An exercise is a name, its points, and the cases that a right answer must get right.

    @exercise("double", lab="00", points=1)
    def cases(answer, rng):
        "Twice a number."
        for n in (0, 1, rng.randrange(100)):
            yield Case(
                f"n = {n}",
                observe=lambda n=n: {"result": answer(n)},
                expect={"result": 2 * n},
                hint=lambda seen: "Add, do not square." if seen["result"] == n * n else None,
            )

The cases of lab NN stand in `ddpkit/checks/labNN/cases.py`. There is no list of those modules: they
are found in the folder, and imported in order until the exercise asked for turns up.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import inspect
import io
import pkgutil
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ddpkit.errors import LessonError

Observed = Mapping[str, Any]
Cases = Callable[[Any, random.Random], Iterator["Case"]]


@dataclass(frozen=True)
class Case:
    """One question put to an answer.

    `observe` runs the answer and names what it did; `expect` says, under the same names, what a
    right answer does (plain data, tensors, `Close`); a name that only `observe` has is shown and
    not compared. Call the answer nowhere else: what it raises there fails this case alone.

    `hint` gets what was observed when that is wrong, and returns a sentence, or None. If the answer
    raised instead, it gets `{"error": exception}`. It may fail: a hint that raises is no hint.

    A grader runs `observe` beside the student's code, with secret inputs: let it know these alone.
    What looks at values and knows what is right goes into `read`, which tells of what was observed.

    Every value observed is printed, and what is printed is what the grader compares: let the
    values be the same for all right answers, in every run.
    """

    title: str
    observe: Callable[[], Observed]
    expect: Observed
    hint: Callable[[Observed], str | None] | None = None
    weight: float = 1.0  # share of the exercise's points, relative to its other cases
    read: Callable[[Observed], Observed] | None = None

    def told(self, observed: Observed) -> Observed:
        """What is compared with `expect`, and shown, of what was observed."""
        return self.read(observed) if self.read else observed

    def hint_for(self, seen: Observed) -> str | None:
        """The author's hint. Written for wrong answers, it may stumble over one yet more wrong."""
        if self.hint is None:
            return None
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                return self.hint(seen)
        except Exception:
            return None


@dataclass(frozen=True)
class Exercise:
    """What `@exercise` registers."""

    name: str
    lab: str  # "00"
    points: float
    about: str  # first line of the docstring of `cases`
    cases: Cases = field(repr=False)


REGISTRY: dict[str, Exercise] = {}


def exercise(name: str, *, lab: str, points: float = 1) -> Callable[[Cases], Cases]:
    """Register `cases(answer, rng)`, a generator of `Case`, as the check of exercise `name`."""

    def register(cases: Cases) -> Cases:
        there = REGISTRY.get(name)
        if there is not None and there.cases.__module__ != cases.__module__:
            raise LessonError(
                f"Two labs have an exercise `{name}`: "
                f"{there.cases.__module__} and {cases.__module__}."
            )
        about = (inspect.getdoc(cases) or "").partition("\n")[0]
        REGISTRY[name] = Exercise(name, lab, points, about, cases)
        return cases

    return register


def _lab_modules() -> list[str]:
    package = importlib.import_module("ddpkit.checks")
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    labs = sorted(name for name in found if name.startswith("lab"))
    return [f"{package.__name__}.{name}.cases" for name in labs]


def exercises() -> dict[str, Exercise]:
    """All exercises by name, in the order of the labs."""
    for module in _lab_modules():
        importlib.import_module(module)
    # sorted is stable: within a lab, the order of its module
    return dict(sorted(REGISTRY.items(), key=lambda item: item[1].lab))


def find(name: str) -> Exercise:
    """The exercise of that name.

    Raises:
        LessonError: there is none; the sentence names those that look like it, and the others.
    """
    for module in _lab_modules():
        if name in REGISTRY:
            break
        importlib.import_module(module)
    if name not in REGISTRY:
        raise LessonError(_unknown(name, list(exercises())))
    return REGISTRY[name]


def _unknown(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=3)
    if close:
        guess = " or ".join(f"`{each}`" for each in close)
        sentence = f"There is no exercise called `{name}`. Did you mean {guess}?"
    else:
        sentence = f"There is no exercise called `{name}`."
    return f"{sentence} The exercises are: {', '.join(known) or 'none'}."


def name_of(answer: object) -> str:
    """The exercise that an answer is for: the name it was defined with.

    Raises:
        LessonError: it is no function or class, or has no name of its own.
    """
    while isinstance(answer, functools.partial):
        answer = answer.func
    if isinstance(answer, str):
        raise LessonError(
            f"check() wants the function, not its name: write check({answer}), without quotes."
        )
    name = getattr(answer, "__name__", None)
    if not callable(answer) or not isinstance(name, str):
        raise LessonError(
            "check() wants the function or class of an exercise, for example check(token_ring); "
            f"this is a value of type {type(answer).__name__}."
        )
    if name == "<lambda>":
        raise LessonError(
            "A lambda has no name, and the name tells check() which exercise it answers: "
            "write `def name_of_the_exercise(...):`."
        )
    return name
