"""The cost of an exercise for its author: statements written by hand, by lab and kind.

    python -m benchmarks.statements [--markdown]

Prints for each lab the statements of its checks (cases and hints), its wrong answers and its right
answers, from the syntax tree: docstrings are left out, and a table is one statement. The last
column counts lines with code, because a table has many lines. The last row sums all labs.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

from ddpkit.exercises import exercises

ROOT = Path(__file__).parents[1]
KINDS = {  # kind of code -> patterns of its files
    "checks": ("ddpkit/checks/lab{lab}/*.py",),
    "wrong": ("tests/labs/lab{lab}/wrong_answers*.py",),
    "right": ("tests/labs/lab{lab}/right_answers*.py",),
}
NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING),
    *(tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}


def files(lab: str, kind: str) -> list[Path]:
    """Return the files of one kind of a lab."""
    return sorted(path for glob in KINDS[kind] for path in ROOT.glob(glob.format(lab=lab)))


def statements(source: str) -> int:
    """Return the number of statements, without docstrings; a definition is a statement too."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(_bare(source)))


def lines(source: str) -> int:
    """Return the number of lines with code, without comments and docstrings."""
    documented = {
        line
        for node in ast.walk(ast.parse(source))
        if (text := _docstring(node)) is not None
        for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)
    }
    used = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(used - documented)


def _bare(source: str) -> ast.AST:
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if (text := _docstring(node)) is not None:
            node.body.remove(text)  # type: ignore[attr-defined]
    return tree


def _docstring(node: ast.AST) -> ast.Expr | None:
    kinds = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    match node:
        case ast.AST(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_]):
            return text if isinstance(node, kinds) else None
    return None


def rows() -> Iterator[tuple[str, ...]]:
    """Yield the table, with the head first and the sum of all labs last."""
    yield ("lab", "exercises", *KINDS, "sum", "each", "lines")
    found = [each.lab for each in exercises().values()]
    totals: list[list[int]] = []
    for lab in sorted(set(found)):
        sources = [[path.read_text("utf-8") for path in files(lab, kind)] for kind in KINDS]
        counts = [sum(map(statements, each)) for each in sources]
        coded = sum(lines(each) for of_kind in sources for each in of_kind)
        totals.append([found.count(lab), *counts, sum(counts), coded])
        yield _row(lab, totals[-1])
    yield _row("all", [sum(column) for column in zip(*totals, strict=True)])


def _row(lab: str, numbers: Iterable[int]) -> tuple[str, ...]:
    count, *counts, total, coded = numbers
    return (lab, *map(str, [count, *counts, total, round(total / count), coded]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--markdown", action="store_true")
    table = list(rows())
    if parser.parse_args().markdown:
        rule = ["--"] * len(table[0])
        print("\n".join(f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]]))
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    main()
