"""Docstrings: the first line is a whole sentence, and a reader finds errors by name."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ddpkit import errors
from tests.project.source import ROOT, modules
from tests.project.wording import comments, docstrings

HANGING = re.compile(r"\bthe$", re.IGNORECASE)
ENDS = (".", "?", ":", '"', "'", "`", "”")

ROOMS = ["data", "exercises", "simulate", "trace", "view"]
PUBLIC = ["ddpkit", *(f"ddpkit.{room}" for room in ROOMS)]
LINK = ["Link", "Links"]
MAKING = {"__init__", "__post_init__"}  # explained in the docstring of the class


def hand_written() -> list[Path]:
    """Return the files of the package that people write."""
    return [path for name, path in modules().items() if not name.startswith("ddpkit.answers.lab")]


def hanging(lines: list[tuple[int, str]]) -> Iterator[int]:
    """Yield the lines that end with "the" if the next line begins with "same"."""
    for (number, line), (following, after) in pairwise(lines):
        if following == number + 1 and HANGING.search(line) and after.startswith("same"):
            yield number


def faults(source: str) -> list[str]:
    """Return the faults in the docstrings and comments of a module, by line."""
    found = []
    for number, text in docstrings(ast.parse(source)):
        first, *_ = lines = text.splitlines()
        if not first.endswith(ENDS):
            found.append(f"{number}: first line has no end: {first}")
        numbered = [(number + i, line.strip()) for i, line in enumerate(lines)]
        found += [f'{n}: "the same" across lines' for n in hanging(numbered)]
    for number, text in comments(source):
        numbered = [(number + i, line) for i, line in enumerate(text.splitlines())]
        found += [f'{n}: "the same" across lines' for n in hanging(numbered)]
    return found


def test_docstrings_and_comments_are_whole():
    found = [
        f"{path.relative_to(ROOT)}:{fault}"
        for path in hand_written()
        for fault in faults(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        '"""A module without an end"""',
        '"""A first line that goes on\nto the second."""',
        '"""Ranks.\n\nAll in the\nsame group.\n"""',
        "# all in the\n# same group",
    ],
)
def test_a_broken_docstring_or_comment_is_found(source: str):
    assert faults(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""Where a rank is."""',
        '"""Form of a message."""',
        'def f():\n    """Is this the student\'s file?"""',
        '"""Ranks in the same group."""',
        "x = 1  # in the\ny = 2  # room\n",
    ],
)
def test_a_whole_docstring_is_left_alone(source: str):
    assert faults(source) == []


def exported() -> dict[str, Any]:
    """Return the classes and functions of all `__all__`s, and Link and Links, by dotted name."""
    rooms = {name: importlib.import_module(name).__all__ for name in PUBLIC}
    rooms["ddpkit.link"] = LINK
    found = {
        f"{room}.{name}": getattr(importlib.import_module(room), name)
        for room, names in rooms.items()
        for name in names
    }
    return {name: value for name, value in found.items() if callable(value)}


def parts(name: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, function that runs, docstring that explains it) for each call of a reader.

    The docstring of a class explains its construction. The public methods and properties of the
    class follow, with inherited ones.
    """
    yield name, value, value.__doc__ or ""
    for attribute, member in members(value).items() if inspect.isclass(value) else ():
        if attribute in MAKING:
            yield name, member, value.__doc__ or ""
        elif not attribute.startswith("_"):
            yield f"{name}.{attribute}", member, member.__doc__ or ""


def members(kind: type) -> dict[str, Any]:
    """Return the functions of a class that ddpkit wrote, by name; for a property, its function."""
    found: dict[str, Any] = {}
    for each in reversed(kind.__mro__):
        if each.__module__.startswith("ddpkit"):
            found |= vars(each)
    unwrapped = {
        name: inspect.unwrap(
            getattr(member, "__func__", None)
            or getattr(member, "fget", None)
            or getattr(member, "func", member)
        )
        for name, member in found.items()
    }
    return {
        name: member
        for name, member in unwrapped.items()
        if inspect.isfunction(member) and Path(member.__code__.co_filename).exists()
    }  # functions made by dataclass are in no file


def public() -> list[tuple[str, Any, str]]:
    return [part for name, value in exported().items() for part in parts(name, value)]


def raised_by(function: Any) -> set[str]:
    """Return the errors of `ddpkit.errors` that a function's own lines raise."""
    found = set()
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        match node:
            case ast.Raise(exc=ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name))):
                found.add(name)
    return {name for name in found if hasattr(errors, name)}


def test_every_public_name_has_a_docstring():
    silent = [name for name, _, docstring in public() if not docstring.strip()]
    assert silent == []


def test_a_public_function_names_the_errors_that_it_raises():
    called = [part for part in public() if inspect.isfunction(part[1])]
    raising = [(name, error, doc) for name, one, doc in called for error in raised_by(one)]
    assert {"CallError", "ClusterError", "LessonError", "TraceError"} & {e for _, e, _ in raising}
    assert [f"{name}: {error}" for name, error, doc in raising if error not in doc] == []
