"""The student's answers in the course's lab: which cells run, and in which order.

Only what the answers need is taken from a submission: the answers, and cells of the student's own
that define a name that the answers use. The lab's demonstrations do not run, and its check cells
are replaced by the grader's questions; so it does not matter what became of them.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from ddpkit.exercises.sources import annotation_names, needed_names
from ddpkit.grade.submission import Submission, SubmittedCell
from ddpkit.text import BLANK, REASON


@dataclass(frozen=True)
class PlannedCell:
    """A cell to run before the questions."""

    source: str
    label: str  # what a message calls it: an exercise, or "helper"
    exercise: str = ""


@dataclass
class Merged:
    """What runs of a submission, and which of its answers do not."""

    cells: list[PlannedCell] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # exercises without an answer
    broken: dict[str, str] = field(default_factory=dict)  # exercise -> its syntax error
    blank: set[str] = field(default_factory=set)  # exercises as they were handed out
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CellNames:
    """Names at the top level of a cell's code."""

    binds: frozenset[str] = frozenset()
    changes: frozenset[str] = frozenset()  # stores into, or calls a method of
    needs: frozenset[str] = frozenset()
    error: str = ""


def merge(lab: Sequence[SubmittedCell], names: Sequence[str], submission: Submission) -> Merged:
    """Merge a submission into the code cells of its lab, which has exercises `names`."""
    merged = Merged(notes=list(submission.notes))
    answers: dict[int, str] = {}  # position in the submission -> exercise
    for name in names:
        position = _answer(name, submission.cells)
        if position is None:
            merged.missing.append(name)
        elif error := names_in(submission.cells[position].source).error:
            merged.broken[name] = error
        else:
            answers[position] = name
    given = [cell.source for cell in lab if not cell.exercise and not cell.check]
    known = {text.strip() for text in given}
    own = {
        position: cell.source
        for position, cell in enumerate(submission.cells)
        if position not in answers and not _is_check(cell) and cell.source.strip() not in known
        and cell.exercise not in names and cell.id.removeprefix("answer-") not in names
    }  # fmt: skip
    wanted = _needed(answers, submission.cells, [*map(names_in, given)], own)
    merged.cells = [PlannedCell(text, "given") for text in given if names_in(text).binds & wanted]
    for position, cell in enumerate(submission.cells):
        if position in answers:
            merged.cells.append(PlannedCell(cell.source, answers[position], answers[position]))
        elif (
            position in own
            and (names_in(cell.source).binds | names_in(cell.source).changes) & wanted
        ):
            merged.cells.append(PlannedCell(cell.source, "helper"))
    merged.blank = _blank(lab, submission.cells, answers, own.values())
    checks = {cell.check for cell in submission.cells}
    if set(names) - checks:
        merged.notes.append("Check cells are missing or changed; the course's were used.")
    return merged


def _blank(
    lab: Sequence[SubmittedCell],
    cells: Sequence[SubmittedCell],
    answers: dict[int, str],
    own: Iterable[str],
) -> set[str]:
    """Exercises whose cell is as it was handed out, and that no other cell completes."""
    handed_out = {cell.exercise: cell.source.strip() for cell in lab if cell.exercise}
    same = {
        name
        for position, name in answers.items()
        if cells[position].source.strip() == handed_out.get(name)
    }
    return same - {name for text in own for name in names_in(text).changes}


def _answer(name: str, cells: Sequence[SubmittedCell]) -> int | None:
    """The place of the answer among the cells: by id, else by metadata, else by what is defined.

    A cell that was left blank gives way to another that defines the name.
    """
    by_id = [n for n, cell in enumerate(cells) if cell.id == f"answer-{name}"]
    by_role = [n for n, cell in enumerate(cells) if cell.exercise == name]
    defining = [n for n, cell in enumerate(cells) if name in names_in(cell.source).binds]
    filled = [n for n in defining if BLANK not in cells[n].source]
    for found in (by_id, by_role):
        if good := [n for n in found if n in filled or names_in(cells[n].source).error]:
            return good[-1]
    return next((found[-1] for found in (filled, defining) if found), None)


def _is_check(cell: SubmittedCell) -> bool:
    return bool(cell.check) or cell.id.startswith("check-")


def _needed(
    answers: Iterable[int],
    cells: Sequence[SubmittedCell],
    given: Sequence[CellNames],
    own: dict[int, str],
) -> set[str]:
    """All names that the answers need, and what defines these needs."""
    wanted = {name for position in answers for name in names_in(cells[position].source).needs}
    while True:
        more = set(wanted)
        for code in given:
            if code.binds & wanted:
                more |= code.needs
        for code in map(names_in, own.values()):
            if (code.binds | code.changes) & wanted:
                more |= code.needs
        if more == wanted:
            return wanted
        wanted = more


@functools.lru_cache(maxsize=4096)
def names_in(source: str) -> CellNames:
    """Names that a cell binds, changes and needs; `error` says why nobody knows. Never raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            text = _python(source)  # a magic becomes a call
            tree = ast.parse(text)
            needs = needed_names(text) | annotation_names(text)
            binds, changes = _names(tree)
    except SyntaxError as error:
        return CellNames(error=f"line {error.lineno or 1}: {error.msg}")
    except Exception as error:  # a null byte, nesting without end, whatever a tokenizer raises
        return CellNames(error=f"line 1: {type(error).__name__}: {str(error)[:REASON]}")
    return CellNames(frozenset(binds), frozenset(changes), frozenset(needs))


def _names(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names that a cell binds at its top level, and those whose objects it changes."""
    binds: set[str] = set()
    changes: set[str] = set()
    for node in _top_level(tree.body):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                binds.add(name)
            case ast.ClassDef(name=name):
                binds.add(name)
            case ast.alias(name=name, asname=asname):
                binds.add(asname or name.partition(".")[0])
            case ast.Name(id=name, ctx=ast.Store()):
                binds.add(name)
            case ast.Attribute(ctx=ast.Store()) | ast.Subscript(ctx=ast.Store()):
                changes |= _base(node)
            case ast.Expr(value=ast.Call(func=ast.Attribute() as function)):
                changes |= _base(function)
    return binds, changes


def _python(source: str) -> str:
    from IPython.core.inputtransformer2 import TransformerManager

    return str(TransformerManager().transform_cell(source))  # type: ignore[no-untyped-call]


def _top_level(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """All nodes outside functions and classes, these themselves included."""
    for node in body:
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _top_level(ast.iter_child_nodes(node))


def _base(node: ast.AST) -> set[str]:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()
