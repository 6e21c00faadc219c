"""Explanations of exceptions for students: the error, and the student's line that raised it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import TracebackType

from ddpkit.errors import DdpkitError, RankError, RunFailed
from ddpkit.exercises.guard import Careless
from ddpkit.exercises.limit import TookTooLong
from ddpkit.source import is_user_file, locate, source_line
from ddpkit.text import BLANK, MESSAGE

MAX_LINES = 6  # lines of a run's explanation; the student's own run shows the rest
# explanations leave this text out, because the class's name says nothing to a student
CARELESS = f" raised {Careless.__name__}: "
WHY = "Why: "  # the beginning of an explanation's best line
ELSEWHERE = "No line of yours raised this: the check called your code, or read its result."


@dataclass(frozen=True)
class Explanation:
    """The explanation of an exception that ended a case: a headline, and further lines."""

    summary: str
    lines: tuple[str, ...] = ()


def explain(error: BaseException) -> Explanation:
    """Return the headline and the details of an exception that ended an answer."""
    if isinstance(error, DdpkitError):  # the text of this error is written for students
        first, *rest = _whole(error).strip().splitlines() or [type(error).__name__]
        lines = [line.strip() for line in rest if line.strip()]
        return Explanation(first.replace(CARELESS, ": "), tuple(_shortened(lines)))
    if isinstance(error, TookTooLong):
        return Explanation(str(error), tuple(filter(None, [error.place])))
    if isinstance(error, Careless):
        return Explanation(str(error), tuple(filter(None, [student_line(error)])))
    summary = f"{type(error).__name__}: {_message(error)}".removesuffix(": ")
    place = student_line(error)
    return Explanation(summary, (place or ELSEWHERE,))


def _whole(error: DdpkitError) -> str:
    """Return an error's text, with a short message of the first rank joined into one line.

    A check shows the first line of the text in the row of the case. The further lines come below
    the rows of all cases, far from the first line.
    """
    text = str(error)
    raised = error.raised if isinstance(error, RankError) else {}
    message = raised[min(raised)].message if raised else ""
    line = " ".join(message.split())
    return text.replace(message, line, 1) if message and len(line) <= MESSAGE else text


def _shortened(lines: list[str]) -> list[str]:
    """Return about `MAX_LINES` of the lines, among them always the line that begins with WHY.

    If many ranks wait, the lines about the first ranks are enough.
    """
    at = next((at for at, line in enumerate(lines) if line.startswith(WHY)), len(lines))
    before, why = lines[:at], lines[at:]
    if len(lines) <= MAX_LINES:
        return lines
    room = max(MAX_LINES - len(why), 2)
    left = len(before) - room + 1
    if left > 1:
        before[room - 1 :] = [f"… ({left} more lines when you run it yourself)"]
    return [*before, *why[:MAX_LINES]]


def _message(error: BaseException) -> str:
    try:
        first = next(iter(str(error).strip().splitlines()), "")
    except Exception:  # a student's exception class may be broken too
        return ""
    return first if len(first) <= MESSAGE else first[: MESSAGE - 1] + "…"


def student_line(error: BaseException) -> str | None:
    """Return the innermost line of the student's code in a traceback, or None.

    An example: "Cell In[5], line 3: return token / 0".
    """
    place = None
    traceback: TracebackType | None = error.__traceback__
    while traceback is not None:
        filename = traceback.tb_frame.f_code.co_filename
        if is_user_file(filename):
            place = filename, traceback.tb_lineno
        traceback = traceback.tb_next
    if place is None:
        return None
    return f"{locate(*place)}: {source_line(*place)}".removesuffix(": ")


def is_unanswered(error: BaseException) -> bool:
    """True if the error is the NotImplementedError of an exercise that is not yet answered.

    Libraries raise NotImplementedError too, with different messages.
    """
    if isinstance(error, NotImplementedError):
        return str(error).startswith(BLANK) or not error.args
    if not isinstance(error, RunFailed):
        return False
    cause = error.__cause__
    return (cause is not None and is_unanswered(cause)) or f"Error: {BLANK}" in str(error)


def size_of_blanks(source: str | None) -> str:
    """Return the lengths of an answer's gaps in words: "about 4, 7 and 9 lines"; "" if unknown."""
    sizes = re.findall(rf"{BLANK}: about (\d+) line", source or "")
    return f"about {', '.join(sizes[:-1])} and {sizes[-1]} lines" if len(sizes) > 1 else ""


def size_of_blank(error: BaseException) -> str:
    """Return the length of the answer, from the stub's message: "about 8 lines"; "" if unknown."""
    found = re.search(rf"{BLANK}: (about \d+ lines?)", str(error))
    if found is None and error.__cause__ is not None:
        return size_of_blank(error.__cause__)
    return found.group(1) if found else ""
