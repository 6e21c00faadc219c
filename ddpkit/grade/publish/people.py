"""Pages for people: one for each student, and one with all written answers by question."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade.page import details, framed
from ddpkit.grade.publish.gradebook import WITHDRAWN, lab_of_result
from ddpkit.grade.publish.roster import Roster
from ddpkit.grade.store import Result, file_of


def pages(results: Sequence[Result], roster: Roster, folder: Path) -> list[Path]:
    """Write a page for each person with submissions, and return the paths of the pages.

    The person's id gives the name of the page's file. A submission that belongs to no person in the
    roster has a page of its own, under its own name. Raises GradeError if a file cannot be written.
    """
    theirs: dict[str, list[Result]] = {}
    for result in results:
        person = roster.owner(result.name)
        theirs.setdefault(person.id if person else result.name, []).append(result)
    written = []
    for who, found in theirs.items():
        path = folder / f"{file_of(folder, who).stem}.html"
        text = framed(who, "".join(details(sorted(found, key=lab_of_result))))
        _write(path, text)
        written.append(path)
    return written


def written_page(results: Sequence[Result]) -> str:
    """Return a page of all written answers, by lab and question, for grading by hand."""
    return framed("Written answers", "".join(_questions(results)))


def _questions(results: Sequence[Result]) -> Iterator[str]:
    by: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for result in _there(results):
        for question, text in result.written:
            by.setdefault((result.lab, question), []).append((result.name, text))
    for (lab, question), answers in sorted(by.items(), key=lambda item: item[0][0]):
        yield f"<h2>lab {escape(lab)}: {escape(question or 'before the first question')}</h2>\n"
        for name, text in answers:
            yield f"<h3>{escape(name)}</h3>\n<pre>{escape(text)}</pre>\n"


def sources(results: Sequence[Result], folder: Path) -> int:
    """Write the code of each answer as FOLDER/LAB/EXERCISE/SUBMISSION.py; return the file count.

    A plagiarism checker can compare the files in one exercise's folder. Raises GradeError if a file
    cannot be written.
    """
    count = 0
    for result in _there(results):
        for exercise, code in result.answers:
            name = re.sub(r"\W+", "_", exercise)
            path = folder / f"lab{result.lab}" / name / f"{file_of(folder, result.name).stem}.py"
            _write(path, code + "\n")
            count += 1
    return count


def _there(results: Sequence[Result]) -> Iterator[Result]:
    """Yield the results, except for the withdrawn results."""
    return (result for result in results if result.status != WITHDRAWN)


def _write(path: Path, text: str) -> None:
    """Write one of many files without waiting for the disk; the next report can write it again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
    except OSError as error:
        raise GradeError(f"{path} cannot be written: {error.strerror}.") from error
