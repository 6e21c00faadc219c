"""Wrong and right answers to the exercises of a lab: the registry.

    tests/labs/labNN/wrong_answers.py   what students really get wrong, each with its hint's name
    tests/labs/labNN/right_answers.py   right answers of another make than the kit's

A wrong answer is written out, or is a row of a table: the kit's answer with a text replaced.

    @wrong("token_ring", "all receive")
    def everyone_receives_first(token): ...

    edits(  # exercise, label, replace, by, hint; or {replace: by, ...} where there are several
        ("token_ring", "in_place", "token.clone()", "token", "input changed"),
        ("token_ring", "backwards", {"rank - 1": "rank + 1", "dst=1": "dst=2"}, "backwards"),
    )

    @right("token_ring")
    def of_another_make(token): ...

Where the answer raises and there is nothing to hint at, it names what it ends in, as
`Trouble.words` has it: `raises="KeyError"`, `raises="Deadlock: send"`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import linecache
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

from ddpkit.exercises import Exercise, Verdict, find, judge
from ddpkit.exercises.hint import Hint
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.questions import Answer as Sealed

HERE = Path(__file__).parent
Answer = TypeVar("Answer", bound=Callable[..., Any])
Row = tuple[str, str, str, str, str] | tuple[str, str, Mapping[str, str], str]


@dataclass(frozen=True)
class Wrong:
    """A wrong answer, and the name of the hint that a check must give for it."""

    exercise: str
    label: str
    hint: str  # the name of a hint; "" if the answer only raises
    # returns the answer; made late, because the kit's answers may be missing
    make: Callable[[], Any]
    raises: str = ""  # the end of the answer, in the form of `Trouble.words`

    def __str__(self) -> str:
        return f"{self.exercise}-{self.label}"


WRONG: list[Wrong] = []
RIGHT: list[tuple[str, Callable[..., Any]]] = []


def wrong(exercise: str, hint: str = "", *, raises: str = "") -> Callable[[Answer], Answer]:
    """Register a function or class as a wrong answer to `exercise`."""

    def register(answer: Answer) -> Answer:
        _add(Wrong(exercise, answer.__name__, hint, lambda: answer, raises))
        return answer

    return register


def edits(*rows: Row, of: Callable[..., Any] | None = None, raises: bool = False) -> None:
    """Register answers made by replacing texts, each of which occurs once.

    They are edits of the kit's answer, or of `of`, a right answer of another make. With `raises`,
    the last column names the end of the answer, not a hint.
    """
    for row in rows:
        exercise, label, *replace, says = row
        changes = dict([replace]) if len(replace) == 2 else dict(*replace)
        hint, end = ("", says) if raises else (says, "")
        _add(Wrong(exercise, label, hint, _editing(exercise, label, changes, of), end))


def right(exercise: str) -> Callable[[Answer], Answer]:
    """Register a function or class as a right answer to `exercise`."""

    def register(answer: Answer) -> Answer:
        RIGHT.append((exercise, answer))
        return answer

    return register


def _add(new: Wrong) -> None:
    if bool(new.hint) == bool(new.raises):
        raise ValueError(f"{new}: a wrong answer names its hint, or else what it raises")
    if str(new) in map(str, WRONG):
        raise ValueError(f"two wrong answers are called {new}")
    WRONG.append(new)


def _editing(
    exercise: str, label: str, changes: Mapping[str, str], of: Callable[..., Any] | None
) -> Callable[[], Any]:
    return lambda: edited(of or _kit_answer(exercise), f"{exercise}-{label}", changes)


def edited(answer: Callable[..., Any], name: str, changes: Mapping[str, str]) -> Any:
    """Return the answer with texts in it replaced, one after the other."""
    source = _undecorated(textwrap.dedent(inspect.getsource(answer)))
    for replace, by in changes.items():
        if source.count(replace) != 1:
            times = source.count(replace)
            raise ValueError(f"{name}: {replace!r} stands {times} times in the answer")
        source = source.replace(replace, by)
    filename = f"{name}.py"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    # cloudpickle ships the function by value, because no such module can be imported
    made = f"wrong_{name.replace('-', '_')}"
    namespace = {**vars(sys.modules[answer.__module__]), "__name__": made}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[answer.__name__]


def _undecorated(source: str) -> str:
    """Return the source without the decorator that registers the answer."""
    (node,) = ast.parse(source).body
    assert isinstance(node, ast.FunctionDef | ast.ClassDef)
    if not any(ast.unparse(each).startswith(("right(", "wrong(")) for each in node.decorator_list):
        return source
    return "".join(source.splitlines(keepends=True)[node.lineno - 1 :])


def _kit_answer(exercise: str) -> Any:
    from ddpkit import answers

    return answers.get(exercise)


# The answers of a lab


def labs() -> list[str]:
    """Return the labs that have a folder here: "00"."""
    return sorted(path.name.removeprefix("lab") for path in HERE.glob("lab[0-9][0-9]"))


def load(lab: str, kind: str) -> None:
    """Import labNN/{kind}.py, and labNN/{kind}_more.py if there is a second file."""
    for path in sorted((HERE / f"lab{lab}").glob(f"{kind}*.py")):
        module = importlib.import_module(f"tests.labs.lab{lab}.{path.stem}")
        cloudpickle.register_pickle_by_value(module)  # ranks cannot import tests


def wrong_answers(lab: str) -> list[Wrong]:
    """Return all wrong answers to the exercises of a lab, in the order of their definitions."""
    load(lab, "right_answers")  # some wrong answers are edits of these
    load(lab, "wrong_answers")
    return [each for each in WRONG if find(each.exercise).lab == lab]


def right_answers(lab: str) -> list[tuple[str, Callable[..., Any]]]:
    """Return all right answers to the exercises of a lab, each with its exercise."""
    load(lab, "right_answers")
    return [each for each in RIGHT if find(each[0]).lab == lab]


def run(answer: Wrong, exercise: Exercise | None = None) -> Verdict:
    """Return the check's verdict on a wrong answer."""
    return judge(exercise or find(answer.exercise), answer.make())


@functools.cache
def hints_of(exercise: Exercise) -> list[Hint]:
    """Return all hints in the cases of an exercise, without duplicates."""
    cases = exercise.cases(Sealed(exercise.name), Seed().rng(exercise.name))
    found = [hint for case in cases for hint in case.hints]
    return list({id(hint): hint for hint in found}.values())
