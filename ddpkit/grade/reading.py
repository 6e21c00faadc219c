"""`read_apart`: reads a submission in a separate process, so that reading ends soon for any file.

The limits count processor time and memory, so no notebook is refused because the machine is busy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from ddpkit.grade.apart import Allowance, TooMuch, apart
from ddpkit.grade.cellnames import names_in
from ddpkit.grade.course import Course, lab_of
from ddpkit.grade.evidence import answers_code, written_answers
from ddpkit.grade.look import looks
from ddpkit.grade.merge import Merged
from ddpkit.grade.submission import Refused, Submission, read

READ_S = 20  # seconds of processor time; an honest notebook takes less than one
MEMORY = 3 << 30  # bytes on top of the grader's own memory

T = TypeVar("T")
Read = tuple[Submission, str | None]  # a submission, and its lab


@dataclass(frozen=True)
class Plan:
    """The cells of a submission that will run, and the texts that its result keeps for people."""

    merged: Merged
    answers: tuple[tuple[str, str], ...]
    written: tuple[tuple[str, str], ...]
    look: tuple[str, ...]


def plan_apart(course: Course, submission: Submission) -> Plan:
    """Return the plan of a submission's run. Raises Refused if planning exceeds a limit."""
    return _apart(partial(_plan, course, submission))


def _plan(course: Course, submission: Submission) -> Plan:
    merged = course.merged(submission)
    return Plan(
        merged,
        tuple(answers_code(merged)),
        tuple(written_answers(course.texts, submission.texts)),
        tuple(looks(merged, course.usual)),
    )


def read_apart(path: Path) -> Read:
    """Return a submission and its lab, read in a separate process.

    Raises Refused if `read` refuses the file, or if reading exceeds a limit.
    """
    answer = _apart(partial(_read, path))
    if isinstance(answer, str):
        raise Refused(answer)
    return answer


def _apart(work: Callable[[], T]) -> T:
    try:
        return apart(work, Allowance(READ_S, MEMORY))
    except TooMuch:
        raise Refused(
            f"reading the notebook takes more than {READ_S} s or {MEMORY >> 30} GB. Ordinary code "
            "needs far less; code with thousands of magics or brackets may need more"
        ) from None


def _read(path: Path) -> Read | str:
    """Return a submission and its lab, or the reason for a refusal."""
    try:
        submission = read(path)
        for cell in submission.cells:  # this slow part of the reading runs under the limits too
            names_in(cell.source)
        return submission, lab_of(submission)
    except Refused as error:
        return str(error)
