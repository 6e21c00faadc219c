"""Grading of a student's own notebook at home, as the grader would grade it.

The cells, the questions and the judgement are those of the grader. The inputs come from a fresh
seed that is not secret, so expected values are shown. On a machine with bubblewrap the notebook
runs in the grader's sandbox, otherwise in the student's own account.
"""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.exercises.exercise import exercises
from ddpkit.exercises.keep import load
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.attempt import InfraError, grade
from ddpkit.grade.cellnames import names_in
from ddpkit.grade.course import lab_of, note_on_name, practice_course
from ddpkit.grade.merge import Merged
from ddpkit.grade.sandbox import levels
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.sandbox.own_account import OwnAccount
from ddpkit.grade.score import Score
from ddpkit.grade.submission import Refused, read

LATER_S = 30  # seconds from the limit of a case to the limit of the sandbox


@dataclass(frozen=True)
class Practised:
    """The result of grading a student's own notebook with the inputs of one seed."""

    lab: str
    scores: tuple[Score, ...]
    notes: tuple[str, ...]


def practise(notebook: Path, labs: Path, kept: Path, seed: str, limit: float) -> Practised:
    """Return the result of grading a student's own `notebook`, with inputs drawn from `seed`.

    labs   the folder of the labs as they are handed out
    kept   the folder of the student's earlier answers, for exercises that the kit does not answer
    seed   any text
    limit  seconds that a cell or a case may take

    Raises GradeError if the file is no notebook of a lab, or if Jupyter does not start.
    """
    try:
        submission = read(notebook)
    except Refused as error:
        raise GradeError(f"{notebook} is not graded: {error}.") from None
    lab = lab_of(submission)
    if lab is None:
        raise GradeError(f"{notebook} answers no exercise of any lab.")
    box = levels.sandbox_for if levels.level() == levels.BWRAP else OwnAccount
    with tempfile.TemporaryDirectory(prefix="ddpkit-", ignore_cleanup_errors=True) as folder:
        work = Path(folder) / "work"
        work.mkdir()
        course = practice_course(labs, lab, Seed(seed), Path(folder))
        _carry_along(kept, course.package)
        merged = course.merged(submission)
        try:
            limits = Limits(cell_s=limit + LATER_S, case_s=limit)
            scores, notes = grade(course, merged, work, limits, box)
        except InfraError as error:
            raise GradeError(f"The notebook could not be run: {error}") from error
    if any(one.earned < one.points for one in scores) and _carries(merged):
        notes.append(
            "Here carry(...) returns the kit's version of earlier answers, as in the grader. If "
            "the lab needs your own version, copy your version into the notebook."
        )
    return Practised(lab, tuple(scores), (*note_on_name(notebook.name, lab), *notes))


def _carries(merged: Merged) -> bool:
    """True if a cell that the grader runs calls `carry`."""
    return any("carry" in names_in(cell.source).calls for cell in merged.cells)


def _carry_along(kept: Path, package: Path) -> None:
    """Add the student's earlier answers to the sandbox's copy of ddpkit, for `carry`.

    The grader's ddpkit has answers to all earlier labs; a student's ddpkit may not have them.
    """
    answers, known = package / "answers", exercises()
    added = {}
    for path in sorted(kept.glob("*.py")):
        name, text = path.stem, path.read_text("utf-8", errors="replace")
        if name not in known or (answers / f"lab{known[name].lab}.py").exists():
            continue
        with suppress(Exception):  # like `carry`, skip a file that does not load
            load(name, text, path)
            (answers / f"kept_{name}.py").write_text(text, "utf-8")
            added[name] = f"kept_{name}"
    with (answers / "__init__.py").open("a", encoding="utf-8") as index:
        index.write(f"\nLABS |= {added!r}\n")
