"""Notebooks as plain JSON: made from a lesson, written reproducibly, and compared.

The module does not use nbformat. nbformat repairs a notebook while reading (for example, nbformat
renames duplicate cell ids), but a check must see the file unrepaired. The text has the layout of
nbformat's text, so JupyterLab saves an unchanged notebook without a difference.
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

_RESULTS = ("outputs", "execution_count")  # keys of a code cell that do not come from the lesson


def make_lab(lesson: Lesson) -> Notebook:
    """Return the notebook for students: answers blank, no cell executed."""
    return framed([_cell(cell, cell.blank) for cell in lesson.cells])


def make_solution(lesson: Lesson) -> Notebook:
    """Return the lab's cells, solved but not yet executed: `execute` adds the outputs."""
    return framed([_cell(cell, cell.solved) for cell in lesson.cells])


def to_text(notebook: Notebook) -> str:
    """Return the notebook as the text of a file."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def load(path: Path) -> Notebook:
    """Return the JSON of a notebook file, unrepaired.

    Raises LessonError if the file is missing or is not a notebook.
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


def text_of(value: object) -> str:
    """Return a text of nbformat as a string; nbformat also allows a list of lines."""
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


def with_results(notebook: Notebook, executed: Notebook) -> Notebook | None:
    """Return the notebook with the outputs of `executed`; None if the code cells differ.

    The outputs depend on the code cells alone, so the text cells may differ.
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
    """Return the first difference of `found` from `expected`, outputs ignored; None if equal."""
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
    """Return a notebook with the cells."""
    kernel = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        # The metadata has no versions, since versions would change with the author's machine.
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cell(cell: Cell, source: str) -> Notebook:
    if cell.kind == "code":  # one blank line between functions is enough in a notebook
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
