"""Grading of a class: each notebook in a separate process, several notebooks at a time."""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade import store
from ddpkit.grade.apart import grow_by
from ddpkit.grade.attempt import InfraError, grade
from ddpkit.grade.course import Course, StillOpen, note_on_name, open_course, points_of
from ddpkit.grade.found import HandedIn
from ddpkit.grade.quote import quoted
from ddpkit.grade.reading import plan_apart, read_apart
from ddpkit.grade.sandbox import levels
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.score import Score, none
from ddpkit.grade.store import Result
from ddpkit.grade.submission import Refused, Submission, digest, read
from ddpkit.text import visible

AGAIN = 2  # tries of a submission before the machine is blamed
MEMORY = 4 << 30  # bytes that judging one submission may take, on top of the grader's own memory


class Classroom:
    """The courses of all labs, loaded when needed, and the function that grades a submission."""

    def __init__(
        self,
        root: Path,
        out: Path,
        secret: bytes,
        work: Path,
        limits: Limits,
        opened: str = "",
    ) -> None:
        self.root, self.out, self.secret, self.work, self.limits = root, out, secret, work, limits
        self.opened = opened  # the first lab that is still open; "" stands for the graded lab
        self.courses: dict[str, Course] = {}

    def course(self, lab: str) -> Course:
        """Return the course of a lab, after a test that the lab's solution gets all points here.

        Raises GradeError if the solution gets fewer points, or if there is no such lab. Raises
        StillOpen if the lab's cells contain an answer of a lab that is still open.
        """
        if lab not in self.courses:
            course = open_course(self.root, lab, self.secret, self.work, self.opened)
            self._prove(course)
            self.courses[lab] = course
        return self.courses[lab]

    def _prove(self, course: Course) -> None:
        proof = (
            self.out
            / "proofs"
            / f"{course.lab}-{levels.level()}-{self.limits.cell_s:g}s-{course.key[:16]}"
        )
        if proof.exists():
            return
        with tempfile.TemporaryDirectory(dir=self.work) as work:
            merged = course.merged(read(course.solution))
            try:
                scores, _ = grade(course, merged, Path(work), self.limits)
            except InfraError as error:
                raise GradeError(f"The sandbox does not work here: {error}") from error
        for one in scores:
            if one.status != "pass":
                told = "\n".join(one.feedback)
                raise GradeError(
                    f"The course's own solution of {one.name} gets {one.earned:g} of "
                    f"{one.points:g} points here, so no grade could be trusted:\n{told}"
                )
        store.write(proof, "the solution gets all points")

    def grade(self, notebook: HandedIn, submission: Submission, course: Course, key: str) -> Result:
        """Grade one submission in this process, and return its result."""
        begun = time.monotonic()
        try:
            plan = plan_apart(course, submission)
        except Refused as error:
            return replace(refused(notebook, course.lab, str(error)), key=key)
        for last in range(1, AGAIN + 1):
            with tempfile.TemporaryDirectory(dir=self.work) as work:
                try:
                    scores, notes = grade(course, plan.merged, Path(work), self.limits)
                except InfraError as error:
                    if last == AGAIN:
                        return infra_error(notebook, key, course.lab, str(error))
                else:
                    break
        result = graded(notebook, key, course, scores, notes, time.monotonic() - begun)
        return replace(result, answers=plan.answers, written=plan.written, look=plan.look)


def graded(
    notebook: HandedIn,
    key: str,
    course: Course,
    scores: Sequence[Score],
    notes: Sequence[str],
    seconds: float,
) -> Result:
    """Return the result of a submission from its scores, with texts cut as `quote` demands."""
    scores, notes = quoted(scores, (*note_on_name(notebook.name, course.lab), *notes))
    return Result(
        notebook.name,
        key,
        "graded",
        course.lab,
        levels.level(),
        sum(each.points for each in scores),
        round(sum(each.earned for each in scores), 2),
        round(seconds, 1),
        tuple(scores),
        tuple(notes),
        _handed_in(notebook.path),
        source=str(notebook.path.absolute()),
    )


def _handed_in(path: Path) -> float:
    """Return the time at which a file was last changed, in s since 1970; 0 if it is gone."""
    with suppress(OSError):
        return os.lstat(path).st_mtime
    return 0.0


def infra_error(notebook: HandedIn, key: str, lab: str, why: str) -> Result:
    """Return the result of a submission that was not graded because the machine failed.

    The result's points are None, not 0, and `--resume` grades this file again.
    """
    return Result(
        notebook.name,
        key,
        "infra_error",
        lab,
        points=points_of(lab),
        earned=None,
        notes=(f"Not graded, and not the student's fault: {why}",),
        source=str(notebook.path.absolute()),
    )


def refused(notebook: HandedIn, lab: str | None, why: str) -> Result:
    """Return the result of a file that the grader refused, with zero points.

    If `lab` is None, the lab is taken from the name of the file.
    """
    named = notebook.path.name[:2]
    lab = lab or (named if points_of(named) else "")
    return Result(
        notebook.name,
        "",
        "refused",
        lab,
        points=points_of(lab),
        notes=(f"Refused: {why}.",),
        source=str(notebook.path.absolute()),
    )


