"""Wrong answers that students really give, each with the hint that has to meet it.

A module `tests/mutants/labNN.py` registers those of lab NN, in one of two ways:

    @mutant("token_ring", hint="Every rank")        # a wrong answer, written out
    def nobody_adds(token):
        ...

    edit("token_ring", "adds_one",                  # the kit's answer with one thing changed
         replace="token + rank", by="token + 1", hint="its rank")

`hint` is a part of the text that the check must show for it: of its hint, or, where the answer
raised, of the explanation. `tests/exercises/test_mutants.py` runs them all.
"""

import importlib
import inspect
import linecache
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ddpkit.exercises import Exercise, Verdict, find, judge

Answer = TypeVar("Answer", bound=Callable[..., Any])


@dataclass(frozen=True)
class Mutant:
    exercise: str
    label: str
    hint: str
    make: Callable[[], Any]  # the wrong answer; made late, for the kit's answers may be missing

    def __str__(self) -> str:
        return f"{self.exercise}-{self.label}"


MUTANTS: list[Mutant] = []


def mutant(exercise: str, *, hint: str) -> Callable[[Answer], Answer]:
    """Register a function or class as a wrong answer to `exercise`."""

    def register(answer: Answer) -> Answer:
        _add(Mutant(exercise, answer.__name__, hint, lambda: answer))
        return answer

    return register


def edit(exercise: str, label: str, *, replace: str, by: str, hint: str) -> None:
    """Register the kit's answer with one text in it, which stands there once, replaced."""
    _add(Mutant(exercise, label, hint, lambda: _edited(exercise, label, replace, by)))


def _add(new: Mutant) -> None:
    if not new.hint:
        raise ValueError(f"{new}: an empty hint is in every text")
    if str(new) in map(str, MUTANTS):
        raise ValueError(f"two mutants are called {new}")
    MUTANTS.append(new)


def _edited(exercise: str, label: str, replace: str, by: str) -> Any:
    answer = _kit_answer(exercise)
    source = inspect.getsource(answer)
    if source.count(replace) != 1:
        raise ValueError(
            f"{exercise}-{label}: {replace!r} stands {source.count(replace)} times in the answer"
        )
    source = source.replace(replace, by)
    filename = f"{exercise}-{label}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    # A module name that cannot be imported: cloudpickle ships the function by value.
    namespace = {**vars(sys.modules[answer.__module__]), "__name__": f"mutant_{exercise}_{label}"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[exercise]


def _kit_answer(exercise: str) -> Any:
    from ddpkit import answers

    return answers.get(exercise)


def discover() -> list[Mutant]:
    """All mutants, in the order of the labs."""
    for module in sorted(each.name for each in pkgutil.iter_modules(__path__)):
        if module.startswith("lab"):
            importlib.import_module(f"{__name__}.{module}")
    return list(MUTANTS)


def run(wrong: Mutant, exercise: Exercise | None = None) -> Verdict:
    """The check's verdict on a mutant."""
    import cloudpickle

    answer = wrong.make()
    module = sys.modules.get(answer.__module__)
    if module is not None:  # written out in tests/, which ranks cannot import
        cloudpickle.register_pickle_by_value(module)
    return judge(exercise or find(wrong.exercise), answer)


def shown(verdict: Verdict) -> str:
    """What a student reads that explains a failure: hints and explanations, not the values."""
    failed = [case for case in verdict.cases if not case.passed]
    raised = (part for case in failed if case.details for part in (case.got, *case.details))
    return "\n".join([verdict.hint or "", *raised])
