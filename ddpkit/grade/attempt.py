"""`grade`: grades one submission, and runs sandboxes until every exercise has a result.

A cell that hangs or kills its sandbox is left out of the next run. So such a cell costs only the
points of its own exercise, and a cell outside the exercises costs nothing.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ddpkit.exercises.assess import Assessment, Status, until_one_ends
from ddpkit.grade import engine
from ddpkit.grade.course import Course
from ddpkit.grade.judging import Judge
from ddpkit.grade.merge import Merged, PlannedCell
from ddpkit.grade.questions import SealedCase
from ddpkit.grade.sandbox import levels
from ddpkit.grade.sandbox.base import Limits, Sandbox
from ddpkit.grade.score import (
    Score,
    left_blank,
    none,
    score,
    score_case,
)
from ddpkit.grade.turns import turn

# These cells bind no name, because a student's function may have any name, even `ask`.
PREPARE = '__import__("ddpkit.grade.inside.asking", fromlist=["prepare"]).prepare()'
ASK = '__import__("ddpkit.grade.inside.asking", fromlist=["ask"]).ask({key!r})'
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NBVALS = re.compile(r"(?m)^([^\S\n]*#(?:#|[^\S\n])*)(NBVAL_|PYTEST_VALIDATE_)")
LINE = re.compile(r"^-+> (\d+)", re.MULTILINE)  # the line at IPython's arrow in a traceback
WORDS = {
    "timeout": "it took longer than {limit:g} s, and was stopped",
    "exited": "it ended the Python process that it ran in (os._exit, a crash, or out of memory)",
    "flood": "it printed without end",
    "memory": "it used more than {memory} GB of memory",
    "disk": "it wrote more than {disk} MB into files",
    "processes": "it started too many processes",
    "threads": "it started too many threads",
    "files": "it opened too many files",
    "terminals": "it opened too many terminals",
    engine.BUSY: "it had not ended after {patience:g} s, nor when run again alone",
    "too long": "the whole notebook took longer than {whole:g} s",
}
# if a student's own cells have ended this many runs, only needed cells run
MOST_LEFT_OUT = 3
# reason of a run's end -> status; every other reason gives the status "error"
STATUS = {"timeout": "timeout", "exited": "exited", engine.BUSY: "timeout", "too long": "timeout"}
NEVER_BEGAN = (
    "with the notebook, the sandbox ended twice before the first cell; without it, the sandbox ran"
)


Step = PlannedCell | SealedCase


class InfraError(Exception):
    """Raised if the machine failed, not the student: the submission must be graded again."""


@dataclass
class _State:
    """The results of a submission that are known so far."""

    rows: dict[str, Assessment] = field(default_factory=dict)  # question's key -> assessment
    errors: dict[str, str] = field(default_factory=dict)  # exercise -> the error of its cell
    helpers: dict[str, None] = field(default_factory=dict)  # errors of the student's helper cells
    dropped: dict[str, tuple[str, str]] = field(default_factory=dict)  # exercise -> status, reason
    # positions in Merged.cells of cells that may not run again
    removed: set[int] = field(default_factory=set)
    judge: Judge = field(default_factory=Judge)
    ended_by_own: int = 0  # number of runs that ended in a cell without exercises
    notes: list[str] = field(default_factory=list)


def grade(
    course: Course,
    merged: Merged,
    work: Path,
    limits: Limits,
    sandbox_for: Callable[[Path, Path, Limits], Sandbox] = levels.sandbox_for,
) -> tuple[list[Score], list[str]]:
    """Return the scores of all exercises of the lab, in their order, and notes on the submission.

    merged       a submission, merged into the cells of the lab
    work         an empty folder, for the files of one sandbox after another
    sandbox_for  a function that makes the sandbox of a run

    Raises InfraError if the machine failed, so that the student's work cannot be judged.
    """
    state = _State(notes=list(merged.notes))
    answered = [name for name in course.names if _is_answered(name, merged)]
    until = time.monotonic() + limits.whole_s
    alone = False  # True after a failure that other sandboxes may have caused
    while asked := _open_questions(course, answered, state):
        steps = _steps(merged, asked, state)
        job = _job(work, steps)
        with turn(work.parent, alone=alone):
            outcome = engine.run(course.package, job, limits, 1 + len(steps), sandbox_for, until)
        _keep_claims(outcome, steps, state)
        if not outcome.why:
            break
        blamed = bool(outcome.stopped_at) and outcome.why != engine.INFRA
        if not blamed or (outcome.why == engine.BUSY and not alone):
            if alone:
                _never_began(course, work, limits, sandbox_for)
                _drop(answered, "exited", NEVER_BEGAN, state)
            alone = True
            continue
        _leave_out(outcome, steps, merged, state, limits)
        if outcome.why == "too long":
            _drop(answered, outcome.why, _words(outcome.why, limits), state)
    scores = [_score(course, name, merged, state) for name in course.names]
    # if all exercises pass, the errors had no effect
    if any(one.status != "pass" for one in scores):
        state.notes += [
            f"A cell of your own raised an error, {words}. Names defined below are missing."
            for words in state.helpers
        ]
    return scores, state.notes


def _never_began(
    course: Course,
    work: Path,
    limits: Limits,
    sandbox_for: Callable[[Path, Path, Limits], Sandbox],
) -> None:
    """Run a sandbox without the student's cells, after two sandboxes ended before the first cell.

    Raises InfraError if this sandbox fails too, because then the machine is at fault.
    """
    with turn(work.parent, alone=True):
        outcome = engine.run(course.package, _job(work, []), limits, 1, sandbox_for)
    if outcome.why:
        raise InfraError(outcome.log[-400:] or "the sandbox did not start")


def _drop(names: Iterable[str], why: str, words: str, state: _State) -> None:
    """Ask no more questions of the exercises `names`, and store the reason for the score."""
    for name in names:
        state.dropped.setdefault(name, (STATUS.get(why, "error"), words))


def _words(why: str, limits: Limits) -> str:
    return WORDS[why].format(
        limit=limits.cell_s,
        memory=limits.memory >> 30,
        disk=limits.disk >> 20,
        patience=engine.PATIENCE * limits.cell_s,
        whole=limits.whole_s,
    )


def _is_answered(name: str, merged: Merged) -> bool:
    return name not in {*merged.missing, *merged.broken, *merged.blank}


def _open_questions(course: Course, names: Sequence[str], state: _State) -> list[SealedCase]:
    return [
        question
        for name in names
        if name not in state.dropped
        for question in course.questions[name]
        if question.key not in state.rows
    ]


def _steps(merged: Merged, asked: Sequence[SealedCase], state: _State) -> list[Step]:
    """Return the cells and questions of a run, in order.

    The questions of an exercise come after its cells. Cells after the last question are left out,
    because no result depends on them.
    """
    last = max(merged.asked_after[question.exercise] for question in asked)
    steps: list[Step] = []
    for place in range(last + 1):
        steps += [each for each in asked if merged.asked_after[each.exercise] == place]
        if place < last and place not in state.removed:
            steps.append(merged.cells[place])
    return steps


def _job(work: Path, steps: Sequence[Step]) -> Path:
    """Write the notebook and the questions into the folder that the sandbox can read."""
    job = work / "job"
    shutil.rmtree(job, ignore_errors=True)
    (job / "questions").mkdir(parents=True)
    stops, labels, sources = {}, {}, [PREPARE]
    for step in steps:
        if isinstance(step, PlannedCell):
            labels[step.source] = step.label
            sources.append(step.source)
            continue
        (job / "questions" / step.key).write_bytes(step.pickled)
        sources.append(ASK.format(key=step.key))
        if step.case.stop_if:
            stops[step.key] = step.case.stop_if
    (job / "questions" / "stops.json").write_text(json.dumps(stops))
    (job / "questions" / "labels.json").write_text(json.dumps(labels))
    (job / "graded.ipynb").write_text(json.dumps(_notebook(sources)))
    return job


def _notebook(sources: Sequence[str]) -> dict[str, Any]:
    cells: list[dict[str, Any]] = [
        {
            "cell_type": "code",
            "execution_count": None,
            "id": f"cell-{number}",
            "metadata": {},
            "outputs": [],
            # Change comments such as "# NBVAL_SKIP", because nbval would obey them.
            "source": NBVALS.sub(r"\1 ~\2", source),
        }
        for number, source in enumerate(sources)
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def _keep_claims(outcome: engine.SandboxRun, steps: Sequence[Step], state: _State) -> None:
    """Store the claims and errors of all cells that ended. Cell 0 only prepares the kernel."""
    claims = []
    for cell, step in enumerate(steps, start=1):
        error = outcome.errors.get(cell)
        if isinstance(step, PlannedCell):
            if error is not None:
                state.errors |= dict.fromkeys(step.exercises, _error_in_words(error))
                if step.label == "helper" and step.is_needed:
                    state.helpers[_error_in_words(error)] = None
        elif cell in outcome.claims:
            claims.append((step, outcome.claims[cell]))
        elif error is not None:
            state.rows[step.key] = score_case(step, None)
        elif not outcome.why:  # the cell ended without a claim
            state.rows.setdefault(step.key, score_case(step, None))
    state.rows |= state.judge.judged(claims)


def _error_in_words(error: Sequence[str]) -> str:
    name, message, traceback = (COLOUR.sub("", part) for part in error)
    lines = LINE.findall(traceback)
    where = f"line {lines[-1]}: " if lines else ""
    return f"{where}{name}: {message.strip().splitlines()[0] if message.strip() else ''}"


def _leave_out(
    outcome: engine.SandboxRun, steps: Sequence[Step], merged: Merged, state: _State, limits: Limits
) -> None:
    """Store which step ended the run and why, and leave this step out of the next run."""
    assert outcome.stopped_at is not None
    words = _words(outcome.why, limits)
    status, step = STATUS.get(outcome.why, "error"), steps[outcome.stopped_at - 1]
    if isinstance(step, SealedCase):
        state.rows[step.key] = Assessment(step.case, Status(status), got=words)
        state.dropped[step.exercise] = (status, "not tried, because an earlier case ended the run")
        return
    state.removed.add(next(n for n, cell in enumerate(merged.cells) if cell is step))
    for name in step.exercises:
        state.dropped[name] = (status, f"its cell: {words}")
    if not step.exercises:
        state.notes.append(f"A cell of your own was skipped: {words}.")
        state.ended_by_own += 1
    # each end in a student's own cell costs a new sandbox, and up to the time limit of a cell
    if state.ended_by_own >= MOST_LEFT_OUT:
        state.removed |= {n for n, cell in enumerate(merged.cells) if not cell.is_needed}
    if state.ended_by_own >= 3 * MOST_LEFT_OUT:
        state.removed |= {n for n, cell in enumerate(merged.cells) if cell.label == "helper"}


def _score(course: Course, name: str, merged: Merged, state: _State) -> Score:
    exercise = next(each for each in course.exercises if each.name == name)
    if name in merged.missing:
        return none(exercise, "not_run", f"There is no cell that defines {name}.")
    if name in merged.broken:
        return none(
            exercise, "error", f"The cell of {name} is not valid Python: {merged.broken[name]}."
        )
    if name in merged.blank:
        return score(exercise, [left_blank(question) for question in course.questions[name]])
    notes = (
        [f"The cell of {name} raised an error, {state.errors[name]}"]
        if name in state.errors
        else []
    )
    status, words = state.dropped.get(name, ("not_run", "not tried"))
    known = [state.rows.get(question.key) for question in course.questions[name]]
    if not any(known):
        return none(exercise, status, *notes, words)
    rows = [
        each or Assessment(question.case, Status(status), got=words)
        for each, question in zip(known, course.questions[name], strict=True)
    ]
    return score(exercise, until_one_ends(rows), notes)
