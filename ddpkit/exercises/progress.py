"""A student's progress: a small file for each exercise, in the folder `.ddpkit` by the notebook.

    .ddpkit/progress/token_ring.json    best result so far
    .ddpkit/answers/token_ring.py       the version that passed its check (see `keep`)

Each file is replaced as a whole: two notebooks that write at the same time lose nothing, and a
crash leaves the old file or the new one. `DDPKIT_PROGRESS` names a folder to use in place of
`.ddpkit`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ddpkit.exercises.verdict import Verdict
from ddpkit.files import write_whole

FORMAT = 1
ABOVE = 3  # parent folders searched for earlier answers: few, so that /tmp/.ddpkit is not found


@dataclass(frozen=True)
class Progress:
    """The best result of an exercise's check so far."""

    exercise: str
    passed: bool
    earned: float
    points: float


def folder() -> Path:
    """Return the folder of the progress: `DDPKIT_PROGRESS`, or `.ddpkit` in the current folder."""
    return Path(os.environ.get("DDPKIT_PROGRESS") or ".ddpkit")


def of_a_parent(kept: str) -> Path | None:
    """Return the nearest outer folder `.ddpkit` with a file that matches `kept`; else None.

    Progress is read only from the notebook's own folder. The outer folder serves a message only: if
    a notebook has moved, the message says where the student's earlier answers are. If
    `DDPKIT_PROGRESS` is set, return None.
    """
    if os.environ.get("DDPKIT_PROGRESS"):
        return None
    found = (parent / folder() for parent in Path.cwd().parents[:ABOVE])
    return next((each for each in found if any(each.glob(kept))), None)


def is_new() -> bool:
    """True if this folder has no `.ddpkit` yet, as before a student's first check."""
    return not os.environ.get("DDPKIT_PROGRESS") and not folder().exists()


def record(verdict: Verdict) -> str | None:
    """Save the result of a check, unless a better result is saved.

    Returns a sentence if saving failed, otherwise None.
    """
    path = folder() / "progress" / f"{verdict.name}.json"
    new = Progress(verdict.name, verdict.passed, verdict.earned, float(verdict.points))
    try:
        old, note = _read(path)
        if old is None or (new.passed, new.earned) >= (old.passed, old.earned):
            write(path, json.dumps({"format": FORMAT, **asdict(new)}, indent=1) + "\n")
    except OSError as error:
        return f"Progress is not kept: {path}: {error.strerror}."
    return note


def read() -> tuple[dict[str, Progress], list[str]]:
    """Return all saved results by exercise, and a sentence for each unreadable file."""
    results: dict[str, Progress] = {}
    notes: list[str] = []
    for path in sorted((folder() / "progress").glob("*.json")):
        result, note = _read(path)
        if result is not None:
            results[result.exercise] = result
        if note is not None:
            notes.append(note)
    return results, notes


def _read(path: Path) -> tuple[Progress | None, str | None]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None, None
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']}")
        result = Progress(
            exercise=str(data["exercise"]),
            passed=data["passed"] is True,
            earned=float(data["earned"]),
            points=float(data["points"]),
        )
        if result.exercise != path.stem:
            raise ValueError(f"the result belongs to {result.exercise}")
    except (ValueError, KeyError, TypeError):  # the JSON is damaged
        aside = _set_aside(path)
        return None, f"{path} was damaged: it is renamed {aside.name}, and a new file begins."
    return result, None


def _set_aside(path: Path) -> Path:
    for number in itertools.count(1):
        aside = path.with_suffix(f".broken{number}")
        try:
            # link fails if the file exists, where a rename would overwrite the file
            os.link(path, aside)
        except FileExistsError:
            continue
        path.unlink()
        return aside
    raise AssertionError("unreachable")


def write(path: Path, text: str) -> None:
    """Write a file in full or not at all, in a folder that git ignores."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _keep_out_of_git()
    write_whole(path, text.encode())


def _keep_out_of_git() -> None:
    """Write a .gitignore, since the repository of a student does not ignore `.ddpkit`."""
    with contextlib.suppress(FileExistsError), open(folder() / ".gitignore", "x") as stream:
        stream.write("*\n")
