"""Lessons as a script for torchrun, one after the other: its ranks start once for all."""

import re
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

SCRIPT = Path(__file__)
ALL = sorted((SCRIPT.parents[2] / "solutions").glob("[0-9][0-9]_*.py"))
ON_TWO_HOSTS = [lesson for lesson in ALL if lesson.stem[:2] in ("00", "03", "06")]


def checked(lessons: Iterable[Path]) -> list[str]:
    """The exercises that are checked in lessons, in their order."""
    sources = "".join(lesson.read_text("utf-8") for lesson in lessons)
    return re.findall(r"^check\((\w+)\)", sources, re.MULTILINE)


def passed(output: str) -> list[str]:
    """The exercises that an output says have passed."""
    return re.findall(r"^(\w+): passed", output, re.MULTILINE)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        runpy.run_path(path, run_name="__main__")
