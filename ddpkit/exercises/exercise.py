"""Exercises: the name and points of each, and the cases in which a right answer must be right.

    @exercise("double", lab="00", points=1)
    def cases(answer, rng):
        "Twice a number."
        for n in (0, 1, rng.randrange(100)):
            yield Case(
                f"n = {n}",
                observe=lambda n=n: {"result": answer(n)},
                expect={"result": 2 * n},
                hints=HINTS,
                given={"n": n},
            )

    HINTS = (
        Hint("squared", lambda s: s.result == s.n**2, "Add, do not square."),
    )

The cases of lab NN are in `ddpkit/checks/labNN/cases.py`. `find` imports the module of the lab that
the index of `ddpkit.answers` names for the exercise, and all modules for an unknown name.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import pkgutil
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ddpkit import answers
from ddpkit.errors import LessonError
from ddpkit.exercises.guard import FOR_ALL, returning
from ddpkit.exercises.hint import Advice, Hint, Seen, first_that_fits
from ddpkit.exercises.raised import Trouble

Observed = Mapping[str, Any]
Cases = Callable[[Any, random.Random], Iterator["Case"]]
StopIf = Literal["", "wrong", "raised"]


@dataclass(frozen=True)
class Case:
    """One case of an exercise: a call of the answer, and the right values.

    `observe` runs the answer and returns named values. `expect` has the values of a right answer
    under the same names (plain data, tensors, `Close`); a name that only `observe` returns is shown
    and not compared. Call the answer only in `observe`: an exception there fails this case alone.

    `hints` is a table of sentences for wrong answers. The first hint that fits is shown; the hints
    common to all exercises (`guard.FOR_ALL`) come first. A hint can use the observed values, the
    answer's exception, and the values in `given`, which is a mapping or an object with attributes.

    `trivial` marks a case in which even an answer that does no work may be right: one rank alone,
    an empty tensor, a single micro-batch, or a value that can be copied, such as the name of a
    fault. A trivial case has to pass, but its points count only if another case that is not trivial
    passes too.

    `stop_if` is "wrong" or "raised". If this case is wrong in any way, or if it raised, the
    exercise ends: later cases do not run and count as wrong. An answer that fails an easy case
    would fail the later cases too, and each of these would take time. A case that hangs (a
    deadlock, a mismatch, a timeout) always ends the exercise.

    The grader runs `observe` beside the student's code, with secret inputs, so `observe` must
    contain the inputs and no right values. Code that compares observed values with right values
    belongs in `read`, which gets the observed values.

    `measures` has the names of numbers among the values of `read`. If the case passes, the grader's
    result keeps these numbers, so that a class can be ranked (`ddpkit report --format standings`).

    Every observed value is printed, and the grader compares the printed values: they must be
    the same for all right answers, in every run.
    """

    title: str
    observe: Callable[[], Observed]
    expect: Observed
    # share of the exercise's points, relative to the weights of the exercise's other cases
    weight: float = 1.0
    read: Callable[[Observed], Observed] | None = None
    hints: Sequence[Hint] = ()
    given: object = None  # more values for the hints; they stay outside the sandbox
    stop_if: StopIf = ""
    trivial: bool = False
    measures: Sequence[str] = ()

    def reading(self, observed: Observed) -> Observed:
        """Return the values to show and to compare with `expect`."""
        return self.read(observed) if self.read else observed

    def advice(
        self,
        observed: Observed,
        error: BaseException | None = None,
        trouble: Trouble | None = None,
    ) -> Advice | None:
        """Return the hint for wrong values or for an exception; None if no hint fits."""
        seen = Seen(observed, self.expect, self.given, error, trouble)
        return first_that_fits([*FOR_ALL, *self.hints], seen)


def earned(points: float, cases: Sequence[tuple[Case, bool]]) -> float:
    """Return the points of the passed cases, by weight; all points if every case passed.

    `cases` has pairs: a case, and True if it passed. The notebook's check and the grader both use
    this rule.
    """
    if cases and all(passed for _, passed in cases):
        return float(points)
    right = [case for case, passed in cases if passed]
    if all(case.trivial for case in right):
        return 0.0
    whole = sum(case.weight for case, _ in cases)
    return round(points * sum(case.weight for case in right) / whole, 2)


@dataclass(frozen=True)
class Exercise:
    """A registered exercise: its name, lab, points and cases."""

    name: str
    lab: str  # "00"
    points: float
    about: str  # first line of the docstring of `cases`
    cases: Cases = field(repr=False)
    returns: bool = True

    def asks(self, answer: Any, rng: random.Random) -> Iterator[Case]:
        """Yield the cases. If `returns`, an answer that returns None fails the cases."""
        return self.cases(returning(answer) if self.returns else answer, rng)


REGISTRY: dict[str, Exercise] = {}


def exercise(
    name: str, *, lab: str, points: float = 1, returns: bool = True
) -> Callable[[Cases], Cases]:
    """Register `cases(answer, rng)`, a generator of `Case`, as the check of exercise `name`.

    The first line of the docstring of `cases` is the exercise's question. `lab` is two digits:
    "00". Pass ``returns=False`` if a right answer returns None; otherwise a check reports a missing
    `return`. Raises LessonError if another lab has an exercise of this name.
    """

    def register(cases: Cases) -> Cases:
        there = REGISTRY.get(name)
        if there is not None and there.cases.__module__ != cases.__module__:
            raise LessonError(
                f"Two labs have an exercise `{name}`: {there.cases.__module__} and "
                f"{cases.__module__}. Rename one of them."
            )
        about = (inspect.getdoc(cases) or "").partition("\n")[0]
        REGISTRY[name] = Exercise(name, lab, points, about, cases, returns)
        return cases

    return register


@functools.cache
def _lab_modules() -> tuple[str, ...]:
    """Return the names of the modules with all labs' cases. The folder is read only once."""
    package = importlib.import_module("ddpkit.checks")
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    labs = sorted(name for name in found if name.startswith("lab"))
    return tuple(f"{package.__name__}.{name}.cases" for name in labs)


def exercises() -> dict[str, Exercise]:
    """Return all exercises by name, in the order of the labs."""
    for module in _lab_modules():
        importlib.import_module(module)
    # sorted is stable, so a lab's exercises keep the order of its module
    return dict(sorted(REGISTRY.items(), key=lambda item: item[1].lab))


def find(name: str) -> Exercise:
    """Return the exercise named `name`.

    Raises:
        LessonError: no exercise has this name; the message names similar ones, and all exercises.
    """
    known = f"ddpkit.checks.{answers.LABS.get(name)}.cases"  # LABS lacks a lab until its release
    for module in sorted(_lab_modules(), key=lambda each: each != known):
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
    """Return the name of the exercise that an answer is for: the name in its definition.

    Raises:
        LessonError: the answer is no function or class, or has no name of its own.
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
            f"its argument is of type {type(answer).__name__}."
        )
    if name == "<lambda>":
        raise LessonError(
            "A lambda has no name, but check() finds the exercise by the name of the answer: "
            "write `def name_of_the_exercise(...):`."
        )
    return name
