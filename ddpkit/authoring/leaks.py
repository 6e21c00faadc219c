"""Leaks: lines of the solution in a lab.

A generated lab has a leak only if a text quotes a line of the answer. A lab that an author has
worked in and saved may have a leak in a source, an output, the metadata or an attachment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpkit.authoring.lesson import Lesson
from ddpkit.authoring.notebook import Notebook

_LEAST = 12  # characters without spaces: "return total" is too short, "dist.barrier()" is enough


def secret_lines(lesson: Lesson) -> tuple[str, ...]:
    """Return the distinctive lines of a lesson's answers: long, and nowhere else in the lesson.

    A line quoted within a sentence of a text cell is public on purpose. A line of the answer on a
    separate line of a text cell (in a code block) is a leak.
    """
    answers = [_normal(line) for cell in lesson.cells for line in cell.answer]
    long = {line for line in answers if len(line.replace(" ", "")) >= _LEAST}
    public: list[str] = []
    for cell in lesson.cells:
        lines = [_normal(line) for line in cell.blank.splitlines()]
        public += lines if cell.kind == "code" else [ln for ln in lines if _bare(ln) not in long]
    given = "\n".join(public)
    return tuple(dict.fromkeys(line for line in answers if line in long and line not in given))


def leaks(lesson: Lesson, lab: Notebook) -> Iterator[str]:
    """Yield the place of each secret line in a lab, as `cell X, in its outputs: the line`."""
    secrets = secret_lines(lesson)
    for cell in lab["cells"]:
        for part, value in cell.items():
            for line in _found(secrets, value):
                yield f"cell {cell.get('id')}, in its {part}: `{line}`"
    for line in _found(secrets, {key: lab[key] for key in lab if key != "cells"}):
        yield f"the metadata of the notebook: `{line}`"


def _found(secrets: tuple[str, ...], value: object) -> Iterator[str]:
    text = "\n".join(_normal(line) for text in _texts(value) for line in text.splitlines())
    return (line for line in secrets if line in text)


def _texts(value: object) -> Iterator[str]:
    """Yield every string in a piece of JSON, also the keys; join the items of a list of strings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from _texts(inner)
    elif isinstance(value, list):
        if all(isinstance(inner, str) for inner in value):
            yield "".join(value)
        else:
            for inner in value:
                yield from _texts(inner)


def _normal(line: str) -> str:
    """Return the line with single spaces, and without the comment at the end."""
    code = re.split(r"\s{2,}#\s", line.strip())[0]
    return re.sub(r"\s+", " ", code).strip()


def _bare(line: str) -> str:
    """Return a line of Markdown without marks such as `*` and `>` at both ends."""
    return line.strip("`*->+ ")
