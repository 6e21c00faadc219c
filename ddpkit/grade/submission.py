"""`read`: reads a submitted notebook, which is not trusted.

A file that is no notebook is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpkit.errors import GradeError
from ddpkit.text import REASON

MOST_BYTES = 16 << 20
MOST_CELLS = 2000
MOST_SOURCE = 100_000  # characters of one cell
MOST_SOURCES = 2_000_000  # characters of all cells


class Refused(GradeError):
    """Raised for a file that the grader refuses.

    The message is the reason, as a clause without a full stop.
    """


@dataclass(frozen=True)
class SubmittedCell:
    """A code cell of a submission: its source, and the id and metadata that mark its exercise."""

    id: str
    exercise: str  # name of the exercise in the cell's metadata; "" without one
    check: str
    source: str


@dataclass(frozen=True)
class Submission:
    """The code cells of a notebook, in order, and a digest of the file."""

    cells: tuple[SubmittedCell, ...]
    digest: str
    notes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()  # markdown cells


def read(path: Path) -> Submission:
    """Return the content of a submission.

    Raises Refused for a file that is no notebook or is too large.
    """
    data = _bytes(path)
    try:
        notebook = json.loads(data)
        repr(notebook)  # raises RecursionError here if the data are too deep for the code below
    except RecursionError:
        raise Refused("the JSON is nested too deep for a notebook") from None
    except (ValueError, MemoryError) as error:
        raise Refused(f"the file is not JSON: {str(error)[:REASON]}") from None
    if not isinstance(notebook, dict) or not isinstance(notebook.get("cells"), list):
        if isinstance(notebook, dict) and "worksheets" in notebook:
            raise Refused(
                "the notebook has the old nbformat 3: open it in Jupyter, and save it again"
            )
        raise Refused("the file is JSON but not a notebook")
    if notebook.get("nbformat") != 4:
        raise Refused(
            f"the notebook has nbformat {notebook.get('nbformat')!r:.20}; ddpkit reads nbformat 4"
        )
    if len(notebook["cells"]) > MOST_CELLS:
        raise Refused(
            f"the notebook has {len(notebook['cells'])} cells; at most {MOST_CELLS} are read"
        )
    cells = tuple(_cell(cell) for cell in notebook["cells"] if _is_a(cell, "code"))
    if sum(len(cell.source) for cell in cells) > MOST_SOURCES:
        raise Refused(f"the notebook's code has more than {MOST_SOURCES} characters")
    texts = tuple(
        _source(cell.get("source", ""))[:MOST_SOURCE]
        for cell in notebook["cells"]
        if _is_a(cell, "markdown")
    )
    notes = tuple(_notes(notebook, cells))
    return Submission(cells, hashlib.sha256(data).hexdigest(), notes, texts)


def digest(path: Path) -> str:
    """Return a digest of a submission's bytes. Raises Refused if the file cannot be read."""
    return hashlib.sha256(_bytes(path)).hexdigest()


def _bytes(path: Path) -> bytes:
    """Return the content of a regular file. Raises Refused for links, pipes and devices."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if os.path.islink(path):  # unlike Path.is_symlink, os.path.islink raises nothing
            raise Refused("the file is a symbolic link") from None
        raise Refused(f"the file cannot be opened: {error.strerror}") from None
    with os.fdopen(descriptor, "rb") as stream:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise Refused("the file is not a regular file")
        if not facts.st_size:
            raise Refused("the file is empty")
        if facts.st_size > MOST_BYTES:
            raise Refused(
                f"the file has {facts.st_size / 1e6:.0f} MB, but the grader reads at most "
                f"{MOST_BYTES >> 20} MB: clear the notebook's outputs, and save the notebook"
            )
        try:
            return stream.read(MOST_BYTES)
        except OSError as error:
            raise Refused(f"the file cannot be read: {error.strerror}") from None


def _is_a(cell: Any, kind: str) -> bool:
    return isinstance(cell, dict) and cell.get("cell_type") == kind


def _cell(cell: dict[str, Any]) -> SubmittedCell:
    metadata = cell.get("metadata")
    own = metadata.get("ddpkit") if isinstance(metadata, dict) else None
    roles = own if isinstance(own, dict) else {}
    return SubmittedCell(
        str(cell.get("id", "")),
        str(roles.get("exercise", "")),
        str(roles.get("check", "")),
        _source(cell.get("source", ""))[:MOST_SOURCE],
    )


def _source(value: object) -> str:
    """Return the text of a cell.

    nbformat allows a string or a list of lines; a forged file may have any value.
    """
    return "".join(map(str, value)) if isinstance(value, list) else str(value)


def _notes(notebook: dict[str, Any], cells: tuple[SubmittedCell, ...]) -> list[str]:
    notes = []
    metadata = notebook.get("metadata")
    spec = metadata.get("kernelspec") if isinstance(metadata, dict) else None
    name = str(spec.get("name", "")) if isinstance(spec, dict) else ""
    if name not in ("", "python3"):
        notes.append(
            f"The notebook names the kernel {name[:40]!r}, but ran with the course's Python."
        )
    ids = [cell.id for cell in cells if cell.id]
    if len(set(ids)) < len(ids):
        notes.append("Some cells of the notebook have the same id.")
    return notes
