"""An exercise is a name, its points, and the cases that a right answer must get right.

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
    """One question put to an answer.

    `observe` runs the answer and names what it did; `expect` says, under the same names, what a
    right answer does (plain data, tensors, `Close`); a name that only `observe` has is shown and
    not compared. Call the answer nowhere else: what it raises there fails this case alone.

    `hints` is a table of sentences for wrong answers; the first that fits is shown, after those
    that hold for all exercises (`guard.FOR_ALL`). A hint knows what was observed, what the answer
    raised, and all in `given`: names and values, or an object with attributes.

    `trivial` is what an answer that does nothing gets right too: one rank alone, an empty tensor,
    a single micro-batch; or what can be copied, as the name of a fault. Such a case has to pass,
    and its points count only beside those of a case that is not trivial.

    `stop_if` ends the exercise: if this case is "wrong" (however it fails) or has "raised", later
    cases are not tried and count as wrong. An answer that fails a plain case would fail the others
    too, and take time for it. A case that hung (a deadlock, a mismatch, a timeout) always does so.

    A grader runs `observe` beside the student's code, with secret inputs: `observe` must know the
    inputs and nothing else. Code that compares values with the right ones goes into `read`, which
    gets what was observed.

    `measures` names numbers among what was read that a grader's result keeps, of a case that
    passed: so a class can be compared by them (`ddpkit report --format standings`).

    Every value observed is printed, and what is printed is what the grader compares: let the
    values be the same for all right answers, in every run.
    """

    title: str
    observe: Callable[[], Observed]
    expect: Observed
    weight: float = 1.0  # share of the exercise's points, relative to its other cases
    read: Callable[[Observed], Observed] | None = None
    hints: Sequence[Hint] = ()
    given: object = None  # what the hints may know besides: it stays outside the sandbox
    stop_if: StopIf = ""
    trivial: bool = False
    measures: Sequence[str] = ()

    def reading(self, observed: Observed) -> Observed:
        """The observed values that are shown, and compared with `expect`."""
        return self.read(observed) if self.read else observed

    def advice(
        self,
        observed: Observed,
        error: BaseException | None = None,
        trouble: Trouble | None = None,
    ) -> Advice | None:
        """The hint for values that are wrong, or for an exception; None if no hint fits."""
        seen = Seen(observed, self.expect, self.given, error, trouble)
        return first_that_fits([*FOR_ALL, *self.hints], seen)


def earned(points: float, cases: Sequence[tuple[Case, bool]]) -> float:
    """The points for cases, each of which passed or not, by their weights; all if all passed.

    The notebook's check and the grader count alike: by this rule.
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
    """What `@exercise` registers."""

    name: str
    lab: str  # "00"
    points: float
    about: str  # first line of the docstring of `cases`
    cases: Cases = field(repr=False)
    returns: bool = True

    def asks(self, answer: Any, rng: random.Random) -> Iterator[Case]:
        """The cases for an answer, which has to return something if `returns`."""
        return self.cases(returning(answer) if self.returns else answer, rng)


REGISTRY: dict[str, Exercise] = {}


def exercise(
    name: str, *, lab: str, points: float = 1, returns: bool = True
) -> Callable[[Cases], Cases]:
    """Register `cases(answer, rng)`, a generator of `Case`, as the check of exercise `name`.

    The first line of the docstring of `cases` says what the exercise asks. `lab` is two digits:
    "00". ``returns=False`` if a right answer returns None: any other is told of a missing `return`.
    Raises LessonError if another lab has an exercise of this name.
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
    """The modules of all labs' checks; their folder is read once."""
    package = importlib.import_module("ddpkit.checks")
    found = (module.name for module in pkgutil.iter_modules(package.__path__))
    labs = sorted(name for name in found if name.startswith("lab"))
    return tuple(f"{package.__name__}.{name}.cases" for name in labs)


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
    known = f"ddpkit.checks.{answers.LABS.get(name)}.cases"  # a lab's first release adds the name
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
            f"its argument is of type {type(answer).__name__}."
        )
    if name == "<lambda>":
        raise LessonError(
            "A lambda has no name, but check() finds the exercise by the name of the answer: "
            "write `def name_of_the_exercise(...):`."
        )
    return name
