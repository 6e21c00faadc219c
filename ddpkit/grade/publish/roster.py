"""The people in the course, and their submissions.

A roster is a CSV file. Its columns show which of three kinds it is:

    id,name,folder                                     written by the teacher; only id is needed
    Student,ID,SIS User ID,SIS Login ID,Section,...    Canvas: the export of its gradebook
    Identifier,Full name,Email address,...             Moodle: an assignment's grading worksheet

Sources of the columns: Canvas, lib/gradebook_importer.rb; Moodle,
mod/assign/feedback/offline/importgradeslib.php.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from pathlib import Path

from ddpkit.errors import GradeError

OWN, CANVAS, MOODLE = "own", "Canvas", "Moodle"
NEEDED = {  # kind of roster -> the columns that identify it
    OWN: {"id"},
    CANVAS: {"Student", "ID", "Section"},
    MOODLE: {"Identifier", "Grade", "Last modified (grade)"},
}


@dataclass(frozen=True)
class Person:
    """A person in the course."""

    id: str
    name: str
    folders: tuple[str, ...]  # possible first parts of a submission's path
    pattern: str = ""  # regular expression: a first part may also begin with a match
    # the person's row of the roster, by column
    row: dict[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Roster:
    """All people in the course, in the order of the file."""

    people: tuple[Person, ...]
    kind: str = OWN
    columns: tuple[str, ...] = ()

    def owner(self, submission: str) -> Person | None:
        """Return the owner of a submission; None if the roster has no such person.

        `submission` is a path as in the results. Raises GradeError if the submission fits two
        people.
        """
        first = _composed(submission.split("/")[0])
        found = {
            person.id: person
            for name in (first, first.removesuffix(".ipynb"))
            for person in self._by_folder.get(name, ())
        }
        for person, pattern in self._patterns:
            if pattern.match(first):
                found[person.id] = person
        if len(found) > 1:
            one, other, *_ = found
            raise GradeError(
                f"The submission {submission} fits two people, {one} and {other}: in "
                "the roster's column `folder`, enter the folder of each person."
            )
        return next(iter(found.values()), None)

    @cached_property
    def _by_folder(self) -> dict[str, list[Person]]:
        found: dict[str, list[Person]] = {}
        for person in self.people:
            for name in person.folders:
                found.setdefault(_composed(name), []).append(person)
        return found

    @cached_property
    def _patterns(self) -> list[tuple[Person, re.Pattern[str]]]:
        people = (each for each in self.people if each.pattern)
        return [(each, re.compile(_composed(each.pattern))) for each in people]


def _composed(name: str) -> str:
    """Return a name in Unicode's form NFC, because some file systems store the form NFD.

    In NFD, accents are separate characters.
    """
    return unicodedata.normalize("NFC", name)


def read_roster(path: Path) -> Roster:
    """Return the roster in a file of any of the three kinds.

    Raises GradeError if the file is no roster, or if two people have the same id.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise GradeError(f"The roster {path} cannot be read: {error}.") from error
    first = text.partition("\n")[0]
    separator = ";" if first.count(";") > first.count(",") else ","
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator, restval="")
    columns = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = columns
    kind = next((kind for kind, needed in NEEDED.items() if needed <= set(columns)), None)
    if kind is None:
        known = "; ".join(
            f"{'yours' if kind == OWN else kind}: {', '.join(sorted(names))}"
            for kind, names in NEEDED.items()
        )
        raise GradeError(
            f"{path} is not a roster: its first line lacks columns. It must name all columns of "
            f"one kind of roster ({known})."
        )
    rows = [{key: value.strip() for key, value in row.items() if key} for row in reader]
    people = [person for row in rows if (person := PERSONS[kind](row)) is not None]
    _require_different(path, people)
    return Roster(tuple(people), kind, tuple(columns))


def _require_different(path: Path, people: Iterable[Person]) -> None:
    seen: set[str] = set()
    for person in people:
        if person.id in seen:
            raise GradeError(f"{path} has two people with the id {person.id}.")
        seen.add(person.id)
    if not seen:
        raise GradeError(f"The roster {path} names nobody.")


def _own(row: dict[str, str]) -> Person | None:
    folder = row.get("folder", "")
    folders = () if folder else (row["id"],)
    pattern = translate(folder) if folder else ""  # `*` in `folder` matches any text
    return Person(row["id"], row.get("name", ""), folders, pattern, row) if row["id"] else None


def _canvas(row: dict[str, str]) -> Person | None:
    """Return the person in a row of Canvas's gradebook; None for a row without a person.

    Canvas names a downloaded file "lovelaceada_1234_567_00_ranks.ipynb". The first number is the
    person's ID; "LATE_" may stand before this number.
    """
    if not row["ID"].isdigit():  # the row "Points Possible", or a row of remarks
        return None
    folders = tuple(filter(None, (row.get("SIS Login ID"), row.get("SIS User ID"))))
    who = next(iter(folders), row["ID"])
    return Person(who, row["Student"], folders, rf"[^_]+(_LATE)?_{row['ID']}_\d+_", row)


def _moodle(row: dict[str, str]) -> Person | None:
    """Return the person in a row of Moodle's worksheet; None for a row without a person.

    A download of Moodle has a folder "Ada Lovelace_1234_assignsubmission_file" for each person, or
    files with names that begin in this way. The student chooses the rest of the name, which may
    imitate the beginning of another person's name.
    """
    number = re.search(r"(\d+)$", row["Identifier"])
    if number is None:
        return None
    folder = rf"(?:(?!_\d+_assignsubmission_).)*_{number[1]}_assignsubmission_"
    mail = row.get("Email address", "")
    folders = (mail,) if mail else ()
    return Person(mail or row["Identifier"], row.get("Full name", ""), folders, folder, row)


PERSONS = {OWN: _own, CANVAS: _canvas, MOODLE: _moodle}


def without_roster(submissions: Iterable[str]) -> Roster:
    """Return a roster made from submissions' paths: the first folder of a path is a person."""
    folders = dict.fromkeys(name.split("/")[0] for name in submissions)
    return Roster(tuple(Person(name, "", (name,)) for name in folders))
