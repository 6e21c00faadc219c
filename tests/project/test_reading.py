"""docs/reading.md leads somewhere, and its four examples are where the things are."""

import re

import pytest

from tests.project.source import PACKAGE, ROOT

TEXT = (ROOT / "docs" / "reading.md").read_text("utf-8")
ANSWERS = dict(re.findall(r"^\| ([^|`]+?) \| `([\w/.]+)` \| [^|]+ \|$", TEXT, re.MULTILINE))

# Of each question: what only the right place holds.
HELD = {
    "the wording of a deadlock": r"The ranks wait for each other and none can go on",
    "a hint of lab 05": r"Let it be the view: p.grad = view",
    "the colour of exposed communication": r"^EXPOSED = \"#",
    "the price of a broadcast": r"^def broadcast\(n: int, length: int",
    "who counts as the student's file": r"^def is_user_file",
    "the time before a deadlock is declared": r"^PATIENCE_NS = ",
    "what a check says of a blank": r"not answered yet. Write your code",
    "the memory that a submission may use": r"^    memory: int = ",
}


def test_every_path_exists():
    named = re.findall(r"`([\w./]+(?:/|\.py))`", TEXT)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_the_walk_enters_every_room():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"answers", "data"}
    assert sorted(room for room in rooms if f"ddpkit/{room}/" not in TEXT) == []


@pytest.mark.parametrize("question", HELD)
def test_an_answer_is_the_one_place_that_holds_it(question: str):
    place = ROOT / ANSWERS[question]
    pattern = re.compile(HELD[question], re.MULTILINE)
    holders = [path for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert holders
    assert all(path == place or place in path.parents for path in holders), holders


def test_every_example_is_tried():
    assert ANSWERS.keys() == HELD.keys()
