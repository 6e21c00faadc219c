"""docs/reading.md: the walk takes an hour, and ten answers name existing code."""

import ast
import re

import pytest

from tests.project.source import PACKAGE, ROOT

TEXT = (ROOT / "docs" / "reading.md").read_text("utf-8")
WALK = re.findall(r"^\*\*(\d+)\. `([\w.]+)`\*\* in `([\w/]+\.py)`\.$", TEXT, re.MULTILINE)
MINUTES = [int(each) for each in re.findall(r"^## .*: (\d+) minutes$", TEXT, re.MULTILINE)]
LINES = 500  # lines of code; a reader takes some eight in a minute

NAMED = re.compile(r"`([\w.]+)`(?:\*\*)? in `([\w/]+\.py)`")
QUESTIONS = TEXT.partition("## Ten questions\n")[2]
ANSWERS: dict[str, str] = dict(
    re.findall(r"^\*\*\d+\. ([^`*]+\?)\*\*\n(.*?)(?:\n\n|\Z)", QUESTIONS, re.MULTILINE | re.DOTALL)
)

# question -> a text in the answer's first file, and in no second file
HELD = {
    "Where do I add a collective?": r"^COLLECTIVES = \{\n    \"allreduce\"",
    "Which code decides the rank at fault in a failed run?": r"^def blame\(",
    "When does ddpkit call a run a deadlock?": r"^    def _deadlock\(self",
    "Where does the time of an emulated broadcast come from?": r"^def broadcast\(n: int, length",
    "Where do I add a GPU that users can name?": r"^def named\(\) -> Mapping",
    "How does a question reach the student's function in the sandbox, and how does the claim come "
    "out?": r"^def ask\(key: str",
    "Where do I add a hint to lab 05, and which hint does a student see?": (
        r"p.grad the view: p.grad = view"
    ),
    "Which code notices a generated file that is out of date?": r"^def check\(root: Path",
    "Where do I add a still picture?": r"^def show_limits\(",
    "Where does cuda become the CPU, for a script on a computer without a GPU?": (
        r"^def _let_cuda_mean_the_cpu\("
    ),
}


def defined(name: str, path: str) -> list[ast.stmt]:
    """Return the definitions of `name`, or `Class.name`, in a file: functions, classes, values."""
    body: list[ast.stmt] = ast.parse((ROOT / path).read_text("utf-8")).body
    *classes, last = name.split(".")
    for each in classes:
        (body,) = (b.body for b in body if isinstance(b, ast.ClassDef) and b.name == each)
    return [statement for statement in body if last in _binds(statement)]


def _binds(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Assign(targets=targets):
            return {each.id for each in targets if isinstance(each, ast.Name)}
        case ast.AnnAssign(target=ast.Name(id=name)):
            return {name}
    return set()


def length(name: str, path: str) -> int:
    """Return the lines of a function, or of a method named `Class.method`."""
    (found,) = defined(name, path)
    assert isinstance(found, ast.FunctionDef)
    assert found.end_lineno
    return found.end_lineno - found.lineno + 1


def test_the_walk_is_a_dozen_functions_and_takes_an_hour():
    assert [int(number) for number, _, _ in WALK] == list(range(1, 13))
    assert sum(MINUTES) == 60 == 5 * len(WALK)
    assert sum(length(name, path) for _, name, path in WALK) <= LINES


def test_the_pages_before_the_walk_have_as_many_words_as_the_walk_says():
    (told,) = re.findall(r"have ([\d,]+) words", TEXT)
    pages = (ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "docs" / "reading.md")
    words = sum(len(page.read_text("utf-8").split()) for page in pages)
    assert 0.9 < int(told.replace(",", "")) / words < 1.1


def test_every_path_exists():
    named = re.findall(r"`([\w./]+(?:/|\.py))`", TEXT)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_name_is_defined_in_its_file():
    named = NAMED.findall(TEXT)
    assert len(named) > 25
    assert [each for each in named if not defined(*each)] == []


def test_the_walk_enters_every_room():
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"answers", "data"}
    assert sorted(room for room in rooms if f"ddpkit/{room}/" not in TEXT) == []


def test_ten_questions_have_answers_and_each_is_tried():
    numbers = re.findall(r"^\*\*(\d+)\. ", QUESTIONS, re.MULTILINE)
    assert numbers == [str(number) for number in range(1, 11)]
    assert ANSWERS.keys() == HELD.keys()


@pytest.mark.parametrize("question", HELD)
def test_an_answer_begins_with_the_one_place_that_holds_it(question: str):
    _, place = NAMED.findall(ANSWERS[question])[0]
    pattern = re.compile(HELD[question], re.MULTILINE)
    holders = [path for path in PACKAGE.rglob("*.py") if pattern.search(path.read_text("utf-8"))]
    assert holders == [ROOT / place]


@pytest.mark.parametrize("question", HELD)
def test_an_answer_names_only_code_of_its_files(question: str):
    """A word in code quotes is a path, or stands in a file named by the answer."""
    answer = ANSWERS[question]
    files = re.findall(r"`([\w/]+\.py)`", answer)
    defining = "\n".join((ROOT / path).read_text("utf-8") for path in files)
    names = {each.rpartition(".")[2] for each in re.findall(r"`([A-Za-z_.]+)`", answer)}
    assert [name for name in names if not re.search(rf"\b{name}\b", defining)] == []
