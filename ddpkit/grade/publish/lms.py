"""A gradebook in the formats that Canvas and Moodle import.

Canvas finds people by ID, SIS User ID or SIS Login ID, and assignments by title, including the
number in brackets in Canvas's own export; an empty cell changes nothing in Canvas. For Moodle, the
grading worksheet of an assignment is filled in with grades and comments. Late days and penalties
are left to Canvas and Moodle.

Sources: Canvas, lib/gradebook_importer.rb; Moodle, mod/assign/feedback/offline/importgradeslib.php.
"""

from __future__ import annotations

import csv
import io
import re
from html import escape

from ddpkit.errors import GradeError
from ddpkit.grade.publish.gradebook import Gradebook
from ddpkit.grade.publish.roster import CANVAS, MOODLE, Person, Roster
from ddpkit.grade.report import plain_cell
from ddpkit.grade.store import Result

# columns of Canvas's file that identify a person
PEOPLE = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
POSSIBLE = "    Points Possible"  # spelled as in Canvas's export


def canvas(book: Gradebook, roster: Roster) -> str:
    """Return the book in the format that Canvas imports (Grades, Import): a column for each lab."""
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n")
    titles = [_assignment(lab, roster) for lab in book.labs]
    table.writerow([*PEOPLE, *titles])
    table.writerow([POSSIBLE, *[""] * (len(PEOPLE) - 1), *(f"{p:g}" for p in book.labs.values())])
    for person, found in book.rows:
        table.writerow(
            [*_canvas_person(person, roster), *(_grade(found.get(n)) for n in book.labs)]
        )
    return stream.getvalue()


def _assignment(lab: str, roster: Roster) -> str:
    """Return the title of a lab's column: the title in Canvas's export, or else a new title.

    A title in the export contains the assignment's number.
    """
    known = [] if roster.kind != CANVAS else [n for n in roster.columns if n not in PEOPLE]
    number = re.compile(rf"(?<!\d)0?{int(lab)}(?!\d)")
    titles = [name for name in known if number.search(re.sub(r"\(\d+\)\s*$", "", name))]
    if len(titles) > 1:
        raise GradeError(
            f"Canvas has two assignments for lab {lab}: {', '.join(titles)}. "
            "Remove one of these columns from the roster."
        )
    return titles[0] if titles else f"Lab {lab}"


def _canvas_person(person: Person, roster: Roster) -> list[str]:
    if roster.kind == CANVAS:
        return [person.row.get(name, "") for name in PEOPLE]
    login = plain_cell(person.id)  # a folder's name may be the id, and may look like a formula
    return [plain_cell(person.name), "", login, login, ""]


def _grade(result: Result | None) -> str:
    return "" if result is None or result.earned is None else f"{result.earned:g}"


def moodle(book: Gradebook, roster: Roster) -> str:
    """Return Moodle's grading worksheet of one assignment, with grades and comments filled in.

    Grades are scaled to the worksheet's Maximum Grade.

    Raises GradeError if the roster is no worksheet, or if the results are of several labs.
    """
    if roster.kind != MOODLE:
        raise GradeError(
            "Moodle accepts its own worksheet only: in the assignment choose Download grading "
            "worksheet, and give that file to --roster."
        )
    if len(book.labs) != 1:
        labs = ", ".join(book.labs)
        raise GradeError(
            f"A worksheet holds one assignment: choose one of the labs {labs} with --lab."
        )
    ((lab, points),) = book.labs.items()
    stream = io.StringIO()
    table = csv.DictWriter(stream, roster.columns, lineterminator="\n")
    table.writeheader()
    for person, found in book.rows:
        row = dict(person.row)
        result = found.get(lab)
        if result is not None and result.earned is not None:
            most = _number(row.get("Maximum Grade", ""), points)
            row["Grade"] = f"{round(result.earned / (points or 1.0) * most, 2):g}"
            if "Feedback comments" in row:
                row["Feedback comments"] = comments(result)
        table.writerow(row)
    return stream.getvalue()


def _number(text: str, otherwise: float) -> float:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return otherwise


def comments(result: Result) -> str:
    """Return a result's notes and feedback as HTML, with all texts of a student escaped."""
    lines = [*result.notes]
    for one in result.exercises:
        lines += [f"{one.name}: {one.earned:g} of {one.points:g}, {one.status}", *one.feedback]
    return f"<pre>{escape(chr(10).join(lines))}</pre>"
