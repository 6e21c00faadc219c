"""A teacher's own points and comments, in a file beside the results.

Every report contains these points and comments. An entry of the file looks like this:

    [[override]]
    name = "emil/00_ranks.ipynb"      # as the reports name the submission
    exercise = "token_ring"           # without this line, the points of the whole submission
    points = 2                        # without this line, only the comment is added
    comment = "It was our typo."

A regrade does not touch this file.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ddpkit.errors import GradeError
from ddpkit.grade.store import Result

FILE = "overrides.toml"  # a file beside the folder of results
TEXTS = ("name", "exercise", "comment")
KEYS = {"points", *TEXTS}


@dataclass(frozen=True)
class Override:
    """One entry of the overrides file."""

    name: str
    exercise: str = ""
    points: float | None = None
    comment: str = ""

    @property
    def sentence(self) -> str:
        """The line about this override that the student reads."""
        what = "" if self.points is None else f"Set to {self.points:g} by your teacher. "
        return f"{what}{self.comment}".strip()


def read_overrides(path: Path) -> list[Override]:
    """Return the entries of an overrides file.

    Raises GradeError, which names the file and the entry, if the file is damaged.
    """
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise GradeError(f"{path} cannot be read: {error}.") from error
    entries = data.pop("override", [])
    are_tables = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    if data or not are_tables:
        raise GradeError(f"{path} must hold nothing but entries that begin with [[override]].")
    return [_override(path, number, entry) for number, entry in enumerate(entries, start=1)]


def _override(path: Path, number: int, entry: Mapping[str, Any]) -> Override:
    where = f"Entry {number} of {path}"
    if unknown := sorted(set(entry) - KEYS):
        raise GradeError(
            f"{where} has an unknown key {unknown[0]!r}; the keys are {', '.join(sorted(KEYS))}."
        )
    texts = {key: entry.get(key, "") for key in TEXTS}
    for key, text in texts.items():
        if not isinstance(text, str):
            raise GradeError(f"{where}: {key} must be a text in quotes, not {text!r}.")
    if not texts["name"]:
        raise GradeError(
            f"{where} needs a name, in quotes: the name of a submission in the reports."
        )
    points = entry.get("points")
    if points is not None and (
        isinstance(points, bool) or not isinstance(points, int | float) or not 0 <= points < 1e6
    ):
        raise GradeError(f"{where}: points must be a number, not {points!r}.")
    if points is None and not entry.get("comment"):
        raise GradeError(f"{where} changes nothing: it has neither points nor a comment.")
    return Override(points=points, **texts)


def overridden(results: Sequence[Result], overrides: Sequence[Override]) -> list[Result]:
    """Return the results with the teacher's points and comments.

    Raises GradeError if an entry names a submission or an exercise that does not exist.
    """
    by_name = {result.name: result for result in results}
    for each in overrides:
        if each.name not in by_name:
            close = difflib.get_close_matches(each.name, list(by_name), n=1)
            guess = f" Did you mean {close[0]}?" if close else ""
            raise GradeError(f"{FILE} names {each.name}, but there is no such submission.{guess}")
        by_name[each.name] = _changed(by_name[each.name], each)
    return list(by_name.values())


def _changed(result: Result, override: Override) -> Result:
    if not override.exercise:
        earned = result.earned if override.points is None else float(override.points)
        return replace(result, earned=earned, notes=(*result.notes, override.sentence))
    names = [one.name for one in result.exercises]
    if override.exercise not in names:
        raise GradeError(
            f"{FILE} names {override.exercise}, but {result.name} has no such exercise; its "
            f"exercises are: {', '.join(names) or 'none'}."
        )
    exercises = tuple(
        replace(
            one,
            earned=one.earned if override.points is None else float(override.points),
            feedback=(override.sentence, *one.feedback),
        )
        if one.name == override.exercise
        else one
        for one in result.exercises
    )
    earned = result.earned
    if override.points is not None:
        earned = round(sum(one.earned for one in exercises), 2)
    return replace(result, exercises=exercises, earned=earned)
