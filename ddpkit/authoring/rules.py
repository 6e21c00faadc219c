"""Limits on the length of a lesson's cells, for students with half a screen."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ddpkit.authoring.lesson import Cell, Lesson

FIRST_CODE_LINES = 2
CODE_LINES = 15
ANSWER_LINES = 25
TEXT_WORDS = 80
SCRIPT_LINES = 20  # lines of a code block in a text cell
BLOCK = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def rule_problems(lesson: Lesson) -> Iterator[str]:
    """Yield a sentence for each cell, or code block in a text cell, that is above its limit."""
    code = [cell for cell in lesson.cells if cell.kind == "code"]
    for cell in lesson.cells:
        where = lesson.where(cell)
        if cell.kind == "markdown":
            yield from _too_long(where, words(cell.source), TEXT_WORDS, "words of text")
            for block in BLOCK.findall(cell.source):
                program = len(block.splitlines()) - 2
                yield from _too_long(where, program, SCRIPT_LINES, "lines of code in its text")
        elif cell.exercise:
            yield from _too_long(where, answer_lines(cell), ANSWER_LINES, "lines of answer")
        elif cell is code[0]:
            what = "lines, as the lesson's first code cell"
            yield from _too_long(where, lines(cell), FIRST_CODE_LINES, what)
        else:
            yield from _too_long(where, lines(cell), CODE_LINES, "lines of code")


def words(text: str) -> int:
    """Return the number of words in a text cell, without marks (`#`, `-`, `|`) and code blocks."""
    return sum(bool(re.search(r"\w", word)) for word in BLOCK.sub("", text).split())


def lines(cell: Cell) -> int:
    """Return the number of lines in a code cell, without blank lines."""
    return sum(bool(line.strip()) for line in cell.source.splitlines())


def answer_lines(cell: Cell) -> int:
    """Return the number of lines of code in the answer."""
    return sum(block.code_lines for block in cell.blocks)


def _too_long(where: str, found: int, most: int, what: str) -> Iterator[str]:
    if found > most:
        yield (
            f"{where} has {found} {what}; at most {most} are allowed. Shorten or split the cell, "
            "then run `make release`."
        )
