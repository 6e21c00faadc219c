"""Notebooks as plain JSON: made from a lesson, written byte for byte the same, compared.

nbformat is not asked here: it repairs what it reads (it renames double cell ids, for one), and a
check wants to see what is there. The layout of the text is nbformat's own, so JupyterLab saves an
unchanged notebook unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddpkit.authoring.lesson import Cell, Lesson, label
from ddpkit.errors import LessonError

Notebook = dict[str, Any]  # a notebook's JSON, format 4.5

_RESULTS = ("outputs", "execution_count")  # of a code cell; the rest is the lesson's


def make_lab(lesson: Lesson) -> Notebook:
    """The notebook that students open: answers blank, nothing executed."""
    return framed([_cell(cell, cell.blank) for cell in lesson.cells])


def make_solution(lesson: Lesson) -> Notebook:
    """The lab's cells, solved and not yet executed: `execute` adds the outputs."""
    return framed([_cell(cell, cell.solved) for cell in lesson.cells])


def to_text(notebook: Notebook) -> str:
    """The notebook as its file holds it."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def load(path: Path) -> Notebook:
    """The JSON of a notebook file, unrepaired.

    Raises LessonError: there is none, or it is no notebook.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LessonError(f"{label(path)} is missing.") from None
    except ValueError as error:
        raise LessonError(f"{label(path)} is not JSON: {error}.") from None
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list) or not all(isinstance(cell, dict) for cell in cells):
        raise LessonError(f"{label(path)} is JSON but not a notebook.")
    return dict(notebook)


def text_of(value: Any) -> str:
    """A text of nbformat: a string, or the list of its lines."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


def with_results(notebook: Notebook, executed: Notebook) -> Notebook | None:
    """The notebook with the outputs of an executed one that has the same code; None if it has not.

    What a kernel does depends on the code alone: the texts between may be others.
    """
    code, ran = _code(notebook), _code(executed)
    if [_without_results(cell) for cell in code] != [_without_results(cell) for cell in ran]:
        return None
    results = {cell["id"]: {key: cell[key] for key in _RESULTS if key in cell} for cell in ran}
    cells = [cell | results.get(cell["id"], {}) for cell in notebook["cells"]]
    return notebook | {"cells": cells}


def _code(notebook: Notebook) -> list[Notebook]:
    return [cell for cell in notebook["cells"] if cell.get("cell_type") == "code"]


def difference(found: Notebook, expected: Notebook) -> str | None:
    """The first thing, outputs aside, in which `found` is not `expected`; None: they agree."""
    cells = [_without_results(cell) for cell in found["cells"]]
    wanted = [_without_results(cell) for cell in expected["cells"]]
    for cell, want in zip(cells, wanted, strict=False):
        if cell != want:
            return _cell_difference(cell, want, wanted)
    if len(cells) < len(wanted):
        return f"cell {wanted[len(cells)]['id']} is missing"
    if len(cells) > len(wanted):
        return f"cell {cells[len(wanted)].get('id')} is not in the lesson"
    frame = {key: found[key] for key in found if key != "cells"}
    if frame != {key: expected[key] for key in expected if key != "cells"}:
        return "the metadata of the notebook differs"
    return None


def _cell_difference(cell: Notebook, want: Notebook, wanted: Sequence[Notebook]) -> str:
    if cell.get("id") == want["id"]:
        parts = [key for key in sorted(cell.keys() | want) if cell.get(key) != want.get(key)]
        return f"cell {want['id']} differs in its {', '.join(parts)}"
    if any(cell.get("id") == other["id"] for other in wanted):
        return f"cell {want['id']} is missing, or not in its place"
    return f"cell {cell.get('id')} stands where the lesson has cell {want['id']}"


def _without_results(cell: Notebook) -> Notebook:
    rest = {key: value for key, value in cell.items() if key not in _RESULTS}
    return {**rest, "source": text_of(cell.get("source", ""))}


def framed(cells: list[Notebook]) -> Notebook:
    """The cells as a notebook."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        # No versions here: they would change with the author's machine.
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(cell: Cell, source: str) -> Notebook:
    if cell.kind == "code":  # the two blank lines after a function fill half a screen here
        source = re.sub(r"\n{3,}", "\n\n", source)
    made: Notebook = {
        "cell_type": cell.kind,
        "id": cell.id,
        "metadata": _metadata(cell),
        "source": source.splitlines(keepends=True),
    }
    if cell.kind == "code":
        made |= {"execution_count": None, "outputs": []}
    return made


def _metadata(cell: Cell) -> dict[str, Any]:
    tags, own = list(cell.tags), {}
    if cell.exercise:
        tags, own = ["exercise", *tags], {"exercise": cell.exercise}
    elif cell.check:
        tags, own = ["nbval-check-output", *tags], {"check": cell.check}
    elif cell.guess:
        own = {"guess": cell.guess}
    return ({"ddpkit": own} if own else {}) | ({"tags": tags} if tags else {})
