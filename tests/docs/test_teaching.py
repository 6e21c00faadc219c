"""The pages for teachers cover every lab and agree with its checks.

Classes do not get the pages.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import pytest

from ddpkit.answers import LABS
from ddpkit.authoring import Lesson
from ddpkit.authoring.lesson import SUMMARY
from ddpkit.authoring.syllabus import PATHS, PLANS, hours, make_syllabus, paths_table
from ddpkit.commands import handout
from ddpkit.exercises import exercises
from tests.labs.answers import hints_of
from tests.project.source import ROOT, lesson_in, lessons, sources

PAGES = {path.stem: path.read_text("utf-8") for path in (ROOT / "docs/teaching").glob("*.md")}
SYLLABUS = (ROOT / "docs/teaching.md").read_text("utf-8")
MOST_LINES = 70  # a teacher reads the page on the evening before
MISTAKE = re.compile(r"^- `(\w+)`, \*(.+?)\*: \S", re.MULTILINE)
KEY = re.compile(r"^   Key: (.+)$", re.MULTILINE)


@pytest.fixture(params=sources(), ids=lambda path: path.stem[:2])
def lesson(request: pytest.FixtureRequest) -> Lesson:
    return lesson_in(request.param)


def test_every_lab_has_a_page():
    assert [lesson.label for lesson in lessons() if lesson.number not in PAGES] == []


def test_a_page_names_mistakes_that_the_checks_know(lesson: Lesson):
    known = exercises()
    found = MISTAKE.findall(PAGES[lesson.number])
    hints = {each.name for name in lesson.exercises for each in hints_of(known[name])}
    assert len(found) >= min(4, len(hints))
    for name, hint in found:
        assert name in lesson.exercises
        names = {each.name for each in hints_of(known[name])}
        assert hint.replace("\\", "") in names, f"{name} has no hint {hint!r}"


def test_a_page_has_questions_and_a_key_to_what_is_written(lesson: Lesson):
    page = PAGES[lesson.number]
    title, _, ask, written = re.split(r"^## .*$", page, flags=re.MULTILINE)
    assert title.strip() == f"# {lesson.title}"
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == ["Common mistakes", "Ask", "Written"]
    assert len(re.findall(r"^\d\. \S", ask, re.MULTILINE)) >= 3
    questions = len(re.findall(r"^\d\. \S", written, re.MULTILINE))
    assert questions >= 2
    assert len(KEY.findall(written)) == questions
    assert len(page.splitlines()) <= MOST_LINES


def test_no_class_gets_a_page_for_teachers_or_a_line_of_a_key():
    labs = handout.blank_labs(ROOT)
    last = labs[-1].name[:2]  # the archive with the most answers
    with zipfile.ZipFile(io.BytesIO(handout.archive(ROOT, labs, last))) as archive:
        names = archive.namelist()
        text = "\n".join(archive.read(name).decode("utf-8", "ignore") for name in names)
    assert [name for name in names if "teaching" in Path(name).parts[1:]] == []
    keys = [key for page in PAGES.values() for key in KEY.findall(page)]
    assert [key for key in keys if key in text] == []


def test_the_syllabus_is_that_of_the_lessons():
    assert make_syllabus(SYLLABUS, lessons()) == SYLLABUS, "make release"
    points = sum(each.points for each in exercises().values())
    minutes = sum(int(lesson.summary[SUMMARY.index("minutes")]) for lesson in lessons())
    assert f"\n| all | {hours(lessons())} | {points:g} | {len(exercises())} | |\n" in SYLLABUS
    assert 0 <= 60 * _number(hours(lessons())) - minutes < 15, "in quarters of an hour, rounded up"


def test_the_number_that_says_all_labs_are_over_is_after_the_last_lab():
    (said,) = re.findall(r"`--open (\d\d)`, the number after the last lab", SYLLABUS)
    assert int(said) == int(lessons()[-1].number) + 1


def test_the_paths_of_the_start_page_have_labs_that_exist():
    linked = set(re.findall(r"\[(\d\d)\]", paths_table(lessons())))
    there = {lesson.number for lesson in lessons()}
    assert linked == {number for numbers in PATHS.values() for number in numbers} & there


ROWS = re.findall(r"^\| \d+ \| (\[.*) \| ([\d¼½¾]+) \| [\d.]+ \|$", SYLLABUS, re.MULTILINE)


@pytest.mark.parametrize(("links", "said"), ROWS)
def test_every_row_of_a_plan_has_its_files(links: str, said: str):
    """Each lab of a week has notebooks, checks and a page for the teacher."""
    labs = re.findall(r"\[(\d\d) (\w+)\]\((teaching/\d\d\.md)\)", links)
    assert len(labs) == links.count("[") >= 1
    for number, name, page in labs:
        files = (
            f"docs/{page}",
            f"labs/{number}_{name}.ipynb",
            f"solutions/{number}_{name}.ipynb",
            f"ddpkit/checks/lab{number}/__init__.py",
            f"ddpkit/answers/lab{number}.py",
        )
        assert [file for file in files if not (ROOT / file).is_file()] == []
    assert _number(said) <= 3.5, "a week, a day or a half day"


def carried(lesson: Lesson) -> set[str]:
    """Return the numbers of the labs from which a lesson carries answers."""
    names = re.findall(r'carry\("(\w+)"\)', "\n".join(cell.source for cell in lesson.cells))
    return {LABS[name].removeprefix("lab") for name in names}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_has_its_labs_in_an_order_that_works(name: str):
    _, weeks = PLANS[name]
    order = " ".join(weeks).split()
    assert order == sorted(set(order)), "an archive has the answers of all labs before its number"
    for week in weeks:
        opened, *_ = week.split()
        for lesson in lessons():
            if lesson.number in week.split():
                own = {number for number in order if number < lesson.number}
                missing = {number for number in carried(lesson) if number >= opened} - own
                assert not missing, f"--open {opened} lacks answers for lab {lesson.number}"


def test_a_long_term_has_every_lab_and_a_shorter_one_tells_the_length():
    _, weeks = PLANS["A term of 15 weeks"]
    assert len(weeks) == 15
    assert {lesson.number for lesson in lessons()} <= set(" ".join(weeks).split())
    assert len(PLANS["A term of 10 weeks"][1]) == 10
    assert len(PLANS["A workshop of two days"][1]) == 4
    assert len(PLANS["A week for engineers"][1]) == 5
    sessions = " ".join(PLANS["After a DDP of their own, as in CS336"][1]).split()
    assert sorted(sessions) == sorted(PATHS["a DDP of your own, as in CS336"])


def _number(text: str) -> float:
    quarters = {"¼": 0.25, "½": 0.5, "¾": 0.75}
    return float(text.rstrip("¼½¾") or 0) + quarters.get(text[-1], 0)


TEST_FILE = r"`((?:tests/[\w/]+/)?test_\w+\.py)`"
ATTACKS = re.findall(rf"^\|.*\| ([^|]*{TEST_FILE}[^|]*) \|$", SYLLABUS, re.MULTILINE)


def test_the_table_of_attacks_names_tests_that_exist():
    """Names are whole, or have dots in place of their rest: `test_m11_...`."""
    named = 0
    for cell, _ in ATTACKS:
        files = re.findall(TEST_FILE, cell)
        paths = [ROOT / ("" if "/" in file else "tests/grade") / file for file in files]
        text = "".join(path.read_text("utf-8") for path in paths)
        for name in re.findall(r"`((?:test_)?\.*\w+?(?:_\.\.\.)?)`", cell):
            named += 1
            pattern = re.escape(name.replace("...", ""))
            assert re.search(rf"^def \w*{pattern}", text, re.MULTILINE), f"{name} in {cell}"
    assert len(ATTACKS) > 15
    assert named > 10
