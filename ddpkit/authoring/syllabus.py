"""The hours of the course: the syllabus of docs/teaching.md, and the paths of the start page."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ddpkit.authoring.lesson import SUMMARY, Lesson
from ddpkit.authoring.readme import with_rows
from ddpkit.errors import LessonError
from ddpkit.exercises import exercises

SYLLABUS = "| lab | hours | points | exercises | needs |\n|---|---|---|---|---|\n"
PATHS_HEAD = "| you have | labs | hours |\n|---|---|---|\n"
PATHS = {  # numbers of labs; an empty tuple means all labs
    "a week": ("00", "01", "03", "06"),
    "a term": (),
    "a job where training is slow": ("06", "07", "09", "14"),
    "a job with long sequences": ("02", "12", "16"),
    "a job that runs out of memory": ("04", "13", "18"),
}
QUARTERS = ("", "¼", "½", "¾")


def make_syllabus(text: str, lessons: Sequence[Lesson]) -> str:
    """Return a page with a row for each lesson, and a last row with the sums.

    A page without the table is returned unchanged. Raises LessonError if a lesson's header lacks
    the minutes.
    """
    if SYLLABUS not in text:
        return text
    rows = [_row(lesson) for lesson in lessons]
    count = sum(len(lesson.exercises) for lesson in lessons)
    rows.append(f"| all | {hours(lessons)} | {points(lessons):g} | {count} | |\n")
    return with_rows(text, SYLLABUS, rows)


def paths_table(lessons: Sequence[Lesson]) -> str:
    """Return a table with a row for each path through the course: the existing labs, the hours."""
    rows = []
    for name, numbers in PATHS.items():
        chosen = [each for each in lessons if not numbers or each.number in numbers]
        links = [f"[{each.number}]({each.stem}.ipynb)" for each in chosen]
        rows.append(f"| {name} | {', '.join(links) if numbers else 'all'} | {hours(chosen)} |\n")
    return PATHS_HEAD + "".join(rows)


def hours(lessons: Sequence[Lesson]) -> str:
    """Return the hours of the lessons, rounded up to quarters: "1½"."""
    quarters = math.ceil(sum(map(_minutes, lessons)) / 15)
    whole = quarters // 4
    return f"{whole or ''}{QUARTERS[quarters % 4]}" or "0"


def points(lessons: Sequence[Lesson]) -> float:
    """Return the sum of the points of all exercises in the lessons."""
    known = exercises()
    return sum(known[name].points for lesson in lessons for name in lesson.exercises)


def _row(lesson: Lesson) -> str:
    needs = lesson.summary[SUMMARY.index("needs")] if lesson.summary else ""
    link = f"[{lesson.number} {lesson.name}](teaching/{lesson.number}.md)"
    count = len(lesson.exercises)
    return f"| {link} | {hours([lesson])} | {points([lesson]):g} | {count} | {needs} |\n"


def _minutes(lesson: Lesson) -> int:
    said = lesson.summary[SUMMARY.index("minutes")] if lesson.summary else ""
    if not said.isdigit():
        raise LessonError(
            f"{lesson.label}: the header lacks the lab's length: add `minutes: N` under `ddpkit:`."
        )
    return int(said)
