"""The table of labs in README and in docs/course.md, made from the lessons' headers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ddpkit.authoring.lesson import SUMMARY, Lesson
from ddpkit.errors import LessonError

HEAD = "| lab | you build | minutes | needs |\n|---|---|---|---|\n"


def make_readme(text: str, lessons: Sequence[Lesson]) -> str:
    """Return README with a row for each lesson. A text without the table is returned unchanged.

    Raises LessonError if a lesson's header lacks the values for the row.
    """
    return with_rows(text, HEAD, (_row(lesson, "labs/") for lesson in lessons))


def make_course(text: str, lessons: Sequence[Lesson]) -> str:
    """Return docs/course.md with a row for each lesson; links lead to the executed notebooks.

    Raises LessonError if a lesson's header lacks the values for the row.
    """
    return with_rows(text, HEAD, (_row(lesson, "../solutions/") for lesson in lessons))


def with_rows(text: str, head: str, rows: Iterable[str]) -> str:
    """Return a page with new rows in the table under `head`; the old rows are dropped."""
    before, found, after = text.partition(head)
    if not found:
        return text
    return "".join([before, head, *rows, re.sub(r"\A(\|.*\n)*", "", after)])


def table_of_labs(lessons: Sequence[Lesson], folder: str) -> str:
    """Return the table of labs, with links to the labs in `folder` ("" or "labs/").

    Raises LessonError if a lesson's header lacks the values for the row.
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
