"""Grades a class: finds the notebooks, and gives each a process of its own."""

from __future__ import annotations

import ctypes
import hashlib
import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade import levels, store
from ddpkit.grade.attempt import InfraError, grade
from ddpkit.grade.course import Course, lab_of, note_on_name, open_course
from ddpkit.grade.evidence import answers_code, written_answers
from ddpkit.grade.look import looks
from ddpkit.grade.merge import merge
from ddpkit.grade.sandbox import Limits
from ddpkit.grade.store import Result
from ddpkit.grade.submission import Refused, Submission, read

HOUR = 3600
AGAIN = 2  # tries of a submission before the machine is blamed


@dataclass(frozen=True)
class HandedIn:
    """A notebook that was handed in, as it was found."""

    name: str  # its path from the folder given: results and reports call it so
    path: Path


def find(given: Sequence[Path]) -> list[HandedIn]:
    """The notebooks in files and folders, by name; links to folders are not followed.

    Raises GradeError: there are none, or two would have the same name.
    """
    notebooks: dict[str, HandedIn] = {}
    for path in given:
        for notebook in _in(path):
            if notebooks.setdefault(notebook.name, notebook).path != notebook.path:
                raise GradeError(
                    f"Two submissions are called {notebook.name}: put them in folders."
                )
    if not notebooks:
        raise GradeError("There are no notebooks (*.ipynb) to grade.")
    return [notebooks[name] for name in sorted(notebooks)]


def _in(path: Path) -> Iterator[HandedIn]:
    if path.is_dir():
        for folder, folders, files in os.walk(path):
            folders[:] = [name for name in folders if name != ".ipynb_checkpoints"]
            for name in files:
                if name.endswith(".ipynb"):
                    found = Path(folder, name)
                    yield HandedIn(_printable(str(found.relative_to(path))), found)
    elif path.is_symlink() or path.exists():
        yield HandedIn(_printable(path.name), path)
    else:
        raise GradeError(f"There is no {path}.")


def _printable(name: str) -> str:
    return "".join(c if c.isprintable() else "�" for c in name.encode("utf-8", "replace").decode())


class Classroom:
    """Courses as they are needed, and the grading of one submission after the other."""

    def __init__(self, root: Path, out: Path, secret: bytes, work: Path, limits: Limits) -> None:
        self.root, self.out, self.secret, self.work, self.limits = root, out, secret, work, limits
        self.courses: dict[str, Course] = {}

    def course(self, lab: str) -> Course:
        """The course of a lab, proven: its own solution gets all points in this sandbox.

        Raises GradeError: it does not, or there is no such lab.
        """
        if lab not in self.courses:
            course = open_course(self.root, lab, self.secret, self.work)
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
            try:
                scores, _ = grade(course, read(course.solution), Path(work), self.limits)
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
        """Grade one submission in this process."""
        begun = time.monotonic()
        for last in range(1, AGAIN + 1):
            with tempfile.TemporaryDirectory(dir=self.work) as work:
                try:
                    scores, notes = grade(course, submission, Path(work), self.limits)
                except InfraError as error:
                    if last == AGAIN:
                        return infra_error(notebook, key, course.lab, str(error))
                else:
                    break
        merged = merge(course.cells, course.names, submission)
        return Result(
            notebook.name,
            key,
            "graded",
            course.lab,
            levels.level(),
            sum(each.points for each in scores),
            round(sum(each.earned for each in scores), 2),
            round(time.monotonic() - begun, 1),
            tuple(scores),
            (*note_on_name(notebook.name, course.lab), *notes),
            os.lstat(notebook.path).st_mtime,
            tuple(answers_code(merged)),
            tuple(written_answers(course.texts, submission.texts)),
            tuple(looks(merged)),
        )


def infra_error(notebook: HandedIn, key: str, lab: str, why: str) -> Result:
    """A result without points, which is not zero points: `--resume` grades this one again."""
    note = f"Not graded, and not the student's fault: {why}"
    return Result(notebook.name, key, "infra_error", lab, earned=None, notes=(note,))


def grade_class(
    notebooks: Sequence[HandedIn],
    classroom: Classroom,
    lab: str | None,
    jobs: int,
    finished: Callable[[Result], None],
) -> None:
    """Grade all notebooks, `jobs` at a time; not those that have a result for the same key."""
    running: dict[int, tuple[BaseProcess, HandedIn, str, str]] = {}
    try:
        for notebook in notebooks:
            if (ready := _ready(notebook, classroom, lab, finished)) is None:
                continue
            while len(running) >= jobs:
                _collect(running, classroom.out, finished)
            submission, course, key = ready
            process: BaseProcess = multiprocessing.get_context("fork").Process(
                target=_child, args=(os.getpid(), classroom, notebook, submission, course, key)
            )
            process.start()
            running[process.sentinel] = (process, notebook, key, course.lab)
        while running:
            _collect(running, classroom.out, finished)
    finally:
        for process, *_ in running.values():
            process.kill()


def _ready(
    notebook: HandedIn, classroom: Classroom, lab: str | None, finished: Callable[[Result], None]
) -> tuple[Submission, Course, str] | None:
    """What is needed to grade a notebook; None if it has its result already."""
    try:
        submission = read(notebook.path)
        found = lab or lab_of(submission)
        if found is None:
            raise Refused("it has no answer of any lab")
    except Refused as error:
        result = Result(
            notebook.name, "", "refused", lab or "", earned=0.0, notes=(f"Refused: {error}.",)
        )
        store.save(classroom.out, result)
        finished(result)
        return None
    course = classroom.course(found)
    how = f"{classroom.limits} {levels.level()}"  # a longer limit may turn a timeout into points
    key = hashlib.sha256((submission.digest + course.key + how).encode()).hexdigest()[:24]
    earlier = store.saved(classroom.out, notebook.name)
    if earlier and earlier.key == key and earlier.status == "graded":
        finished(earlier)
        return None
    return submission, course, key


def _child(
    parent: int,
    classroom: Classroom,
    notebook: HandedIn,
    submission: Submission,
    course: Course,
    key: str,
) -> None:
    signal.alarm(HOUR)  # for a hint that never ends; all else has limits of its own
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: dies with the grader
    if os.getppid() != parent:
        os._exit(1)
    store.save(classroom.out, classroom.grade(notebook, submission, course, key))


def _collect(
    running: dict[int, tuple[BaseProcess, HandedIn, str, str]],
    out: Path,
    finished: Callable[[Result], None],
) -> None:
    """Wait for a process to end, and take its result."""
    for sentinel in wait(list(running)):
        assert isinstance(sentinel, int)
        process, notebook, key, lab = running.pop(sentinel)
        process.join()
        result = store.saved(out, notebook.name)
        if result is None or result.key != key:
            result = infra_error(notebook, key, lab, f"its process ended with {process.exitcode}")
            store.save(out, result)
        finished(result)
