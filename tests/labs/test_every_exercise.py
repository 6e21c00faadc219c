"""The checks of the labs: wrong answers fail with their hints, and right answers pass.

No exercise is named here, so each new exercise gets the same tests.
"""

import ast
import json
import linecache
import re
from pathlib import Path

import pytest

from ddpkit.authoring import parse
from ddpkit.exercises import check, exercises, judge
from ddpkit.exercises.seeds import Seed
from ddpkit.exercises.verdict import verdict_text
from ddpkit.grade.questions import Answer
from ddpkit.grade.sandbox import bwrap
from tests.labs.answers import labs, wrong_answers

ROOT = Path(__file__).parents[2]
LESSONS = sorted((ROOT / "solutions").glob("[0-9]*.py"))
LABS = sorted((ROOT / "labs").glob("[0-9]*.ipynb"))
EXERCISES = exercises()
WRONG = [each for lab in labs() for each in wrong_answers(lab)]
PROOF = "tests/grade/test_course.py::test_every_lab_at_both_ends_and_in_between"
LEAST = 3  # wrong answers to each exercise, each with a hint of its own

each_exercise = pytest.mark.parametrize("name", EXERCISES)


def test_there_are_exercises():
    assert EXERCISES, "no exercise is registered: ddpkit/checks/labNN/cases.py"


@each_exercise
def test_an_exercise_has_wrong_answers_with_hints_of_their_own(name):
    hints = {wrong.hint for wrong in WRONG if wrong.exercise == name}
    assert len(hints) >= LEAST, hints


def test_every_wrong_answer_is_of_an_exercise():
    assert {wrong.exercise for wrong in WRONG} - set(EXERCISES) == set()


def _printed(name):
    """Return the output of an exercise's check in the executed lessons."""
    for path in sorted((ROOT / "solutions").glob("*.ipynb")):
        for cell in json.loads(path.read_text("utf-8"))["cells"]:
            if cell["metadata"].get("ddpkit", {}).get("check") == name:
                assert "nbval-check-output" in cell["metadata"]["tags"]
                return "".join(cell["outputs"][0]["text"])
    raise AssertionError(f"no executed lesson checks {name}")


@pytest.mark.processes("some")
@each_exercise
def test_the_kits_answer_passes_whatever_the_seed(name, monkeypatch, request):
    """The seed here is secret. nbval runs the public seed, and compares the output.

    In a run of all tests, the grader checks all answers under a secret seed, in its sandbox.
    """
    from ddpkit import answers

    if any(item.nodeid == PROOF for item in request.session.items) and not bwrap.trouble():
        pytest.skip(f"{PROOF} proves it in the sandbox")
    monkeypatch.setenv("DDPKIT_SEED", "a secret")
    verdict = judge(EXERCISES[name], answers.get(name))
    assert verdict, verdict_text(verdict)
    assert verdict.earned == verdict.points


@each_exercise
def test_what_the_kits_answer_prints_is_the_same_again(name):
    asked = EXERCISES[name].asks(Answer(name), Seed("a secret").rng(name))
    printed, count = _printed(name), len(list(asked))
    ends = f"{name}: passed, {count} of {count} cases. Your version is kept for later labs.\n"
    assert printed.endswith(ends)
    assert "0x" not in printed  # a memory address


@pytest.mark.processes("some")
@each_exercise
def test_an_exercise_fails_as_shipped_with_a_friendly_word(name, capsys):
    verdict = check(_as_shipped(name))
    said = capsys.readouterr().out
    assert not verdict
    sizes = [block.code_lines for block in _blocks(name)]
    assert said.startswith(f"{name}: not answered yet. Write your code (about ")
    assert said.count("\n") == 1
    assert re.findall(r"\d+", said.partition("(about")[2]) == [*map(str, sizes)]


@each_exercise
def test_an_exercise_says_what_it_is(name):
    exercise = EXERCISES[name]
    assert exercise.about
    assert exercise.points > 0
    assert exercise.cases.__module__ == f"ddpkit.checks.lab{exercise.lab}.cases"


def _blocks(name):
    """Return the solution blocks of an exercise's cell."""
    cells = (cell for path in LESSONS for cell in parse(path).cells if cell.exercise == name)
    return next(cells).blocks


def _as_shipped(name):
    """Run a lab's answer cell after the imports and definitions of the cells before."""
    found = [(path, at) for path in LABS for at, cell in enumerate(_cells(path)) if _is(cell, name)]
    assert len(found) == 1, f"{len(found)} answer cells for {name} in labs/"
    path, at = found[0]
    namespace = {"__name__": "__main__"}
    for number, cell in enumerate(_cells(path)[: at + 1]):
        source = "".join(cell["source"])
        filename = f"{path.stem}-cell-{number}.py"
        linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
        exec(compile(_definitions(source), filename, "exec"), namespace)
    return namespace[name]


def _cells(path):
    cells = json.loads(path.read_text("utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def _is(cell, name):
    return cell["metadata"].get("ddpkit", {}).get("exercise") == name


def _definitions(source):
    """Return the imports, functions and classes of a cell, without its slow demonstrations."""
    lines = [line for line in source.splitlines() if not line.startswith(("%", "!"))]
    tree = ast.parse("\n".join(lines))
    kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    tree.body = [node for node in tree.body if isinstance(node, kinds)]
    return tree
