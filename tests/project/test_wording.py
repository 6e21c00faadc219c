"""The words of docstrings, comments, strings, lessons and pages: no room becomes worse."""

from pathlib import Path

import pytest

from tests.project import wording
from tests.project.wording import LIMIT, Measured, Room, Text

ROOM = ("ddpkit/trace", "docstrings")
GOOD = "Return the trace of a run. " * 100
BOUNDS = "ddpkit/trace docstrings: what/who 1.00 % (6), pronouns 8.00 % (48), beginnings 1\n"


def room(*said: str, room: Room = ROOM) -> dict[Room, list[Text]]:
    """Return a room with these texts."""
    return {room: [Text(room, Path("ddpkit/trace/x.py"), 1, each) for each in said]}


def rising(texts: dict[Room, list[Text]], bounds: str = "") -> list[Room]:
    return [found for found, _, _ in wording.rising(texts, wording.read(bounds))]


def test_no_room_has_more_weak_words_than_its_line_allows():
    assert wording.report() == ""


def test_every_line_names_a_room_in_order():
    bounds = wording.read(wording.NUMBERS.read_text("utf-8"))
    assert [found for found in bounds if found not in wording.rooms()] == []


@pytest.mark.parametrize(
    "added",
    ["What a rank has.", "Return it, and those of others, or the one that this has.", "Who waits."],
)
def test_a_weak_text_makes_a_good_room_rise(added: str):
    assert rising(room(GOOD)) == []
    assert rising(room("Return a trace.", *[added] * 10)) == [ROOM]


def test_a_weak_text_makes_a_room_rise_above_its_line_too():
    weak = ["Return what a rank has."] * 6
    assert rising(room(GOOD, *weak), BOUNDS) == []
    assert rising(room(GOOD, *weak, *weak), BOUNDS) == [ROOM]
    assert rising(room(GOOD, "Whether it is.", "How it is."), BOUNDS) == [ROOM]


def test_a_text_that_is_taken_out_makes_no_room_rise():
    weak = ["Return what a rank has."] * 6
    assert Measured.of(room(*weak)[ROOM]).shares > wording.read(BOUNDS)[ROOM].shares
    assert rising(room(*weak), BOUNDS) == []


def test_numbers_only_fall():
    better = room(GOOD, *["Return what a rank has."] * 2)
    lowered = wording.lower(better, wording.read(BOUNDS))
    assert lowered == f"ddpkit/trace docstrings: {Measured.of(better[ROOM])}\n"
    worse = room(*["Whether it is what it was."] * 99)
    assert wording.lower(worse, wording.read(BOUNDS)) == BOUNDS


def test_a_good_room_needs_no_line():
    assert wording.lower(room(GOOD), wording.read(BOUNDS)) == ""
    assert wording.lower({}, wording.read(BOUNDS)) == ""
    assert rising(room(GOOD)) == []


def test_of_two_lines_that_a_merge_left_the_lower_numbers_hold():
    other = "ddpkit/trace docstrings: what/who 0.50 % (3), pronouns 9.00 % (60), beginnings 0\n"
    both = wording.read(BOUNDS + other)
    assert both == wording.read(other + BOUNDS)
    assert both[ROOM] == Measured((0.5, 8.0, 0.0), (3, 48, 0))


SOURCE = '''"""A module."""

# of all ranks,
# as they are
x = f"Rank {x} waits for {y}"  # too late
"""No docstring, no string."""


def f():
    """Whether `it` is so."""
    return "one two" + "a.b(c.d)" + "Start more ranks"
'''


def test_a_module_has_docstrings_comments_and_strings():
    texts = list(wording.texts_of(Path("ddpkit/trace/x.py"), SOURCE))
    assert {text.room[0] for text in texts} == {"ddpkit/trace"}
    assert [(text.room[1], text.line, text.said) for text in texts] == [
        ("docstrings", 1, "A module."),
        ("docstrings", 10, "Whether `it` is so."),
        ("comments", 3, "of all ranks,\nas they are"),
        ("comments", 5, "too late"),
        ("strings", 5, "Rank … waits for …"),
        ("strings", 11, "Start more ranks"),
    ]
    assert [text.weak() for text in texts] == [
        [],
        ["Whether …", "so"],
        ["of …", "they"],
        ["too …"],
        [],
        [],
    ]
    assert Measured.of(texts).counts == (0, 2, 3)


LESSON = """# ---
# jupyter: what
# ---

# %% [markdown]
# # 01 · What it is
#
# ```
# what who
# ```
# Ranks `what` wait[^1](what.md).

# %%
x = 1  # by hand
"""


def test_a_lesson_has_cells():
    texts = list(wording.texts_of(Path("solutions/01_x.py"), LESSON))
    found = [(*text.room, text.line, text.weak()) for text in texts if text.weak()]
    assert found == [
        ("solutions/01_x.py", "cells", 6, ["what", "it"]),
        ("solutions/01_x.py", "comments", 1, ["what"]),
        ("solutions/01_x.py", "comments", 14, ["by …"]),
    ]


def test_generated_and_dated_files_are_not_measured():
    for path in ("ddpkit/answers/lab01.py", "CHANGELOG.md", "BENCHMARKS.md", "labs/01.ipynb"):
        assert list(wording.texts_of(Path(path), "# what it is\n")) == []


def test_the_report_names_new_texts_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    file = tmp_path / "wording.txt"
    file.write_text("", "utf-8")
    monkeypatch.setattr(wording, "NUMBERS", file)
    texts = room(*["Whether it is."] * 5, "Whether rank 0 has this.")
    monkeypatch.setattr(wording, "rooms", lambda: texts)
    monkeypatch.setattr(wording, "_before", lambda path: frozenset({"Whether it is."}))
    said = wording.report()
    assert "ddpkit/trace docstrings: what/who 0.00 % (0), pronouns 1.50 % (6), beginnings 6" in said
    assert "  ddpkit/trace/x.py:1: (Whether …, this) Whether rank 0 has this." in said
    assert "Whether it is." not in said
    assert str(LIMIT) in said
