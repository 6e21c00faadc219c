"""Limits on the length of the texts in a result.

Feedback quotes exceptions, values and outputs of the student's code. The code chooses these texts
and the student reads them, so without limits, feedback could carry files out of the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ddpkit.grade.score import Score

LINE = 600  # characters of a line: room for a case with three wrong values
LINES, TEXT = 60, 3000  # limits of lines and of characters in an exercise's feedback
NOTES, NOTE_TEXT = 12, 3000  # limits of notes on a submission, and of characters in all notes
WHOLE = 24_000  # limit of characters in all feedback on a submission
CUT = "…"
LEFT_OUT = "(The rest is left out.)"


def quoted(scores: Sequence[Score], notes: Iterable[str]) -> tuple[list[Score], list[str]]:
    """Return the scores and notes with all texts cut to the limits."""
    told, left = [], WHOLE
    for one in scores:
        feedback = _within(one.feedback, LINES, min(TEXT, left))
        left -= sum(map(len, feedback))
        told.append(replace(one, feedback=tuple(feedback)))
    return told, _within(notes, NOTES, NOTE_TEXT)


def _within(lines: Iterable[str], most: int, characters: int) -> list[str]:
    """Return the first lines, each cut to LINE characters.

    If lines are left out, the result ends with the line LEFT_OUT.
    """
    kept: list[str] = []
    for line in (cut(each) for each in lines):
        characters -= len(line)
        if len(kept) == most or characters < 0:
            return [*kept, LEFT_OUT]
        kept.append(line)
    return kept


def cut(text: str, most: int = LINE) -> str:
    """Return the text, cut to `most` characters; "…" at the end shows a cut."""
    return text if len(text) <= most else f"{text[: most - 1]}{CUT}"
