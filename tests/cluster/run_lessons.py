"""Lessons as a script for torchrun, one after the other: its ranks start once for all.

Each way of starting them runs one or two from start to end; nbval runs all of them. All of them
under torchrun, before a release: DDPKIT_ALL_LABS=1 make test ARGS="tests/cluster -m torchrun"
"""

import os
import re
import runpy
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

SCRIPT = Path(__file__)
ALL = sorted((SCRIPT.parents[2] / "solutions").glob("[0-9][0-9]_*.py"))
EVERY = "DDPKIT_ALL_LABS" in os.environ


def some(*numbers: str, of_all: Collection[str]) -> list[Path]:
    """Lessons by number: a few, or, if every lesson is to be run, those of the second list."""
    return [lesson for lesson in ALL if lesson.stem[:2] in (of_all if EVERY else numbers)]


HOSTS = ("00", "03", "06")  # on two hosts, and not on one besides
ON_TOO_FEW = some("02", of_all=("00", "02", "03", "04", "06"))  # two ranks, where it needs four
# Lessons that one job runs. The newer ones take longer: a job for each, on one host and on two.
NEWER = [[lesson] for lesson in ALL if lesson.stem[:2] > "06"] if EVERY else []
ON_ONE_HOST = [some("04", of_all=("01", "02", "04", "05")), *NEWER]
ON_TWO_HOSTS = [some("00", "06", of_all=HOSTS), *NEWER]
TIMED = ("train_fast",)  # judged by a modelled machine's time: ranks of torchrun have none


def named(lessons: Iterable[Path]) -> str:
    """Their numbers, for the name of a case."""
    return "_".join(lesson.stem[:2] for lesson in lessons)


def checked(lessons: Iterable[Path]) -> list[str]:
    """The exercises that are checked in lessons, in their order, and can be under torchrun."""
    sources = "".join(lesson.read_text("utf-8") for lesson in lessons)
    found = re.findall(r"^check\((\w+)\)", sources, re.MULTILINE)
    return [name for name in found if name not in TIMED]


def passed(output: str) -> list[str]:
    """The exercises that an output says have passed."""
    return re.findall(r"^(\w+): passed", output, re.MULTILINE)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        runpy.run_path(path, run_name="__main__")
