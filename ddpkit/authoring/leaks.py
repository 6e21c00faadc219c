"""Lines of the solution that a lab holds.

A generated lab does not, unless a text quotes one; a lab that someone has worked in and saved may,
in a source, in an output, in the metadata or in an attachment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from ddpkit.authoring.lesson import Lesson
from ddpkit.authoring.notebook import Notebook

_LEAST = 12  # characters that are no space: "return total" says little, "dist.barrier()" enough


def secret_lines(lesson: Lesson) -> tuple[str, ...]:
    """The distinctive lines of a lesson's answers: long enough, and nowhere else in the lesson.

    A line that a text cell mentions within a sentence is given away on purpose. One that stands
    there as a line of its own (a code block) is a leak.
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
    """Where a lab holds a secret line, each as "cell X, in its outputs: `the line`"."""
    secrets = secret_lines(lesson)
    for cell in lab["cells"]:
        for part, value in cell.items():
            for line in _found(secrets, value):
                yield f"cell {cell.get('id')}, in its {part}: `{line}`"
    for line in _found(secrets, {key: lab[key] for key in lab if key != "cells"}):
        yield f"the metadata of the notebook: `{line}`"


def _found(secrets: tuple[str, ...], value: Any) -> Iterator[str]:
    text = "\n".join(_normal(line) for text in _texts(value) for line in text.splitlines())
    return (line for line in secrets if line in text)


def _texts(value: Any) -> Iterator[str]:
    """Every string in a piece of JSON, keys too; a list of strings is one text."""
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
    """The line with single spaces, and without the comment at its end."""
    code = re.split(r"\s{2,}#\s", line.strip())[0]
    return re.sub(r"\s+", " ", code).strip()


def _bare(line: str) -> str:
    """A line of Markdown without the marks around it."""
    return line.strip("`*->+ ")
