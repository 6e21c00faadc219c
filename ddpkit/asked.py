"""The exercises that are asked now, and the refusal of the kit's functions to answer them.

An exercise is asked while its check runs. The kit has functions that predict schedules, times,
buckets and groups, and some exercises ask readers to write such a function. A function of the kit
with the answer to an exercise names the exercise in its first line: ``not_for("gpipe")``. While the
exercise is asked, the function raises `NotYourOwn` for a call from the answer's code, direct or
through other code. Calls from checks, from lessons and from the runtime of ranks succeed.

A check asks one exercise at a time. In the grader's sandbox all exercises of the lab are asked from
start to end, so a notebook cannot keep a table of the kit's answers.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType

from ddpkit.source import PACKAGE, is_question, is_user_file

VARIABLE = "DDPKIT_ASKED"  # names of exercises: "gpipe one_f_one_b"
CALLER = os.path.join(PACKAGE, "exercises", "guard.py")  # the code that calls an answer in a check
AT_WORK = tuple(  # code of the kit that may call functions with answers
    os.path.join(PACKAGE, *part)
    for part in (
        *(("checks", ""), ("cluster", ""), ("rank", "group", ""), ("rank", "emulation", "")),
        ("mesh", "training.py"),
    )
)

_asked = frozenset(os.environ.get(VARIABLE, "").split())


class NotYourOwn(RuntimeError):
    """An answer is a function of the kit, or calls such a function."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is the kit's own answer to the exercise: write code of your own")


def now() -> frozenset[str]:
    """Return the names of the exercises that are asked now."""
    return _asked


def ask(exercises: Iterable[str]) -> None:
    """Set the exercises that are asked, until the next `ask` or the end of the process."""
    global _asked
    _asked = frozenset(exercises)


@contextmanager
def asking(exercise: str) -> Iterator[None]:
    """Add an exercise to the asked exercises during the `with` block."""
    before = _asked
    ask({*before, exercise})
    try:
        yield
    finally:
        ask(before)


def not_for(*exercises: str) -> None:
    """Raise `NotYourOwn` if one of `exercises` is asked and an answer calls the kit's function.

    The kit's function is the caller of `not_for`.
    """
    if not _asked.isdisjoint(exercises) and (called := _called_by_an_answer(sys._getframe(1))):
        raise NotYourOwn(f"{called.f_globals['__name__']}.{called.f_code.co_qualname}")


def _called_by_an_answer(frame: FrameType) -> FrameType | None:
    """Return the frame of the kit's function that the reader's code has called, or None.

    Code of libraries and of the kit may stand between the reader's code and `frame`. On a thread
    without a line of the reader's code, a call counts as the reader's.
    """
    called = frame
    for caller in _callers(frame):
        filename = caller.f_code.co_filename
        if filename == CALLER or is_user_file(filename):
            break
        if filename.startswith(AT_WORK) or is_question(filename):
            return None
        if filename.startswith(PACKAGE):
            called = caller
    return called


def _callers(frame: FrameType) -> Iterator[FrameType]:
    while (caller := frame.f_back) is not None:
        yield caller
        frame = caller
