"""docs/reading.md: the walk takes an hour, and its examples are where the things are."""

import ast
import re

import pytest

from tests.project.source import PACKAGE, ROOT

TEXT = (ROOT / "docs" / "reading.md").read_text("utf-8")
ANSWERS = dict(re.findall(r"^\| ([^|`]+?) \| `([\w/.]+)` \| [^|]+ \|$", TEXT, re.MULTILINE))

WALK = re.findall(r"^\*\*(\d+)\. `([\w.]+)`\*\* in `([\w/]+\.py)`\.$", TEXT, re.MULTILINE)
MINUTES = [int(each) for each in re.findall(r"^## .*: (\d+) minutes$", TEXT, re.MULTILINE)]
LINES = 500  # of code; a reader takes some eight in a minute

# For each question, the text that only the right place holds.
HELD = {
    "the rank that a failed run blames": r"^def blame\(",
    "the calls that a trace records": r"^COLLECTIVES = \{\n    \"allreduce\"",
    "the wording of a deadlock": r"The ranks wait for each other and none can go on",
    "a hint of lab 05": r"p.grad the view: p.grad = view",
    "the colour of exposed communication": r"^EXPOSED = \"#",
    "the price of a broadcast": r"^def broadcast\(n: int, length: int",
    "the files that count as the student's": r"^def is_user_file",
    "the time before a deadlock is declared": r"^PATIENCE_NS = ",
    "the text of a check for a blank exercise": r"not answered yet. Write your code",
    "the memory that a submission may use": r"^    memory: int = ",
}


def length(name: str, path: str) -> int:
    """Return the lines of a function, or of a method named `Class.method`."""
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text("utf-8")).body
    *classes, function = name.split(".")
    for each in classes:
        (body,) = (b.body for b in body if isinstance(b, ast.ClassDef) and b.name == each)
    (found,) = (b for b in body if isinstance(b, ast.FunctionDef) and b.name == function)
    assert found.end_lineno
    return found.end_lineno - found.lineno + 1


def test_the_walk_is_a_dozen_functions_and_takes_an_hour():
    assert [int(number) for number, _, _ in WALK] == list(range(1, 13))
    assert sum(MINUTES) == 60 == 5 * len(WALK)
    assert sum(length(name, path) for _, name, path in WALK) <= LINES


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
