"""What a result keeps of a submission for people: what was written in words, and the answers' code.

It is taken while the submission is graded, in a process of its own, so that no report has to read a
stranger's notebook again.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence

from ddpkit.grade.merge import Merged

MOST = 20_000  # characters kept of a text
ASKS = re.compile(r"\?|\*\*(Predict|Before you write)\b")  # what is in a lab's question


def written_answers(lab: Sequence[str], texts: Sequence[str]) -> list[tuple[str, str]]:
    """What a student wrote in markdown cells: (question, answer), in order.

    lab, texts  the markdown cells of the lab and of the submission

    A line that the lab does not have is the student's, in a cell of its own or below the question.
    The question is the last paragraph of the lab above it that asks something, or its heading.
    """
    asked: dict[str, str] = {}  # line of the lab -> the question or heading that it belongs to
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
    """The code of each answer that is there: (exercise, code), with the helpers that it needs.

    Comments, docstrings and layout are gone, so that programs which compare sources see code alone.
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
    """Code without comments, docstrings and layout; as it is if it is no plain Python."""
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
