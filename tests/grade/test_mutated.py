"""The notebooks with wrong answers: they fail by the mutant, not by a NameError."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator
from functools import cache

import pytest

from tests.grade.mutated import of_other_makes, solution, wrong_source
from tests.labs.answers import labs, wrong_answers


def bound(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a piece of code binds at its top level."""
    return {
        each.get_name()
        for each in table.get_symbols()
        if each.is_assigned() or each.is_imported() or each.is_namespace()
    }


def free(table: symtable.SymbolTable) -> Iterator[str]:
    """Yield the names that a piece of code, with its inner functions, takes from outside."""
    for each in table.get_symbols():
        at_the_top = table.get_type() == "module" and each.get_name() not in bound(table)
        if each.is_referenced() and (at_the_top or each.is_global()):
            yield each.get_name()
    for child in table.get_children():
        yield from free(child)


def names_of(lab: str) -> set[str]:
    """Return the names that the cells of lab NN's notebook bind, and the builtins."""
    cells = (each for each in solution(lab)["cells"] if each["cell_type"] == "code")
    sources = ("".join(each["source"]) for each in cells)
    plain = (each for each in sources if not each.startswith("%"))
    return set(dir(builtins)).union(
        *(bound(symtable.symtable(each, "cell", "exec")) for each in plain)
    )


def missing(source: str, there: set[str]) -> set[str]:
    table = symtable.symtable(source, "cell", "exec")
    return set(free(table)) - bound(table) - there


def brought(source: str) -> set[str]:
    """Return the modules that a piece of code imports, and the names imported from modules."""
    found = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            found |= {str(node.module)} | {f"{node.module}.{each.name}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found


@cache
def wrong_sources(lab: str) -> dict[str, str]:
    """Return every wrong answer of lab NN as handed-in source."""
    return {str(each): wrong_source(each) for each in wrong_answers(lab)}


@pytest.mark.parametrize("lab", labs())
def test_wrong_answer_imports_nothing_that_a_sandbox_has_not(lab: str) -> None:
    """The answers of a lab, and these tests, are not in the sandbox while the lab is graded."""
    hidden = (f"ddpkit.answers.lab{lab}", "tests")
    found = {name: brought(source) for name, source in wrong_sources(lab).items()}
    assert {name: one for name, all in found.items() for one in all if one.startswith(hidden)} == {}


@pytest.mark.parametrize("lab", labs())
def test_wrong_answer_finds_all_names_that_it_uses(lab: str) -> None:
    there = names_of(lab)
    found = {name: missing(source, there) for name, source in wrong_sources(lab).items()}
    assert found
    assert {name: names for name, names in found.items() if names} == {}


@pytest.mark.parametrize("lab", labs())
def test_right_answer_of_another_make_does_too(lab: str) -> None:
    there = names_of(lab)
    sources = [
        "".join(cell["source"])
        for notebook in of_other_makes(lab)
        for cell in notebook["cells"]
        if cell["cell_type"] == "code" and not "".join(cell["source"]).startswith("%")
    ]
    assert sources
    assert [names for each in sources if (names := missing(each, there))] == []


def test_missing_name_is_seen() -> None:
    assert missing("def f(x):\n    return helper(x) + y\n", {"y"}) == {"helper"}
