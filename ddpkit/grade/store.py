"""The results on disk: one file for each submission, always replaced as a whole."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ddpkit.errors import GradeError
from ddpkit.files import write_whole
from ddpkit.grade.score import Score
from ddpkit.text import visible

FORMAT = 1
LOCK = "lock"  # beside the results
MOST_NAME = 180  # bytes of a submission's name in the file name: 60 Chinese letters


@dataclass(frozen=True)
class Result:
    """The result of one submission; the `earned` points are None if the machine failed.

    Names, notes and feedback contain texts of students. Characters that a report cannot hold, or
    that would control a terminal, are escaped here, so that a report in any format can be written.
    """

    name: str  # path from the given folder
    key: str  # digest of the submission's bytes and of everything that grading depends on
    status: str  # graded, refused, infra_error, withdrawn
    lab: str = ""
    level: str = ""  # kind of sandbox (`levels.level`)
    points: float = 0.0
    earned: float | None = 0.0
    seconds: float = 0.0
    exercises: tuple[Score, ...] = ()
    notes: tuple[str, ...] = field(default=())
    handed_in: float = 0.0  # time of the file's last change, in seconds since 1970
    answers: tuple[tuple[str, str], ...] = ()  # exercise and its code, without comments
    written: tuple[tuple[str, str], ...] = ()  # question and the text written below it
    # places that a teacher may want to read; they never change points (`look`)
    look: tuple[str, ...] = ()
    source: str = ""  # the file's path when the grader found the file

    def __post_init__(self) -> None:
        told = (replace(one, feedback=_visible(one.feedback)) for one in self.exercises)
        object.__setattr__(self, "name", visible(self.name))
        object.__setattr__(self, "exercises", tuple(told))
        object.__setattr__(self, "notes", _visible(self.notes))
        object.__setattr__(self, "look", _visible(self.look))
        for name in ("answers", "written"):
            object.__setattr__(self, name, tuple(map(_visible, getattr(self, name))))
        object.__setattr__(self, "source", os.fsencode(self.source).decode(errors="replace"))


def _visible(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(visible, lines))


def file_of(out: Path, name: str) -> Path:
    """Return the path of a submission's result.

    The file's name is readable, and a digest in the name makes it unique.
    """
    readable = re.sub(r"[^\w.-]+", "_", name)[-60:].strip(".")
    # Some letters have four bytes. A file's name has at most 255 bytes; its draft's name is longer.
    readable = readable.encode()[-MOST_NAME:].decode(errors="ignore")
    return out / "results" / f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:10]}.json"


def save(out: Path, result: Result) -> None:
    """Write a result in full or not at all.

    Raises GradeError if the file cannot be written.
    """
    write(file_of(out, result.name), json.dumps({"format": FORMAT, **asdict(result)}, indent=1))


def write(path: Path, text: str) -> None:
    """Replace the content of a file in full or not at all.

    Raises GradeError if the file cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, (text + "\n").encode())
    except OSError as error:
        raise GradeError(f"{path} cannot be written: {error.strerror}.") from error


def forget(out: Path, name: str) -> None:
    """Remove the result of a submission, if there is a result.

    Raises GradeError if the file cannot be removed.
    """
    path = file_of(out, name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise GradeError(f"{path} cannot be removed: {error.strerror}.") from error


def load(*outs: Path) -> list[Result]:
    """Return all results of one or more folders, sorted by name.

    If several folders have a result of one submission for one lab, the first graded result counts,
    or else the first result. Raises GradeError if there are no results, or if a result is damaged.
    """
    found: dict[tuple[str, str], Result] = {}
    for result in (each for out in outs for each in all_of(out)):
        which = result.name, result.lab
        if which not in found or (found[which].status != "graded" == result.status):
            found[which] = result
    if not found:
        folders = ", ".join(map(str, outs))
        raise GradeError(f"{folders} holds no results of `ddpkit grade`.")
    return [found[which] for which in sorted(found)]


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Lock a folder of results, so that only one grader uses it at a time.

    Raises GradeError in a second grader. The kernel frees the lock when the grader ends, even after
    a kill. On a file system without locks, a second grader is not refused.
    """
    try:
        file = (out / LOCK).open("a")
    except OSError as error:
        raise GradeError(f"{out / LOCK} cannot be written: {error.strerror}.") from error
    with file:
        try:
            fcntl.lockf(
                file, fcntl.LOCK_EX | fcntl.LOCK_NB
            )  # child processes do not inherit a lock that lockf has made
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise GradeError(
                    f"Another `ddpkit grade` writes into {out}: "
                    "wait until the command ends, or name a new folder."
                ) from None
        yield


def all_of(out: Path) -> Iterator[Result]:
    """Yield each result in a folder, in no particular order.

    Raises GradeError if a file is damaged.
    """
    for path in (out / "results").glob("*.json"):
        try:
            yield _result(json.loads(path.read_text("utf-8")))
        except FileNotFoundError:  # a grader has removed the file meanwhile
            continue
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GradeError(f"{path} is damaged ({error}): delete it, and grade again.") from None


def saved(out: Path, name: str) -> Result | None:
    """Return the result of one submission; None if the file is missing or damaged."""
    try:
        return _result(json.loads(file_of(out, name).read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _result(data: dict[str, Any]) -> Result:
    if data.pop("format") != FORMAT:
        raise ValueError("written by another version of ddpkit")
    scores = tuple(
        Score(
            **one
            | {"feedback": tuple(one["feedback"])}
            | {name: _tuples(one.get(name, ())) for name in ("cases", "measured")}
        )
        for one in data.pop("exercises")
    )
    kept: dict[str, Any] = {name: _tuples(data.get(name, ())) for name in ("answers", "written")}
    kept |= {"exercises": scores, "notes": tuple(data["notes"])}
    return Result(**data | kept | {"look": tuple(data.get("look", ()))})


def _tuples(rows: Iterable[Iterable[Any]]) -> tuple[tuple[Any, ...], ...]:
    return tuple(map(tuple, rows))
