"""Search for submitted notebooks, with a readable name for each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ddpkit.errors import GradeError

ENDING = ".ipynb"
MOST_DEPTH = 32  # levels of folders; deeper folders are ignored
MOST_ENTRIES = 200_000  # files and folders read below one folder
MOST_NOTEBOOKS = 1000  # notebooks in one folder and the folders below it
OTHERS = ("__pycache__", "node_modules", "site-packages")  # folders of tools


@dataclass(frozen=True)
class HandedIn:
    """A submitted notebook that `find` has found.

    name     its path inside the given folder, used by results and reports
    path     its place on disk
    turn     the number of notebooks that come before it in the same top folder
    refused  the reason to refuse it unread; "" if there is none
    """

    name: str
    path: Path
    turn: int = 0
    refused: str = ""


def find(given: Sequence[Path]) -> list[HandedIn]:
    """Return the notebooks in some files and folders, sorted by name.

    Links to folders are not followed. Raises GradeError if there are no notebooks, or if two
    notebooks have the same name.
    """
    notebooks: dict[str, HandedIn] = {}
    for root in dict.fromkeys(given):
        for path, turn, refused in _in(root):
            name = readable(str(path.relative_to(root)) if path != root else path.name)
            if name in notebooks and notebooks[name].path != path:
                raise GradeError(
                    f"Two submissions are called {name}: rename one, or put them into different "
                    "folders."
                )
            notebooks[name] = HandedIn(name, path, turn, refused)
    if not notebooks:
        raise GradeError("There are no notebooks (*.ipynb) to grade.")
    return [notebooks[name] for name in sorted(notebooks)]


def readable(name: str) -> str:
    """Return a name that people can read.

    A name with invisible characters gets a digest as well, so that the result is unique.
    """
    seen = "".join(
        letter if letter.isprintable() else "�" for letter in name.encode(errors="replace").decode()
    )
    return name if seen == name else f"{seen} {_digest(name)}"


def _digest(name: str) -> str:
    return f"#{hashlib.sha256(os.fsencode(name)).hexdigest()[:8]}"


def _in(root: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield (path, turn, refused), the fields of a HandedIn, for each notebook below a folder."""
    if not root.is_dir():
        if not (root.is_symlink() or root.exists()):
            raise GradeError(f"There is no file or folder {readable(str(root))}.")
        yield root, 0, ""
        return
    top: list[Path] = []
    for entry in _entries(root):
        if entry.is_dir(follow_symlinks=False):
            if not _is_a_tools(entry.name):
                yield from _of_one(Path(entry))
        elif entry.name.endswith(ENDING):
            top.append(Path(entry))
    yield from ((path, 0, "") for path in top)


def _of_one(folder: Path) -> Iterator[tuple[Path, int, str]]:
    """Yield the notebooks in a top folder, first those in outer folders."""
    found: list[Path] = []
    level, looked = [folder], 0
    for _ in range(MOST_DEPTH):
        below: list[Path] = []
        for each in level:
            for entry in _entries(each):
                looked += 1
                if entry.is_dir(follow_symlinks=False):
                    if not _is_a_tools(entry.name):
                        below.append(Path(entry))
                elif entry.name.endswith(ENDING):
                    found.append(Path(entry))
            if looked > MOST_ENTRIES:
                break
        level = below
        if not level or looked > MOST_ENTRIES:
            break
    yield from ((path, turn, "") for turn, path in enumerate(found[:MOST_NOTEBOOKS]))
    if len(found) > MOST_NOTEBOOKS or looked > MOST_ENTRIES:
        why = (
            f"it holds {len(found):,} notebooks in {looked:,} files: the first {MOST_NOTEBOOKS} "
            "are graded; for more, give `ddpkit grade` this folder itself"
        )
        yield folder, MOST_NOTEBOOKS, why


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, sorted by name; an empty list if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)
    return []


def _is_a_tools(name: str) -> bool:
    """True for the name of a folder that a tool makes, such as .ipynb_checkpoints."""
    return name.startswith(".") or name in OTHERS
