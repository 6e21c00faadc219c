"""docs/glossary.md is true, and has every term of the labs and every word that is hard to guess."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project.source import ROOT, modules

TEXT = (ROOT / "docs" / "glossary.md").read_text("utf-8")
ROWS = re.findall(r"^\| \*\*([^|*]+)\*\* \| ([^|]+?) \| ([\w/.]+) \|$", TEXT, re.MULTILINE)
WORDS = {word for word, _, _ in ROWS}

# bold texts with such an end or such a beginning are labels, not terms
LABEL = re.compile(r"[.:,?]$|^(\d|You|Predict|In words|What|The way out|Is it|And|Where)\b")
# bold in labs 06 and 15: items of a list, and everyday words
NO_TERMS = {"the start", "the end", "input", "compute", "predict"}

# Names that a reader had to look up (issue 13): the code has none of them, unless the glossary
# explains the name.
OPAQUE = (
    *("lookout", "mourns", "is_next_of_kin", "last_words", "settle", "film", "stage", "scene"),
    *("strip", "places", "parts", "left_out", "told", "put", "wire"),
)


def test_there_are_words():
    assert len(WORDS) >= 30
    assert len(WORDS) == len(ROWS), "a word stands there twice"


def test_every_line_of_a_table_is_a_row():
    lines = [line for line in TEXT.splitlines() if line.startswith("| ")]
    assert len(lines) == len(ROWS) + TEXT.count("| word | meaning | home |")


def bold(lesson: str) -> Iterator[str]:
    """Yield the terms that the text cells of a lesson set in bold."""
    for cell in re.split(r"^# %%", lesson, flags=re.MULTILINE):
        if cell.startswith(" [markdown]"):
            text = " ".join(re.sub(r"^# ?", "", cell, flags=re.MULTILINE).split())
            found = re.findall(r"\*\*([^*`\]\[]+)\*\*", text)
            yield from (term for term in found if not LABEL.search(term))


LESSONS = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.stem[:2])
def test_a_term_of_a_lab_is_in_the_glossary(lesson: Path):
    """A bold term, or its singular, has a row, and its home is not in a later lab."""
    homes = {word.lower(): place for word, _, place in ROWS}
    for term in {term.lower() for term in bold(lesson.read_text("utf-8"))} - NO_TERMS:
        home = homes.get(term) or homes.get(term.removesuffix("s"))
        assert home, f"{lesson.name}: the glossary has no {term!r}"
        assert not home.startswith("solutions/") or home <= f"solutions/{lesson.name}", term


def test_the_collectives_of_the_labs_are_in_the_glossary():
    """PyTorch's names in the code of the labs: dist.all_gather is an all-gather."""
    code = "".join(path.read_text("utf-8") for path in LESSONS)
    single = ("_into_tensor", "_tensor", "_single", "_object", "_object_list", "_list")
    names = set(re.findall(r"dist\.((?:all|reduce|scatter|gather|broadcast|barrier)\w*)\(", code))
    for end in single:
        names = {name.removesuffix(end) for name in names}
    assert {"all_reduce", "all_gather", "broadcast", "reduce_scatter"} <= names
    assert {name.replace("_", "-") for name in names} - WORDS == set()


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
    """Yield the modules, classes, functions and fields of the package: (name, place)."""
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
