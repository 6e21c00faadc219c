"""Checks read the data of errors and verdicts, and never their words.

A sentence for readers may change on any day, and a hint that looks into the sentence then says
nothing, or something wrong. Only `ddpkit.exercises.raised` reads the words of torch and gloo.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.project.source import PACKAGE

CHECKS = sorted((PACKAGE / "checks").rglob("*.py"))
SPOKEN = {"error", "exception", "verdict", "explanation", "trouble", "failed", "cause"}
WORDS = {"message", "args", "traceback", "summary", "details", "feedback", "printed", "output"}
TEXT_OF = {"str", "repr", "format", "ascii"}


def searches(source: str) -> Iterator[str]:
    """Yield every place of a check that uses the words of an error, a verdict or an explanation."""
    for node in ast.walk(ast.parse(source)):
        where = f"line {getattr(node, 'lineno', 0)}: {ast.unparse(node)[:60]}"
        match node:
            case ast.Import(names=names) if any(each.name == "re" for each in names):
                yield where
            case ast.ImportFrom(module=str(module)) if module.endswith((".explain", ".verdict")):
                yield where
            case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in TEXT_OF:
                if _mentioned(first) & SPOKEN:
                    yield where
            case ast.FormattedValue(value=value) if _mentioned(value) & SPOKEN:
                yield where
            case ast.Attribute(value=value, attr=attr) if attr in WORDS:
                if _mentioned(value) & SPOKEN:
                    yield where


def _mentioned(node: ast.AST) -> set[str]:
    """Return the names and attributes in an expression: `s.error` mentions both."""
    names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return names | {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_check_reads_no_prose(path):
    assert list(searches(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        'lambda s: "wait in send" in str(s.error)',
        'f"{error}".startswith("RankError")',
        "import re",
        "from ddpkit.exercises.explain import explain",
        "s.error.args[0]",
        "verdict.cases[0].details",
        "seen.error.message",
    ],
)
def test_a_search_is_found(source):
    assert list(searches(source))


@pytest.mark.parametrize(
    "source", ["s.error and s.kind == 'no view'", "s.stuck == 'send'", "str(s.sent)", "s.got.shape"]
)
def test_data_may_be_read(source):
    assert list(searches(source)) == []
