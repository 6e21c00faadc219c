"""Lessons for their readers: each picture has a sentence, and a lab takes the minutes of its
head."""

import re

import pytest

from ddpkit.authoring import Lesson
from ddpkit.authoring.notebook import load, text_of
from tests.project.source import lesson_in, sources

WORDS_A_MINUTE = 150  # words of a technical text, in a language that is not the reader's own
LEAST, MOST = 8, 15  # minutes of an exercise


@pytest.fixture(params=sources(), ids=lambda path: path.stem)
def lesson(request: pytest.FixtureRequest) -> Lesson:
    return lesson_in(request.param)


def test_each_picture_has_a_sentence_of_its_own(lesson: Lesson):
    """The sentence is above the picture, or below it before the next heading."""
    spoken, owed = True, ""
    for cell in load(lesson.path.with_suffix(".ipynb"))["cells"]:
        text = text_of(cell["source"])
        if cell["cell_type"] == "markdown":
            assert not (owed and text.startswith("#")), owed
            spoken, owed = spoken or not owed, ""
        elif any("image/png" in output.get("data", ()) for output in cell["outputs"]):
            assert not owed, owed
            spoken, owed = False, "" if spoken else f"nothing is said of the picture of {text!r}"
    assert not owed, owed


def test_a_lab_takes_the_minutes_that_its_head_says(lesson: Lesson):
    """The minutes follow from words and exercises above the first optional part.

    If the end is open, the count gives only the least minutes.
    """
    said, words, exercises = int(lesson.summary[1]), 0, 0
    open_end = "as long as you like" in lesson.cells[0].source
    for cell in lesson.cells:
        if cell.kind == "markdown" and "## Optional" in cell.source:
            break
        words += len(re.findall(r"\w+", cell.source)) if cell.kind == "markdown" else 0
        exercises += bool(cell.exercise)
    low, high = (words / WORDS_A_MINUTE + each * exercises for each in (LEAST, MOST))
    assert round(low) <= said <= (said if open_end else round(high))
