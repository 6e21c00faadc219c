"""A lab, ready to be graded: its cells, its exercises and its questions.

The questions' inputs are drawn from the secret seed.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import hmac
import os
import re
import secrets
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.exercises.exercise import Exercise, exercises
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.cellnames import as_python, names_in
from ddpkit.grade.freshness import digest_of
from ddpkit.grade.look import used_in
from ddpkit.grade.merge import Merged, merge
from ddpkit.grade.questions import SealedCase, exercises_of, questions
from ddpkit.grade.sandbox import base
from ddpkit.grade.submission import Submission, SubmittedCell, read

VERSION = "1"  # version of the questions: a new version draws new inputs


class StillOpen(GradeError):
    """Raised for a lab that cannot be graded yet: its cells contain an answer of an open lab."""


@dataclass(frozen=True)
class Course:
    """A lab that is ready to be graded."""

    lab: str
    cells: tuple[SubmittedCell, ...]
    exercises: tuple[Exercise, ...]
    questions: dict[str, list[SealedCase]]  # exercise's name -> questions
    package: Path  # the copy of ddpkit for the sandbox
    solution: Path
    key: str  # digest that changes whenever a score could change; "" in practice
    texts: tuple[str, ...] = ()  # markdown cells
    usual: frozenset[str] = (
        frozenset()
    )  # machinery in the lab's own answers, which `look` therefore does not report

    @property
    def names(self) -> list[str]:
        """The names of the lab's exercises, in order."""
        return [each.name for each in self.exercises]

    def merged(self, submission: Submission) -> Merged:
        """Return the submission in the form that the grader runs, merged into the lab's cells."""
        return merge(self.cells, self.names, submission)


def open_course(root: Path, lab: str, secret: bytes, work: Path, opened: str = "") -> Course:
    """Return the course of lab NN, with its questions and a copy of ddpkit for its sandboxes.

    root    the checkout, with the folders labs/ and solutions/
    work    the folder for the copy
    opened  the first lab that is still open ("03"); "" stands for lab NN

    Raises GradeError if the lab or its solution is missing. Raises StillOpen if the lab's cells
    contain an answer of a lab that is still open.
    """
    seed = Seed(hmac.new(secret, f"{lab}/{VERSION}".encode(), "sha256").hexdigest(), secret=True)
    given, solution = _file(root, "labs", lab), _file(root, "solutions", lab)
    found = tuple(exercises_of(lab))
    asked = {each.name: questions(each, seed) for each in found}
    lesson = read(given)
    _require_closed(lab, lesson, opened or lab)
    digest = hashlib.sha256(seed.text.encode() + VERSION.encode())
    for path in (given, solution):
        digest.update(path.read_bytes())
    digest.update(digest_of(lab, (cell.source for cell in lesson.cells)).encode())
    digest.update(min(lab, opened or lab).encode())
    package = base.copy_course(work, lab, opened)
    return Course(
        *(lab, lesson.cells, found, asked, package, solution, digest.hexdigest(), lesson.texts),
        used_in(merge(lesson.cells, [each.name for each in found], read(solution))),
    )


def _require_closed(lab: str, lesson: Submission, opened: str) -> None:
    """Raise StillOpen if the cells that lab NN hands out contain an answer of an open lab."""
    trees = (as_python(cell.source)[1] for cell in lesson.cells)
    for node in (node for tree in trees for node in ast.walk(tree)):
        match node:
            case ast.Call(func=ast.Name(id="carry"), args=[ast.Constant(value=str(name)), *_]):
                if _labs().get(name, "") >= opened:
                    raise StillOpen(
                        f"Lab {lab} needs {name} of lab {_labs()[name]}, which is still open. "
                        f"Grade lab {lab} when lab {_labs()[name]} is over, with --open {lab} or "
                        "a later lab."
                    )


def practice_course(labs: Path, lab: str, seed: Seed, work: Path) -> Course:
    """Return lab NN in the folder `labs` as a course, with a seed that is not secret.

    The folder has no solution, so no test shows here that an answer can get all points. Raises
    GradeError if the folder has no such lab.
    """
    found = tuple(exercises_of(lab))
    asked = {each.name: questions(each, seed) for each in found}
    given = _file(labs.parent, labs.name, lab)
    return Course(lab, read(given).cells, found, asked, base.copy_course(work, lab), given, "")


def _file(root: Path, folder: str, lab: str) -> Path:
    found = sorted((root / folder).glob(f"{lab}_*.ipynb"))
    if not found:
        raise GradeError(f"There is no {folder}/{lab}_*.ipynb in {root}: run `make release`.")
    return found[0]


def read_secret(path: Path) -> bytes:
    """Return the course's secret from a file.

    If the file is missing, it is made, readable by its owner only. Raises GradeError if the secret
    has fewer than 16 characters, or if the file cannot be read or made.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
                stream.write(secrets.token_hex(32) + "\n")
        secret = path.read_bytes().strip()
    except OSError as error:
        raise GradeError(f"{path} cannot be read or made: {error.strerror}.") from error
    if len(secret) < 16:
        raise GradeError(f"The secret in {path} is too short: it needs 16 characters or more.")
    return secret


def note_on_name(name: str, lab: str) -> list[str]:
    """Return a note if the file's name begins with the number of a different lab."""
    number = re.match(r"(\d\d)_", name.rpartition("/")[2])
    if number is None or number[1] == lab or number[1] not in _labs().values():
        return []
    return [f"The file's name begins with {number[1]}, but the notebook was graded as lab {lab}."]


@functools.cache
def points_of(lab: str) -> float:
    """Return the points of a lab; 0 for a number that is no lab."""
    return float(sum(one.points for one in exercises().values() if one.lab == lab))


@functools.cache
def _labs() -> dict[str, str]:
    return {name: one.lab for name, one in exercises().items()}


def lab_of(submission: Submission) -> str | None:
    """Return the lab to which most cells of a submission belong; None if unknown.

    The metadata and the id of a cell show the cell's exercise. Names that cells bind count only if
    no cell has such a mark, because a student may name a variable like another lab's exercise.
    """
    labs, marked, bound = _labs(), Counter[str](), Counter[str]()
    for cell in submission.cells:
        marks = {cell.exercise, cell.id.removeprefix("answer-")}
        marked.update(labs[name] for name in marks & labs.keys())
        bound.update(labs[name] for name in set(names_in(cell.source).binds) & labs.keys())
    for counts in (marked, bound):
        if counts:
            return max(sorted(counts), key=lambda lab: counts[lab])
    return None
