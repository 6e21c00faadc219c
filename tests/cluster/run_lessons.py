"""Run lessons, one after the other, as one script of torchrun, so that the ranks start only once.

Each way to start the ranks runs one or two lessons from start to end; nbval runs all lessons. Run
all lessons under torchrun before a release: DDPKIT_ALL_LABS=1 make test ARGS="tests/cluster -m
torchrun"
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
    """Return lessons by number: `numbers`, or `of_all` if every lesson is to be run."""
    return [lesson for lesson in ALL if lesson.stem[:2] in (of_all if EVERY else numbers)]


HOSTS = ("00", "03", "06")  # lessons that run on two hosts only
ON_TOO_FEW = some("02", of_all=("00", "02", "03", "04", "06"))  # on two ranks; lesson 02 needs four
# Lists of lessons that one job runs. Newer lessons take longer, so each has a job of its own, on
# one host and on two hosts.
NEWER = [[lesson] for lesson in ALL if lesson.stem[:2] > "06"] if EVERY else []
ON_ONE_HOST = [some("04", of_all=("01", "02", "04", "05")), *NEWER]
ON_TWO_HOSTS = [some("00", "06", of_all=HOSTS), *NEWER]
# exercises judged by the time of a modelled machine; ranks of torchrun have no such machine
TIMED = ("train_fast",)


def named(lessons: Iterable[Path]) -> str:
    """Return the numbers of the lessons, for the name of a test case."""
    return "_".join(lesson.stem[:2] for lesson in lessons)


def checked(lessons: Iterable[Path]) -> list[str]:
    """Return the exercises that lessons check and torchrun can check, in order."""
    sources = "".join(lesson.read_text("utf-8") for lesson in lessons)
    found = re.findall(r"^check\((\w+)\)", sources, re.MULTILINE)
    return [name for name in found if name not in TIMED]


def passed(output: str) -> list[str]:
    """Return the exercises that passed, according to an output."""
    return re.findall(r"^(\w+): passed", output, re.MULTILINE)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        runpy.run_path(path, run_name="__main__")
