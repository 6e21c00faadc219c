"""Codes in place of names, and a private file with the name that belongs to each code."""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ddpkit.errors import GradeError
from ddpkit.grade.publish.gradebook import lab_of_result
from ddpkit.grade.publish.roster import Person, Roster
from ddpkit.grade.store import Result

CODE = 5  # bytes: ten digits in hex


def anonymous(results: Sequence[Result], roster: Roster, key: Path) -> tuple[list[Result], Roster]:
    """Return the results and the roster with codes in place of names.

    Codes are read from the file `key`, and new codes are added to this file. The new name of a
    submission consists of the person's code, the lab, and a number if the person has several
    submissions for the lab. Raises GradeError if the file cannot be read or written.
    """
    codes = _read(key)
    known = len(codes)
    for who in [person.id for person in roster.people] + [_owner(each, roster) for each in results]:
        codes.setdefault(who, secrets.token_hex(CODE))
    if len(codes) > known:
        _write(key, codes)
    people = tuple(Person(codes[each.id], "", (codes[each.id],)) for each in roster.people)
    renamed, seen = [], set[str]()
    for result in results:
        name = f"{codes[_owner(result, roster)]}/{lab_of_result(result) or 'unknown'}"
        number = next(n for n in range(1, len(results) + 2) if f"{name}-{n}" not in seen)
        seen.add(f"{name}-{number}")
        renamed.append(replace(result, name=name if number == 1 else f"{name}-{number}"))
    return renamed, Roster(people)


def _owner(result: Result, roster: Roster) -> str:
    person = roster.owner(result.name)
    return person.id if person else result.name.split("/")[0]


def _read(key: Path) -> dict[str, str]:
    if not key.exists():
        return {}
    try:
        with key.open(newline="", encoding="utf-8") as stream:
            return {row["id"]: row["code"] for row in csv.DictReader(stream)}
    except (OSError, UnicodeDecodeError, KeyError) as error:
        raise GradeError(
            f"{key} is not a file of codes: a file of codes has the columns code and id."
        ) from error


def _write(key: Path, codes: dict[str, str]) -> None:
    stream = io.StringIO()
    table = csv.writer(stream, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerows([["code", "id"], *((code, who) for who, code in codes.items())])
    try:
        draft = os.open(key, os.O_WRONLY | os.O_CREAT, 0o600)
        with open(draft, "w", encoding="utf-8") as file:
            file.truncate()
            file.write(stream.getvalue())
    except OSError as error:
        raise GradeError(f"{key} cannot be written: {error.strerror}.") from error
