"""The questions of an exercise, without the expected answers.

A question is the pickled `observe` of a case, with the inputs that were drawn from the seed. Only
this pickle goes into the sandbox; the expected values and the hints stay outside. The pickle
contains only those functions of the lab's modules that `observe` uses, so a formula in any other
function stays outside too. In place of the student's function the pickle has a gap, which the
sandbox fills.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import cloudpickle

from ddpkit.errors import LessonError
from ddpkit.exercises import Case, Exercise, exercises
from ddpkit.exercises.seeds import Seed
from ddpkit.exercises.values import Between, Close
from ddpkit.grade.inside.asking import GAP
from ddpkit.protocol.ship import CodePickler

# The sandbox has no modules of checks, so their needed parts are pickled with a question.
LAB_MODULE = re.compile(r"ddpkit\.checks\.(?:lab\d\d|shared)[\w.]*")


class Answer:
    """A stand-in for the student's function while questions are made. It cannot be called."""

    def __init__(self, name: str) -> None:
        self.__name__ = self.__qualname__ = name

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        raise LessonError(
            f"A case of `{self.__name__}` calls the answer outside `observe`: move the call into "
            "`observe`."
        )

    def __reduce__(self) -> NoReturn:
        raise LessonError(
            f"A case of `{self.__name__}` runs the answer outside `observe`: move the run into "
            "`observe`."
        )


@dataclass(frozen=True)
class SealedCase:
    """One case of a check as a question.

    `pickled` goes into the sandbox; the expected values stay outside.
    """

    exercise: str
    number: int
    case: Case
    pickled: bytes
    # names of the expected values that feedback may show, as they do not depend on a secret seed
    shown: frozenset[str]

    @property
    def key(self) -> str:
        """The name of this question in a sandbox: "token_ring.0"."""
        return f"{self.exercise}.{self.number}"


def questions(exercise: Exercise, seed: Seed) -> list[SealedCase]:
    """Return all questions of an exercise, for inputs drawn from `seed`.

    Under a secret seed, an expected value is shown to the student only if it is the same for every
    seed.

    Raises:
        LessonError: a case calls the answer outside `observe`, or cannot be shipped.
    """
    public = [case for case, _ in _cases(exercise, Seed(), _nothing)] if seed.secret else []
    made = []
    for number, (case, pickled) in enumerate(_cases(exercise, seed, _pickle)):
        known = public[number].expect if number < len(public) else {}
        shown = _alike(case.expect, known) if seed.secret else frozenset(case.expect)
        made.append(SealedCase(exercise.name, number, case, pickled, shown))
    if not made:
        raise LessonError(f"The check of `{exercise.name}` has no cases.")
    return made


def exercises_of(lab: str) -> list[Exercise]:
    """Return the exercises of a lab, in order. Raises LessonError if there is no such lab."""
    found = [each for each in exercises().values() if each.lab == lab]
    if not found:
        labs = ", ".join(dict.fromkeys(each.lab for each in exercises().values()))
        raise LessonError(f"There is no lab {lab} with exercises; there are: {labs}.")
    return found


def _cases(
    exercise: Exercise, seed: Seed, pickle: Callable[[Exercise, Case], bytes]
) -> Iterator[tuple[Case, bytes]]:
    cases = exercise.asks(Answer(exercise.name), seed.rng(exercise.name))
    for case in cases:  # pickle each case at once: its closure may use a variable of the next
        yield case, pickle(exercise, case)


def _nothing(_: Exercise, __: Case) -> bytes:
    return b""


def _alike(expect: Any, known: Any) -> frozenset[str]:
    from ddpkit.exercises.compare import same

    return frozenset(
        name for name in expect if name in known and same(_bare(expect[name]), _bare(known[name]))
    )


def _bare(value: Any) -> Any:
    """Return an expected value as plain data.

    `same` compares the results, and would never find two `Close` objects equal.
    """
    match value:
        case Close():
            return value.value
        case Between():
            return value.least, value.most
        case list():
            return [_bare(each) for each in value]
    return value


class _SealingPickler(CodePickler):
    def persistent_id(self, thing: object) -> str | None:
        return GAP if isinstance(thing, Answer) else None

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, cached_property):  # before Python 3.12, its lock cannot be pickled
            return cached_property, (thing.func,), {"attrname": thing.attrname}
        return super().reducer_override(thing)


def _pickle(exercise: Exercise, case: Case) -> bytes:
    modules = [sys.modules[name] for name in list(sys.modules) if LAB_MODULE.fullmatch(name)]
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    stream = io.BytesIO()
    try:
        _SealingPickler(stream).dump(case.observe)
    except LessonError:
        raise
    except Exception as error:
        raise LessonError(
            f"Case {case.title!r} of `{exercise.name}` cannot be shipped to the sandbox: {error}."
        ) from error
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)
    return stream.getvalue()
