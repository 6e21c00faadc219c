"""Notebooks of a lab in which some answers are mutants: common mistakes of students, handed in."""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ddpkit.exercises import find
from ddpkit.exercises.sources import source_of
from ddpkit.grade.cellnames import names_in
from ddpkit.grade.questions import exercises_of
from ddpkit.grade.store import Result
from ddpkit.source import PACKAGE
from tests.grade.attacks import ROOT, answer, cell
from tests.labs.answers import Wrong, right_answers, wrong_answers

LOST = ("fail", "error", "deadlock", "timeout")  # statuses in which a mutant may end


@dataclass(frozen=True)
class Mutated:
    """A notebook, and the mutants in it by exercise; the other answers are right."""

    notebook: dict[str, Any]
    wrong: dict[str, Wrong]

    def mistakes(self, result: Result) -> Iterator[str]:
        """Yield a sentence for each grade that is not as it should be."""
        touched = set(self.wrong)
        for one in result.exercises:
            if one.name in self.wrong and one.earned >= one.points:
                yield f"{self.wrong[one.name]} gets all points"
            if one.name in self.wrong and one.status not in (
                "fail",
                "error",
                "deadlock",
                "timeout",
            ):
                yield f"{self.wrong[one.name]} ends in {one.status}"
            if not touched & needs(result.lab)[one.name] and one.earned != one.points:
                yield f"{one.name} is right and gets {one.earned} of {one.points}: {one.feedback}"


def mutated(lab: str) -> list[Mutated]:
    """Return notebooks that together contain each mutant of lab NN.

    All answers that a mutant calls are right, because two wrong answers may cancel: for example,
    one begins with the last rank's parameters, and the other always broadcasts from rank 0.
    """
    calls = needs(lab)
    left: dict[str, list[Wrong]] = {each.name: [] for each in exercises_of(lab)}
    for each in wrong_answers(lab):
        left[each.exercise].append(each)
    made = []
    while any(left.values()):
        wrong: dict[str, Wrong] = {}
        for name, mutants in left.items():
            apart = all(name not in calls[other] and other not in calls[name] for other in wrong)
            if mutants and apart:
                wrong[name] = mutants.pop(0)
        made.append(_mutated(lab, wrong))
    return made


def _mutated(lab: str, wrong: dict[str, Wrong]) -> Mutated:
    made = copy.deepcopy(solution(lab))
    for name, each in wrong.items():
        right = "".join(cell(made, f"answer-{name}")["source"])
        answer(made, name, f"{right}\n\n{wrong_source(each)}")
    return Mutated(made, wrong)


@functools.cache
def solution(lab: str) -> dict[str, Any]:
    (path,) = (ROOT / "solutions").glob(f"{lab}_*.ipynb")
    made: dict[str, Any] = json.loads(path.read_text())
    return made


@functools.cache
def needs(lab: str) -> dict[str, set[str]]:
    """Return exercise -> the exercise and all others of the lab that its answer calls."""
    names = {each.name for each in exercises_of(lab)}
    made = solution(lab)
    found = {
        name: {name} | names & names_in("".join(cell(made, f"answer-{name}")["source"])).needs
        for name in names
    }
    for _ in names:
        found = {name: set().union(*(found[each] for each in of)) for name, of in found.items()}
    return found


def of_other_makes(lab: str) -> list[dict[str, Any]]:
    """Return notebooks of lab NN with every right answer that is not the kit's, in cells of their
    own."""
    of: dict[str, list[str]] = {}
    for name, other in right_answers(lab):
        # students do not have the kit's answer
        if not uses_the_kits(lab, inspect.getsource(other)):
            of.setdefault(name, []).append(source_in_a_cell(name, other))
    made = [copy.deepcopy(solution(lab)) for _ in range(max(map(len, of.values())))]
    for name, sources in of.items():
        for notebook, source in zip(made, sources, strict=False):
            answer_cell = cell(notebook, f"answer-{name}")
            answer_cell["source"] = f"{''.join(answer_cell['source'])}\n\n{source}"
    return made


def uses_the_kits(lab: str, source: str) -> bool:
    """True if an answer to an exercise of lab NN uses the kit's answers to this lab."""
    taken = re.findall(r"answers\.get\(\"(\w+)\"", source)
    return f"lab{lab}." in source or any(find(name).lab == lab for name in taken)


def wrong_source(wrong: Wrong) -> str:
    """Return code that binds the exercise's name to a mutant, for a cell below the right answer."""
    return source_in_a_cell(wrong.exercise, wrong.make())


