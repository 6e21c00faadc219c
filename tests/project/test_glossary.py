"""docs/glossary.md is true, and words that a stranger cannot guess are in it or gone."""

import ast
import functools
import re
from collections.abc import Iterator

import pytest

from tests.project.source import ROOT, modules

TEXT = (ROOT / "docs" / "glossary.md").read_text("utf-8")
ROWS = re.findall(r"^\| (?!word \|)([^|]+?) \| ([^|]+?) \| ([\w/.]+) \|$", TEXT, re.MULTILINE)
WORDS = {word for word, _, _ in ROWS}

# Names that a reader had to look up (issue 13): none is left, unless the glossary explains it.
OPAQUE = (
    *("lookout", "mourns", "is_next_of_kin", "last_words", "settle", "film", "stage", "scene"),
    *("strip", "places", "parts", "left_out", "told", "put", "wire"),
)


def test_there_are_words():
    assert len(WORDS) >= 30
    assert len(WORDS) == len(ROWS), "a word stands there twice"


@pytest.mark.parametrize(("word", "about", "place"), ROWS, ids=[row[0] for row in ROWS])
def test_a_word_is_used_where_the_glossary_says(word: str, about: str, place: str):
    assert about
    path = ROOT / place
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
    text = "\n".join(file.read_text("utf-8") for file in files)
    plain = re.escape(word).replace(r"\ ", r"[\s_]*")
    assert re.search(rf"(?<![a-z]){plain}(?![a-z])|{plain}e?s\b", text, re.IGNORECASE), path


@pytest.mark.parametrize("word", OPAQUE)
def test_an_opaque_name_is_explained_or_gone(word: str):
    if word in WORDS:
        return
    used = [place for name, place in names() if name.strip("_").lower() == word]
    assert used == []


@functools.cache
def names() -> tuple[tuple[str, str], ...]:
    return tuple(_names())


def _names() -> Iterator[tuple[str, str]]:
    """Names of modules, classes, functions and fields of the package, and where each stands."""
    for module, path in modules().items():
        if module.startswith("ddpkit.answers."):
            continue
        yield module.rpartition(".")[2], module
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            where = f"{module}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                yield node.name, where
            if isinstance(node, ast.ClassDef):
                fields = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
                yield from ((field.id, where) for field in fields if isinstance(field, ast.Name))
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                yield node.attr, where
