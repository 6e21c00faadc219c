"""The parts of a submission that people read: written answers, and the answers' code.

A result keeps these texts. They are copied during grading, in a separate process, so that no report
has to read a student's notebook again.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from ddpkit.grade.merge import Merged

MOST = 20_000  # characters kept of a text
# marks the paragraph of a lab that asks a question
ASKS = re.compile(r"\?|\*\*(Predict|Before you write)\b")


def written_answers(lab: Sequence[str], texts: Sequence[str]) -> list[tuple[str, str]]:
    """Return the texts that a student wrote in markdown cells, as (question, answer) in order.

    lab, texts  the markdown cells of the lab and of the submission

    A line that the lab does not have is the student's, in a new cell or below a question. The
    question is the lab's last paragraph above the line that asks something or is a heading.
    """
    # line of the lab -> its paragraph if that asks something or is a heading, otherwise ""
    asked: dict[str, str] = {}
    for text in lab:
        for paragraph in re.split(r"\n\s*\n", text):
            asks = ASKS.search(paragraph) or paragraph.lstrip().startswith("#")
            asked |= dict.fromkeys(
                map(str.strip, paragraph.splitlines()), paragraph if asks else ""
            )
    question, found = "", list[tuple[str, list[str]]]()
    for text in texts:
        for line in map(str.strip, text[:MOST].splitlines()):
            if line in asked:
                question = asked[line] or question
            elif not line:
                continue
            elif found and found[-1][0] == question:
                found[-1][1].append(line)
            else:
                found.append((question, [line]))
    return [(question, "\n".join(lines)[:MOST]) for question, lines in found]


def answers_code(merged: Merged) -> list[tuple[str, str]]:
    """Return (exercise, code) for each answer that is present, with the helpers that it calls.

    Comments, docstrings and layout are removed, so that programs that compare sources compare only
    code.
    """
    found = []
    code = functools.cache(plain_code)  # a helper belongs to many answers
    for name, count in merged.asked_after.items():
        if name in merged.blank:
            continue
        parts, left = list[str](), MOST
        for cell in merged.cells[:count]:
            if name in cell.exercises or (cell.label == "helper" and cell.is_needed):
                if text := code(cell.source):
                    parts.append(text)
                left -= len(text)
            if left <= 0:
                break
        found.append((name, "\n\n".join(parts)[:MOST]))
    return found


def plain_code(source: str) -> str:
    """Return code without comments, docstrings and layout. Texts that are no code do not change."""
    try:
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                _drop_docstring(node)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return source.strip()


def _drop_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    match node.body[0]:
        case ast.Expr(value=ast.Constant(value=str())):
            node.body[:1] = [] if len(node.body) > 1 else [ast.Pass()]
