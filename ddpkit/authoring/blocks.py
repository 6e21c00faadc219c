"""Solution blocks: the lines of an exercise cell that students write.

    def twice(x):
        # BEGIN SOLUTION
        return 2 * x
        # END SOLUTION

The solved cell lacks the two markers. The blank cell has a single line in the place of the block:

        raise NotImplementedError("your code here: about 1 line")

A cell may hold several blocks (methods of a class). Each block becomes a separate `raise`.

A guess is a line such as `token_ms = 4 * 33.8  # ms`. The blank cell has dots for the value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.text import placeholder

BEGIN = "# BEGIN SOLUTION"
END = "# END SOLUTION"
# A misspelt marker would not mark a block, and the lab would show the answer.
_NEARLY = re.compile(r"#+\s*(begin|end)\s*[-_ ]\s*(the\s+)?solution", re.IGNORECASE)


class BlockError(ValueError):
    """A marker is out of place, on line `line` of the source (the first is 0)."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True)
class Block:
    """Lines `begin` to `end` of a cell (the first is 0), both markers included."""

    begin: int
    end: int
    indent: str
    code_lines: int

    @property
    def placeholder(self) -> str:
        """The line in the place of the block in the lab."""
        return self.indent + placeholder(self.code_lines)


def find_blocks(source: str) -> tuple[Block, ...]:
    """Return the solution blocks of a cell, in order. Raises BlockError for a misplaced marker."""
    lines = source.splitlines()
    blocks: list[Block] = []
    begin: int | None = None
    for number, line in enumerate(lines):
        marker = _marker(number, line)
        if marker == BEGIN:
            if begin is not None:
                raise BlockError(
                    number,
                    f"a second '{BEGIN}': the block in line {begin + 1} of the cell has no '{END}'",
                )
            begin = number
        elif marker == END:
            if begin is None:
                raise BlockError(number, f"'{END}' without a '{BEGIN}' before it")
            blocks.append(_block(lines, begin, number))
            begin = None
    if begin is not None:
        raise BlockError(begin, f"'{BEGIN}' without an '{END}' in its cell")
    return tuple(blocks)


def solved(source: str, blocks: Sequence[Block]) -> str:
    """Return the source without marker lines."""
    markers = {line for block in blocks for line in (block.begin, block.end)}
    return "\n".join(
        line for number, line in enumerate(source.splitlines()) if number not in markers
    )


def blank(source: str, blocks: Sequence[Block]) -> str:
    """Return the source with a `raise NotImplementedError` in the place of each block."""
    lines = source.splitlines()
    for block in reversed(blocks):
        lines[block.begin : block.end + 1] = [block.placeholder]
    return "\n".join(lines)


def inside(source: str, blocks: Sequence[Block]) -> list[str]:
    """Return the lines between the markers: the answer itself."""
    lines = source.splitlines()
    return [line for block in blocks for line in lines[block.begin + 1 : block.end]]


def guessed(source: str) -> str:
    """Return the name of the variable that a guess assigns; "" if the source is not a guess.

    A guess is a single line with a single assignment.
    """
    match ast.parse(source).body:
        case [ast.Assign(targets=[ast.Name(id=name)])] if "\n" not in source.strip():
            return name
    return ""


def unguessed(source: str) -> str:
    """Return a guess with dots in the place of the value."""
    value = ast.parse(source).body[0].value  # type: ignore[attr-defined]
    line = source.encode()  # the columns of ast count bytes
    return (line[: value.col_offset] + b"..." + line[value.end_col_offset :]).decode()


def is_code(line: str) -> bool:
    """True if a line is neither blank nor a comment."""
    return bool(line.strip()) and not line.strip().startswith("#")


def _marker(number: int, line: str) -> str | None:
    text = line.strip()
    if text in (BEGIN, END):
        return text
    if _NEARLY.search(line):
        raise BlockError(
            number, f"write the marker exactly as '{BEGIN}' or '{END}', alone on a line"
        )
    return None


def _block(lines: Sequence[str], begin: int, end: int) -> Block:
    code = [line for line in lines[begin + 1 : end] if is_code(line)]
    if not code:
        raise BlockError(begin, "no line of code between the markers")
    indents = {_indent(lines[begin]), _indent(lines[end]), _indent(code[0])}
    if len(indents) > 1:
        raise BlockError(begin, "indent both markers like the answer's first line")
    return Block(begin, end, indents.pop(), len(code))


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