def withdraw(out: Path, given: Sequence[Path], found: Sequence[HandedIn]) -> list[Result]:
    """Mark results as withdrawn if their files are no longer in the `given` paths.

    Returns the withdrawn results.
    """
    names = {each.name for each in found}
    roots = [path.absolute() for path in given]
    gone = []
    for earlier in store.all_of(out):
        source = Path(earlier.source)
        below = any(root in (source, *source.parents) for root in roots)
        if not earlier.source or earlier.name in names or not below or os.path.lexists(source):
            continue
        had = "" if earlier.earned is None else f"; the result had {earlier.earned:g} points"
        note = f"Withdrawn: the submission's file is gone{had}."
        if earlier.status == "withdrawn":
            note = " ".join(earlier.notes)
        result = replace(
            earlier, status="withdrawn", earned=None, key="", exercises=(), notes=(note,)
        )
        store.save(out, result)
        gone.append(result)
    return gone


@dataclass(frozen=True)
class _Task:
    """A submission that is waiting to be graded."""

    notebook: HandedIn
    submission: Submission
    course: Course
    key: str


def grade_class(
    notebooks: Sequence[HandedIn],
    classroom: Classroom,
    lab: str | None,
    jobs: int,
    finished: Callable[[Result], None],
) -> None:
    """Grade all notebooks, `jobs` at a time, except those with a stored result of the same key.

    The first notebook of every folder is graded first, so that a folder with a thousand notebooks
    delays no other folder. If a grading process dies while it grades a notebook, the notebook is
    graded again, alone, after all other notebooks.
    """
    running: dict[int, tuple[BaseProcess, _Task]] = {}
    again: list[_Task] = []
    try:
        for notebook in sorted(notebooks, key=lambda each: (each.turn, each.name)):
            if (task := _ready(notebook, classroom, lab, finished)) is None:
                continue
            while len(running) >= jobs:
                again += _collect(running, classroom.out, finished)
            _start(task, classroom, running)
        while running:
            again += _collect(running, classroom.out, finished)
        for task in again:
            _start(task, classroom, running)
            if _collect(running, classroom.out, finished):
                result = _unjudged(task)
                store.save(classroom.out, result)
                finished(result)
    finally:
        for process, _ in running.values():
            process.kill()


def _ready(
    notebook: HandedIn, classroom: Classroom, lab: str | None, finished: Callable[[Result], None]
) -> _Task | None:
    """Return the task of grading a notebook; None if the notebook already has its result."""
    earlier = store.saved(classroom.out, notebook.name)
    if earlier is not None and earlier.status != "graded":
        earlier = None
    found = lab
    try:
        if notebook.refused:
            raise Refused(notebook.refused)
        # for an unchanged file, the digest of its bytes is enough
        if earlier and points_of(earlier.lab):
            course = classroom.course(earlier.lab)
            if earlier.key == key_of(digest(notebook.path), course, classroom, lab):
                finished(earlier)
                return None
        submission, own = read_apart(notebook.path)
        found = lab or own
        if found is None:
            raise Refused("the notebook answers no exercise of any lab")
        course = classroom.course(found)
    except Refused as error:
        result = refused(notebook, found, str(error))
    except StillOpen as error:
        if lab:  # all files are graded as this lab, which is still open
            raise
        result = infra_error(notebook, "", found or (earlier.lab if earlier else ""), str(error))
    else:
        return _Task(
            notebook, submission, course, key_of(submission.digest, course, classroom, lab)
        )
    store.save(classroom.out, result)
    finished(result)
    return None


def key_of(content: str, course: Course, classroom: Classroom, lab: str | None) -> str:
    """Return a digest of everything on which a result depends, such as content and time limits."""
    how = f"{content} {course.key} {classroom.limits} {levels.level()} {lab}"
    return hashlib.sha256(how.encode()).hexdigest()[:24]


def _start(
    task: _Task, classroom: Classroom, running: dict[int, tuple[BaseProcess, _Task]]
) -> None:
    process: BaseProcess = multiprocessing.get_context("fork").Process(
        target=_child, args=(os.getpid(), classroom, task)
    )
    process.start()
    running[process.sentinel] = (process, task)


def _child(parent: int, classroom: Classroom, task: _Task) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # ends this process even if it hangs, as in an endless hint
    signal.alarm(round(2 * classroom.limits.whole_s))
    # PR_SET_PDEATHSIG: this process dies with the grader
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    grow_by(MEMORY)
    try:
        result = classroom.grade(task.notebook, task.submission, task.course, task.key)
    except (OSError, GradeError) as error:
        result = infra_error(task.notebook, task.key, task.course.lab, str(error))
    except Exception:
        # the traceback may quote texts from the student's code
        sys.stderr.write(visible(traceback.format_exc()))
        os._exit(1)
    try:
        store.save(classroom.out, result)
    except GradeError as error:
        sys.stderr.write(f"{visible(str(error))}\n")
        os._exit(1)


def _collect(
    running: dict[int, tuple[BaseProcess, _Task]], out: Path, finished: Callable[[Result], None]
) -> list[_Task]:
    """Wait until a grading process ends and store its result; return tasks without a result."""
    without = []
    for sentinel in wait(list(running)):
        assert isinstance(sentinel, int)
        process, task = running.pop(sentinel)
        process.join()
        result = store.saved(out, task.notebook.name)
        if process.exitcode or result is None or result.key != task.key:
            without.append(task)
        else:
            finished(result)
    return without


def _unjudged(task: _Task) -> Result:
    """Return the result of a notebook during which the grading process has died twice.

    A student's code can provoke such a death, so the result is no `infra_error`, and a person has
    to look at the notebook.
    """
    says = "the values that it sent back could not be judged"
    scores = [none(each, "error", says) for each in task.course.exercises]
    note = (
        "The grader's own process ended twice on this notebook, the second time with no other "
        "notebook beside it. The notebook gets no points until a person has looked at it."
    )
    return graded(task.notebook, task.key, task.course, scores, [note], 0.0)
