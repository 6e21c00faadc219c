"""README's table of labs: a row for each lesson, of what its header says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ddpkit.authoring.lesson import SUMMARY, Lesson
from ddpkit.errors import LessonError

HEAD = "| lab | you build | minutes | needs |\n|---|---|---|---|\n"


def make_readme(text: str, lessons: Sequence[Lesson]) -> str:
    """README with the rows that `lessons` make; a text without the table comes back as it is.

    LessonError: a lesson does not say what its row is to tell.
    """
    return with_rows(text, HEAD, (_row(lesson, "labs/") for lesson in lessons))


def with_rows(text: str, head: str, rows: Iterable[str]) -> str:
    """A page in which the table with this head has these rows, whatever it had."""
    before, found, after = text.partition(head)
    if not found:
        return text
    return "".join([before, head, *rows, re.sub(r"\A(\|.*\n)*", "", after)])


def table_of_labs(lessons: Sequence[Lesson], folder: str) -> str:
    """A row for each lesson, with a link to its lab in `folder` ("" or "labs/").

    LessonError: a lesson does not say what its row is to tell.
    """
    return HEAD + "".join(_row(lesson, folder) for lesson in lessons)


def _row(lesson: Lesson, folder: str) -> str:
    if not lesson.summary:
        raise LessonError(
            f"{lesson.label}: the header lacks the facts for README's table of labs: add "
            f"{', '.join(SUMMARY)} under `jupyter:` and `ddpkit:`."
        )
    link = f"[{lesson.number} {lesson.name}]({folder}{lesson.stem}.ipynb)"
    return f"| {' | '.join([link, *lesson.summary])} |\n"