def source_in_a_cell(exercise: str, made: Any) -> str:
    """Return code that binds the exercise's name to an answer of these tests."""
    module = sys.modules.get(made.__module__)
    borrowed = _Borrowed(find(exercise).lab)
    path = _written_in(made)
    if module is not None:
        kept = _needed(path, {made.__name__}, borrowed)
    else:
        edit = borrowed.visit(ast.parse(str(source_of(made))))
        # an edited answer of the kit uses names that the notebook has
        if path.is_relative_to(PACKAGE):
            return f"{ast.unparse(edit)}\n\n{exercise} = {made.__name__}\n"
        used = {each.id for each in ast.walk(edit) if isinstance(each, ast.Name)}
        kept = [*_needed(path, used - {made.__name__}, borrowed), edit]
    body = ast.unparse(ast.Module(kept, []))
    made_by = f"_mutant_of_{exercise}"
    # save the right answer before its name is bound anew; another right answer may follow below
    given = f"{exercise}={exercise}" if exercise in borrowed.names else ""
    lines = textwrap.indent(f"{body}\nreturn {made.__name__}", "    ")
    return f"def {made_by}({given}):\n{lines}\n\n{exercise} = {made_by}()\n"


def _written_in(made: Any) -> Path:
    """Return the file of an answer; for an edited answer, the file of the original."""
    functions = [
        made,
        *filter(callable, vars(made).values()),
    ]  # methods of a class have the module's names
    spaces = (getattr(inspect.unwrap(each), "__globals__", None) for each in functions)
    return Path(next(space for space in spaces if space)["__file__"])


class _Borrowed(ast.NodeTransformer):
    """The kit's answers in a mutant: answers of the same lab stand above the mutant in the
    notebook."""

    def __init__(self, lab: str) -> None:
        self.lab, self.names = lab, set[str]()

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node:
            case ast.Call(ast.Attribute(ast.Name("answers"), "get"), [ast.Constant(str(name))]):
                if find(name).lab == self.lab:
                    return self._from_the_notebook(name)
        return self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if isinstance(node.value, ast.Name) and node.value.id == f"lab{self.lab}":
            return self._from_the_notebook(node.attr)
        return self.generic_visit(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module != f"ddpkit.answers.lab{self.lab}":
            return node
        assert all(each.asname is None for each in node.names)
        self.names |= {each.name for each in node.names}
        return ast.Pass()

    def _from_the_notebook(self, name: str) -> ast.Name:
        self.names.add(name)
        return ast.Name(name, ast.Load())


def _needed(path: Path, names: set[str], borrowed: _Borrowed) -> list[ast.stmt]:
    """Return the statements of a module of answers that these names need, in order.

    Imports from another such module are replaced by the statements: the sandbox has no tests.
    """
    tree, kept = ast.parse(path.read_text()), list[ast.stmt]()
    tree.body = [_plain(node) for node in tree.body]
    wanted, seen = set(names), set[str]()
    while new := wanted - seen:
        seen |= new
        for node in tree.body:
            if node not in kept and new & set(_bound(node)):
                kept.append(node if isinstance(node, ast.ImportFrom) else borrowed.visit(node))
                wanted |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return [
        each for node in tree.body if node in kept for each in _imported(node, wanted, borrowed)
    ]


def _imported(node: ast.stmt, wanted: set[str], borrowed: _Borrowed) -> list[ast.stmt]:
    """Return a statement, or the statements that replace an import from tests or from answers."""
    if not isinstance(node, ast.ImportFrom):
        return [node]
    aliases = [each for each in node.names if (each.asname or each.name) in wanted]
    module = str(node.module)
    if module.startswith("tests."):
        assert all(each.asname is None for each in aliases)
        path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
        return _needed(path, {each.name for each in aliases}, borrowed)
    return [borrowed.visit(ast.ImportFrom(module, aliases, 0))]


def _plain(node: ast.stmt) -> ast.stmt:
    """Return a statement without the decorators that put an answer into the registry."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        node.decorator_list = [each for each in node.decorator_list if not _registers(each)]
    return node


def _bound(node: ast.stmt) -> list[str]:
    """Return the names that a statement of a module binds."""
    match node:
        case ast.FunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Import() | ast.ImportFrom():
            return [each.asname or each.name.partition(".")[0] for each in node.names]
        case ast.Assign() | ast.AnnAssign():
            return [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    return []


def _registers(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).startswith(("wrong(", "right("))
