"""The hours of the course: the syllabus of docs/teaching.md, and the paths of the start page."""

from __future__ import annotations

import math
import re
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
    "a DDP of your own, as in CS336": (
        *("03", "09", "10", "11", "12", "13", "14", "16", "17", "18", "19", "20"),
    ),
}
# For each plan the name of its rows, and the labs of each row. Lessons that do not exist are left
# out, and so is a row without lessons. The numbers ascend, because `ddpkit handout --open N` gives
# out the answers of all labs before lab N.
PLANS = {
    "A term of 15 weeks": (
        "week",
        (
            *("00 01", "02", "03", "04 05", "06", "07", "08", "09", "10", "11"),
            *("12", "13 14", "15 16", "17 18", "19 20"),
        ),
    ),
    "A term of 10 weeks": (
        "week",
        (
            *("00 01 02", "03 04", "05 06", "07 09", "10"),
            *("11 12", "13 14", "15 16", "17 18", "20"),
        ),
    ),
    "A workshop of two days": ("half day", ("00 01 02", "03 04", "05 06", "09")),
    "A week for engineers": ("day", ("00 02", "06 07", "09 13", "14 15", "18 20")),
    "After a DDP of their own, as in CS336": (
        "session",
        ("03", "09", "10", "11 12", "13 14", "16 17", "18 19", "20"),
    ),
}
ALL_OVER = re.compile(r"`--open \d\d`, the number after the last lab")
PLANS_BEGIN = "<!-- plans, made by `make release` -->\n"
PLANS_END = "<!-- end of plans -->\n"
QUARTERS = ("", "¼", "½", "¾")


def make_syllabus(text: str, lessons: Sequence[Lesson]) -> str:
    """Return a page with a row for each lesson, a last row with the sums, and all plans.

    The page also gets the number for `--open` when all labs are over: the last lab's number plus 1.

    A page without the table is returned unchanged. Raises LessonError if a lesson's header lacks
    the minutes.
    """
    if SYLLABUS not in text:
        return text
    rows = [_row(lesson) for lesson in lessons]
    count = sum(len(lesson.exercises) for lesson in lessons)
    rows.append(f"| all | {hours(lessons)} | {points(lessons):g} | {count} | |\n")
    page = with_rows(text, SYLLABUS, rows)
    after_all = f"`--open {int(lessons[-1].number) + 1:02}`, the number after the last lab"
    page = ALL_OVER.sub(after_all, page)
    before, begin, rest = page.partition(PLANS_BEGIN)
    _, end, after = rest.partition(PLANS_END)
    if not end:
        return page
    return "".join([before, begin, plans_tables(lessons), end, after])


def plans_tables(lessons: Sequence[Lesson]) -> str:
    """Return a table for each plan; a row has some labs, with the sum of hours and of points."""
    known = {lesson.number: lesson for lesson in lessons}
    tables = []
    for name, (row, plan) in PLANS.items():
        lines = [f"**{name}**\n", f"| {row} | labs | hours | points |", "|---|---|---|---|"]
        weeks = [[known[each] for each in week.split() if each in known] for week in plan]
        for number, labs in enumerate(filter(None, weeks), 1):
            links = ", ".join(f"[{each.number} {each.name}]({_page(each)})" for each in labs)
            lines.append(f"| {number} | {links} | {hours(labs)} | {points(labs):g} |")
        tables.append("\n".join(lines) + "\n")
    return "\n" + "\n".join(tables) + "\n"


def paths_table(lessons: Sequence[Lesson]) -> str:
    """Return a table of the paths through the course: the name, labs and hours of each path."""
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


def _page(lesson: Lesson) -> str:
    """Return the link from docs/teaching.md to the teacher's page of a lab."""
    return f"teaching/{lesson.number}.md"


def _row(lesson: Lesson) -> str:
    needs = lesson.summary[SUMMARY.index("needs")] if lesson.summary else ""
    link = f"[{lesson.number} {lesson.name}]({_page(lesson)})"
    count = len(lesson.exercises)
    return f"| {link} | {hours([lesson])} | {points([lesson]):g} | {count} | {needs} |\n"


def _minutes(lesson: Lesson) -> int:
    said = lesson.summary[SUMMARY.index("minutes")] if lesson.summary else ""
    if not said.isdigit():
        raise LessonError(
            f"{lesson.label}: the header lacks the lab's length: add `minutes: N` under `ddpkit:`."
        )
    return int(said)
