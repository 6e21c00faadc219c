"""`ddpkit lab --copy DIR`: the labs in a folder of the student's own, and newer ones later.

What a student has changed is never written over. To tell it from a copy that was only left lying,
the folder remembers in `.ddpkit/labs.json` what each lab was like when it was copied.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from ddpkit.errors import LessonError
from ddpkit.files import CHECKOUT, PACKAGE, write_whole


def labs_folder() -> Path:
    """Where the kit's labs are: beside the package in a checkout, inside it when installed."""
    inside = PACKAGE / "labs"
    return inside if inside.is_dir() else CHECKOUT / "labs"


def labs() -> list[Path]:
    """The kit's labs, in their order."""
    return sorted(labs_folder().glob("[0-9][0-9]_*.ipynb"))


def copy_labs(folder: Path) -> Iterator[tuple[str, str]]:
    """Copy every lab into `folder`, made if need be; tell of each (name, what was done with it).

    Raises LessonError, in one sentence, if the folder cannot be made or written to.
    """
    try:
        (folder / ".ddpkit").mkdir(parents=True, exist_ok=True)
        copied = _read(folder)
        for lab in labs():
            yield lab.name, _copy(lab.read_bytes(), folder / lab.name, copied)
            write_whole(folder / ".ddpkit" / "labs.json", json.dumps(copied, indent=1).encode())
    except OSError as error:
        raise LessonError(
            f"The labs cannot be copied to {folder}: {error.strerror or error}. "
            "Name a folder that you may write to."
        ) from error


def _copy(new: bytes, target: Path, copied: dict[str, str]) -> str:
    if not os.path.lexists(target):
        with target.open("xb") as file:
            file.write(new)
        done = "new"
    elif not target.is_file():
        return "not copied: something that is no file has its name"
    elif (old := target.read_bytes()) == new:
        done = "there already"
    elif _digest(old) == copied.get(target.name):
        write_whole(target, new)
        done = "renewed: the kit's has changed, and yours had not"
    else:
        return "kept, you have changed it (rename it and copy again for a fresh one)"
    copied[target.name] = _digest(new)
    return done


def _read(folder: Path) -> dict[str, str]:
    """What was copied before; nothing if nobody knows, and then changed is what is not the same."""
    try:
        known = json.loads((folder / ".ddpkit" / "labs.json").read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
