"""Parsing a lesson: well-formed lessons, and the errors for others."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddpkit.authoring import Lesson, parse
from ddpkit.errors import LessonError

OPENING = "# %% [markdown]\n# # Title\n\n"


def write(folder: Path, text: str, name: str = "07_case.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_lesson_is_read(lesson: Lesson) -> None:
    assert (lesson.number, lesson.name, lesson.title) == ("00", "adding", "Adding up")
    assert lesson.stem == "00_adding"
    assert lesson.label == "solutions/00_adding.py"
    assert lesson.exercises == ("total", "Adder")
    assert [cell.kind for cell in lesson.cells].count("markdown") == 2


def test_a_cell_knows_its_line(lesson: Lesson) -> None:
    lines = lesson.path.read_text().splitlines()
    for cell in lesson.cells:
        assert cell.source.splitlines()[0] == lines[cell.line - 1].removeprefix("# ") or (
            cell.source.splitlines()[0] == lines[cell.line - 1]
        )


def test_ids_say_what_a_cell_is(lesson: Lesson) -> None:
    ids = [cell.id for cell in lesson.cells]
    assert {"answer-total", "check-total", "answer-Adder", "check-Adder"} <= set(ids)
    assert len(set(ids)) == len(ids)
    assert all(i.startswith(("answer-", "check-", "md-", "code-")) for i in ids)


def test_ids_stay_when_a_cell_is_inserted_before(lesson: Lesson, lesson_text: str) -> None:
    first, rest = lesson_text.split("# %%\n", 1)
    inserted = first + "# %% [markdown]\n# New.\n\n# %%\nnew = 1\n\n# %%\n" + rest
    later = parse(write(lesson.path.parent, inserted))
    before = [cell.id for cell in lesson.cells]
    after = [cell.id for cell in later.cells]
    assert after[0] == before[0]
    assert after[3:] == before[1:]


def test_equal_cells_have_different_ids(tmp_path: Path) -> None:
    cells = parse(write(tmp_path, OPENING + "# %%\na = 1\n\n# %%\na = 1\n")).cells
    assert cells[2].id == f"{cells[1].id}-2"


def test_comments_that_look_like_magics_stay_comments(tmp_path: Path) -> None:
    cells = parse(write(tmp_path, OPENING + "# %%\n# !important\n# %time\na = 1\n")).cells
    assert cells[1].source == "# !important\n# %time\na = 1"


def test_a_guess_is_dots_in_the_lab(tmp_path: Path) -> None:
    text = '# %% guess="token_ms"\ntoken_ms = (2 + 1) * 33.8  # α + β, in ms\n'
    cell = parse(write(tmp_path, OPENING + text)).cells[1]
    assert (cell.id, cell.solved) == ("guess-token_ms", "token_ms = (2 + 1) * 33.8  # α + β, in ms")
    assert cell.blank == "token_ms = ...  # α + β, in ms"


ANSWER = "def f():\n    # BEGIN SOLUTION\n    return 1\n    # END SOLUTION\n"
CHECKED = f'# %% exercise="f"\n{ANSWER}\n# %% check="f"\ncheck(f)\n'

MALFORMED = {
    "no end": (
        '# %% exercise="f"\ndef f():\n    # BEGIN SOLUTION\n    return 1\n',
        6,
        "without an '# END SOLUTION'",
    ),
    "no begin": (
        '# %% exercise="f"\ndef f():\n    return 1\n    # END SOLUTION\n',
        7,
        "without a '# BEGIN SOLUTION'",
    ),
    "nested": (
        '# %% exercise="f"\ndef f():\n    # BEGIN SOLUTION\n    # BEGIN SOLUTION\n    return 1\n'
        "    # END SOLUTION\n    # END SOLUTION\n",
        7,
        "the block in line 2 of the cell has no '# END SOLUTION'",
    ),
    "empty": (
        '# %% exercise="f"\ndef f():\n    """Doc."""\n    # BEGIN SOLUTION\n    # soon\n\n'
        "    # END SOLUTION\n",
        7,
        "no line of code between the markers",
    ),
    "marker outside an exercise": (f"# %%\n{ANSWER}", 6, "outside an exercise cell"),
    "marker in a text": ("# %% [markdown]\n# hm\n# BEGIN SOLUTION\n", 6, "in a text cell"),
    "nearly a marker": (
        '# %% exercise="f"\ndef f():\n    #BEGIN SOLUTION\n    return 1\n    # END SOLUTION\n',
        6,
        "write the marker exactly",
    ),
    "marker in lower case": (
        '# %% exercise="f"\ndef f():\n    # begin solution\n    return 1\n    # end solution\n',
        6,
        "write the marker exactly",
    ),
    "markers with different indentation": (
        '# %% exercise="f"\ndef f():\n    if True:\n        # BEGIN SOLUTION\n        return 1\n'
        "    # END SOLUTION\n",
        7,
        "indent both markers",
    ),
    "exercise without an answer": ('# %% exercise="f"\ndef f():\n    return 1\n', 5, "has no"),
    "exercise of another name": (CHECKED.replace("def f", "def g"), 5, "defines no f"),
    "the name only in the answer": (
        '# %% exercise="f"\n# BEGIN SOLUTION\ndef f():\n    pass\n# END SOLUTION\n',
        5,
        "defines no f",
    ),
    "exercise without a check": (f'# %% exercise="f"\n{ANSWER}', 5, "has no check cell"),
    "check without an exercise": ('# %% check="f"\ncheck(f)\n', 5, "that no cell above defines"),
    "check above its exercise": (
        f'# %% check="f"\ncheck(f)\n\n# %% exercise="f"\n{ANSWER}',
        5,
        "that no cell above defines",
    ),
    "check of something else": (CHECKED.replace("check(f)", "check(g)"), 11, "does not call"),
    "a second exercise of the name": (
        CHECKED + "\n" + CHECKED,
        14,
        "two cells have the id answer-f",
    ),
    "an unknown key": (f'# %% excercise="f"\n{ANSWER}', 5, "unknown excercise"),
    "an unknown tag": ('# %% tags=["answer"]\na = 1\n', 5, "tags"),
    "no name": (CHECKED.replace('"f"', '"a b"'), 5, "cannot name an exercise"),
    "a guess of another name": (
        '# %% guess="ms"\nseconds = 4\n',
        5,
        "must be the one line ms = NUMBER",
    ),
    "a guess of two lines": ('# %% guess="ms"\nms = 4\nprint(ms)\n', 5, "must be the one line"),
    "two roles": (f'# %% exercise="f" check="f"\n{ANSWER}', 5, "two roles in one cell"),
    "a raw cell": ("# %% [raw]\n# hm\n", 5, "a raw cell"),
    "an empty cell": ("# %%\n\n# %%\na = 1\n", 4, "an empty cell"),
    "invalid Python": ("# %%\na = \n", 5, "not valid Python"),
    "a statement over two cells": ("# %%\nif True:\n\n# %%\n    a = 1\n", 5, "not valid Python"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    text, line, message = MALFORMED[name]
    folder = tmp_path / "solutions"
    folder.mkdir()
    with pytest.raises(LessonError) as caught:
        parse(write(folder, OPENING + text))
    assert str(caught.value).startswith(f"solutions/07_case.py:{line}: ")
    assert message in str(caught.value)


def test_text_before_the_first_cell(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="before the first"):
        parse(write(tmp_path, "import os\n" + OPENING))


def test_a_jupytext_header_is_no_cell(tmp_path: Path) -> None:
    header = "# ---\n# jupyter:\n#   jupytext:\n#     main_language: python\n# ---\n\n"
    assert len(parse(write(tmp_path, header + OPENING)).cells) == 1


HEADER = "# ---\n# jupyter:\n#   ddpkit: {}\n# ---\n\n"


def test_a_header_says_what_readme_tells(tmp_path: Path) -> None:
    said = HEADER.format('{builds: "two: a, b", minutes: 30, needs: lab 00}')
    assert parse(write(tmp_path, said + OPENING)).summary == ("two: a, b", "30", "lab 00")
    assert parse(write(tmp_path, OPENING)).summary == ()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("two: a, b", "is not valid YAML"),
        ("{builds: a, minutes: 30}", "needs builds, minutes, needs"),
        ("{builds: a, minutes: 30, needs: b, more: c}", "needs builds, minutes, needs"),
        ("{builds: a, minutes: thirty, needs: b}", "needs builds, minutes, needs"),
        ('{builds: "a | b", minutes: 30, needs: b}', "without |"),
        ("{}", "needs builds, minutes, needs"),
    ],
)
def test_a_header_that_readme_cannot_use(said: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=message):
        parse(write(tmp_path, HEADER.format(said) + OPENING))


def test_no_title(tmp_path: Path) -> None:
    with pytest.raises(LessonError, match="Its title"):
        parse(write(tmp_path, "# %%\na = 1\n"))


@pytest.mark.parametrize("name", ["case.py", "07-case.py", "07_Case.py", "07_case.txt"])
def test_a_name_of_another_form(name: str, tmp_path: Path) -> None:
    with pytest.raises(LessonError, match=r"NN_name\.py"):
        parse(write(tmp_path, OPENING, name))
