"""The kit's answers as modules, ddpkit/answers/labNN.py, and the index over all modules.

A module holds the exercise cells, the cells tagged "answers", and the imports used by these cells.
A lesson takes an earlier lab's answer by `x = carry("y")`. In the module, x is the kit's own
answer to y.
"""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Iterator, Sequence
from itertools import groupby

from ddpkit.authoring.lesson import SUMMARY, Lesson
from ddpkit.errors import LessonError

_MODULE_NAMES = {"__name__", "__file__", "__doc__"}


def make_answers(lesson: Lesson) -> str:
    """Return the text of ddpkit/answers/labNN.py.

    Raises LessonError if an answer uses a name that the module would not define.
    """
    body = [cell.solved for cell in lesson.cells if cell.in_answers]
    given = _given(lesson)
    needed = _free_names("\n".join(body))
    for name in sorted(needed - given.keys()):
        raise LessonError(
            f"{lesson.label}: an answer uses {name}, which no import and no exercise cell defines. "
            f'Give the cell that defines {name} the header tags=["answers"].'
        )
    header = (
        "# mypy: ignore-errors\n"
        f'"""Answers of lab {lesson.number} ({lesson.name}).\n\n'
        f'Generated from {lesson.label} by `make release`; do not edit.\n"""'
    )
    used = {given[name] for name in needed}
    sections = ["\n".join(_merged(lines)) for lines in _sections(sorted(used, key=_place))]
    return "\n\n\n".join(["\n\n".join([header, *sections]), *body]) + "\n"


def make_index(lessons: Sequence[Lesson]) -> str:
    """Return the text of ddpkit/answers/__init__.py."""
    names = sorted((name, lesson.number) for lesson in lessons for name in lesson.exercises)
    entries = "".join(f'    "{name}": "lab{number}",\n' for name, number in names)
    labs = "".join(
        f'    "lab{lesson.number}": {_titles(lesson)},\n' for lesson in lessons if lesson.summary
    )
    tables = [f"{{\n{rows}}}" if rows else "{}" for rows in (entries, labs)]
    return _INDEX.replace("{exercises}", tables[0]).replace("{labs}", tables[1])


def _titles(lesson: Lesson) -> str:
    """Return a lab's row of `TITLES` as Python: the stem of the notebook, and the minutes."""
    return f'("{lesson.stem}", "{lesson.summary[SUMMARY.index("minutes")]}")'


_INDEX = '''"""The kit's answers, by the name of the exercise.

Generated from solutions/*.py by `make release`; do not edit.
"""

from importlib import import_module
from typing import Any

LABS: dict[str, str] = {exercises}

# The stem of each lab's notebook, and the minutes that it takes.
TITLES: dict[str, tuple[str, str]] = {labs}


def get(name: str) -> Any:
    """Return the kit's answer to an exercise, a function or a class. Raises KeyError."""
    return getattr(import_module(f"{__name__}.{LABS[name]}"), name)
'''


def _given(lesson: Lesson) -> dict[str, str]:
    """Return the imports and carried answers of a lesson: name -> statement for the module."""
    given: dict[str, str] = {}
    for cell in lesson.cells:
        if cell.kind == "code":
            for node in ast.parse(cell.solved).body:
                given.update(_names_given(node))
    return given


def _names_given(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            bound = alias.asname or alias.name.partition(".")[0]
            one = [ast.alias(alias.name, alias.asname)]
            if isinstance(node, ast.Import):
                yield bound, ast.unparse(ast.Import(one))
            else:
                yield bound, ast.unparse(ast.ImportFrom(node.module, one, node.level))
    match node:
        case ast.Assign(
            targets=[ast.Name(name)],
            value=ast.Call(func=ast.Name("carry"), args=[ast.Constant(str(exercise))]),
        ):
            yield name, f'{name} = get("{exercise}")'


def _free_names(source: str) -> set[str]:
    """Return the global names that the source uses without a definition or an import."""
    module = symtable.symtable(source, "answers", "exec")
    made = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned()}
    made |= {symbol.get_name() for symbol in module.get_symbols() if symbol.is_imported()}
    used: set[str] = set()
    tables = [module]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {
            symbol.get_name()
            for symbol in table.get_symbols()
            if symbol.is_referenced() and (table is module or symbol.is_global())
        }
    return used - made - set(dir(builtins)) - _MODULE_NAMES


def _place(statement: str) -> tuple[int, bool, str]:
    """Return the sort key of a statement, in ruff's order of imports.

    The order is: standard library, third-party packages, ddpkit; carried answers come last.
    """
    words = statement.split()
    if words[0] not in ("import", "from"):
        return 3, False, statement
    package = words[1].partition(".")[0]
    section = 0 if package in sys.stdlib_module_names else 2 if package == "ddpkit" else 1
    return section, words[0] == "from", statement


def _sections(statements: Sequence[str]) -> Iterator[list[str]]:
    """Return the statements by section of ruff's order.

    If there are carried answers, the import of `get`, which they call, is added.
    """
    parts: list[list[str]] = [[], [], [], []]
    for statement in statements:
        parts[_place(statement)[0]].append(statement)
    if parts[3]:
        parts[2] = sorted([*parts[2], "from ddpkit.answers import get"])
    return (part for part in parts if part)


def _merged(statements: Sequence[str]) -> Iterator[str]:
    """Yield statements; adjacent `from a import b` and `from a import c` are merged."""
    for start, group in groupby(statements, key=lambda line: line.partition(" import ")[0]):
        first, *others = group
        yield ", ".join([first, *(line.removeprefix(f"{start} import ") for line in others)])
