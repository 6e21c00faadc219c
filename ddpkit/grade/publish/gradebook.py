"""A table of points, with a row for each person and a column for each lab.

If a person has several submissions for a lab, the best or the newest of them counts.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from ddpkit.files import PACKAGE
from ddpkit.grade.publish.roster import Person, Roster
from ddpkit.grade.report import plain_cell
from ddpkit.grade.store import Result

BEST, NEWEST = "best", "newest"
MISSING, WITHDRAWN = "missing", "withdrawn"  # WITHDRAWN is also a status of results


@dataclass(frozen=True)
class Gradebook:
    """The results of a course by person and lab."""

    labs: dict[str, float]  # lab -> points of the lab
    rows: tuple[tuple[Person, dict[str, Result]], ...]
    strangers: tuple[Result, ...]  # results of submissions that nobody in the roster owns


def gradebook(results: Sequence[Result], roster: Roster, keep: str) -> Gradebook:
    """Return the gradebook of a course; `keep` is "best" or "newest".

    Raises GradeError if a submission fits two people.
    """
    theirs: dict[str, dict[str, list[Result]]] = {person.id: {} for person in roster.people}
    strangers = []
    labs: dict[str, float] = {}
    for result in results:
        lab = lab_of_result(result)
        if lab:
            labs[lab] = max(labs.get(lab, 0.0), result.points)
        person = roster.owner(result.name)
        if person is None or not lab:
            strangers.append(result)
        else:
            theirs[person.id].setdefault(lab, []).append(result)
    rows = tuple(
        (person, {lab: _kept(found, keep) for lab, found in theirs[person.id].items()})
        for person in roster.people
    )
    return Gradebook(dict(sorted(labs.items())), rows, tuple(strangers))


def lab_of_result(result: Result) -> str:
    """Return the lab of a result; for a refused file, the number at the start of its name.

    Only the number of an existing lab counts. Otherwise one file 99_notes.ipynb would give the
    whole class a column.
    """
    number = re.search(r"(?:^|/|_)([0-9][0-9])_[^/]*$", result.name)
    named = number[1] if number and (PACKAGE / "checks" / f"lab{number[1]}").is_dir() else ""
    return result.lab or named


def _kept(results: Iterable[Result], keep: str) -> Result:
    def worth(result: Result) -> tuple[bool, float, float]:
        # a withdrawn result counts only if there is no other result
        there = result.status != WITHDRAWN
        earned = -1.0 if result.earned is None else result.earned
        by = (earned, result.handed_in) if keep == BEST else (result.handed_in, earned)
        return (there, *by)

    return max(results, key=worth)


def text_of(book: Gradebook) -> str:
    """Return the gradebook as CSV for a spreadsheet, in which no cell is a formula.

    The cell of a lab that a person has not submitted is "missing"; a submission without a grade
    shows its status.
    """
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    per_lab = [f"lab {lab}{more}" for lab in book.labs for more in ("", " handed in")]
    table.writerow(["id", "name", *per_lab, "total", "points", "notes"])
    total = sum(book.labs.values())
    for person, found in book.rows:
        cells = [cell for lab in book.labs for cell in _cells(found.get(lab))]
        earned = sum(result.earned or 0.0 for result in found.values())
        notes = "; ".join(f"{lab}: {note}" for lab in found for note in found[lab].notes)
        who = [plain_cell(person.id), plain_cell(person.name)]
        table.writerow([*who, *cells, round(earned, 2), total, plain_cell(notes)])
    for result in book.strangers:
        cells = [
            cell
            for lab in book.labs
            for cell in (_cells(result) if lab == lab_of_result(result) else ("", ""))
        ]
        worth = "" if result.earned is None else result.earned
        note = "; ".join(["not in the roster", *result.notes])
        table.writerow(["", plain_cell(result.name), *cells, worth, total, plain_cell(note)])
    return stream.getvalue()


def _cells(result: Result | None) -> tuple[float | str, str]:
    """Return the points of a result and the time of its file."""
    if result is None:
        return MISSING, ""
    earned = result.status if result.earned is None else result.earned
    return earned, _time(result.handed_in) if result.handed_in else ""


def _time(seconds: float) -> str:
    """Return a file's time as text; "" for a time outside the calendar, as archives can have."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M %z")
    except (ValueError, OverflowError, OSError):
        return ""
