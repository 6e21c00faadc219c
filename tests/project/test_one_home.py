"""Texts and widths that must be equal everywhere have one home: `ddpkit.text`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddpkit.text import BLANK, ERROR_LINE, FAIL, LINE, PASS
from tests.project.source import PACKAGE, ROOT, modules

WIDTHS = {72, 80, 88, 100, LINE, ERROR_LINE}
CUTTING = {"fill", "wrap", "shorten", "TextWrapper", "ljust", "rjust", "center", "cut", "under"}
FROM_TEXTWRAP = {"dedent", "indent"}  # both functions use no width


def hand_written() -> dict[str, Path]:
    return {
        name: path
        for name, path in modules().items()
        if name != "ddpkit.text" and not name.startswith("ddpkit.answers.")
    }


def strings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the string literals of a module, except docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    explained = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str()) if id(node) not in explained:
                yield node


def widths(tree: ast.AST) -> Iterator[ast.expr]:
    """Yield the numbers by which a line or a text is cut, filled or measured."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(slice=ast.Slice(upper=ast.expr() as upper)):
                yield upper
            case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)) if name in CUTTING:
                yield from node.args
                yield from (each.value for each in node.keywords)
            case ast.keyword(arg="width", value=value):
                yield value
            case ast.Compare(left=ast.Call(func=ast.Name(id="len"))):
                yield from node.comparators
            case ast.Assign(targets=targets, value=ast.expr() as value):
                if any(isinstance(t, ast.Name) and "WIDTH" in t.id.upper() for t in targets):
                    yield value


def found_in(source: str) -> list[str]:
    """Return the texts and widths in a module that `ddpkit.text` already has."""
    tree = ast.parse(source)
    found = [
        f"{node.lineno}: {shared!r}"
        for node in strings(tree)
        for shared in (BLANK, PASS, FAIL)
        if shared in str(node.value)
    ]
    for width in widths(tree):
        numbers = [each.value for each in ast.walk(width) if isinstance(each, ast.Constant)]
        found += [f"{width.lineno}: width {n}" for n in numbers if type(n) is int and n in WIDTHS]
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="textwrap", names=names):
                wrapping = {alias.name for alias in names} - FROM_TEXTWRAP
            case ast.Attribute(value=ast.Name(id="textwrap"), attr=name):
                wrapping = {name} - FROM_TEXTWRAP
            case _:
                continue
        found += [f"{node.lineno}: textwrap.{name}" for name in sorted(wrapping)]
    return found


def test_no_module_says_itself_what_text_says():
    said = [
        f"{path.relative_to(ROOT)}:{found}"
        for path in hand_written().values()
        for found in found_in(path.read_text(encoding="utf-8"))
    ]
    assert said == []


def test_the_answers_are_made_from_lessons_and_hold_no_blank():
    """The test above omits the answers because they are generated.

    No answer may be a blank cell.
    """
    answers = sorted((PACKAGE / "answers").glob("lab*.py"))
    assert answers
    assert [path.name for path in answers if BLANK in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    "source",
    [
        'raise NotImplementedError("your code here: about 1 line")',
        'assert message.startswith("your code here")',
        "print(f\"{'✓' if passed else '-'} done\")",
        "PASS, FAIL = '✓', '✗'",
        "WIDTH = 88",
        "line[:80]",
        "line[: 80 - 1]",
        "len(line) <= 100",
        "fill(text, 88)",
        "show(text, width=72)",
        "import textwrap\ntextwrap.fill(text, 120)",
        "from textwrap import shorten",
    ],
)
def test_a_second_home_is_found(source):
    assert found_in(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A blank says `your code here`, a check ✓."""',
        "rng.randrange(100)",
        "link = '100 Mbit/s'",
        "scale(DPI / 72)",
        "import textwrap\ntextwrap.dedent(source)",
    ],
)
def test_what_is_no_second_home_is_left_alone(source):
    assert found_in(source) == []
