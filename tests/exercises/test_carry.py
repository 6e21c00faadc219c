"""The answer to an earlier lab: the student's own if its check passed, otherwise the kit's."""

import subprocess
import sys
import types

import cloudpickle
import pytest

import ddpkit
from ddpkit.errors import LessonError
from ddpkit.exercises import carry, check
from ddpkit.exercises.keep import kept_path


def kits_sum(numbers):
    return sum(numbers)


@pytest.fixture(autouse=True)
def kit(monkeypatch):
    """Replace the kit's answers by a module that has only `toy_sum`."""
    answers = types.ModuleType("ddpkit.answers")
    answers.get = {"toy_sum": kits_sum}.__getitem__
    monkeypatch.setitem(sys.modules, "ddpkit.answers", answers)
    monkeypatch.setattr(ddpkit, "answers", answers, raising=False)
    return answers


SOURCE = """
import math

def helper(numbers):
    return math.fsum(numbers)

def toy_sum(numbers):
    return int(helper(numbers))
"""


@pytest.fixture
def green(toy_sum, cell, capsys):
    check(cell(SOURCE)["toy_sum"])
    capsys.readouterr()


def test_without_a_green_check_it_is_the_kits(toy_sum, cell, capsys, folder):
    (folder / ".ddpkit").mkdir()  # `ddpkit lab --copy` makes this folder
    assert carry("toy_sum") is kits_sum
    sentence = "toy_sum: the kit's version; yours takes over once its check in lab 99 passes.\n"
    assert capsys.readouterr().out == sentence
    check(cell("def toy_sum(numbers): return 7")["toy_sum"])
    assert carry("toy_sum", quiet=True) is kits_sum


def test_after_a_green_check_it_is_the_students_own(green, capsys):
    mine = carry("toy_sum")
    assert capsys.readouterr().out == (
        "toy_sum: your own version, from .ddpkit/answers/toy_sum.py.\n"
    )
    assert mine([1, 2]) == 3
    assert mine is not kits_sum


def test_a_red_check_does_not_take_the_green_version_away(green, cell):
    check(cell("def toy_sum(numbers): return 7")["toy_sum"])
    assert carry("toy_sum")([1, 2]) == 3


@pytest.mark.processes
def test_what_is_carried_ships_by_value(green, tmp_path):
    (tmp_path / "toy_sum.pickle").write_bytes(cloudpickle.dumps(carry("toy_sum")))
    kept_path("toy_sum").unlink()
    code = "import pickle; print(pickle.load(open('toy_sum.pickle', 'rb'))([1, 2]))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "3\n"


@pytest.mark.processes
def test_a_carried_class_ships_by_value(green, tmp_path):
    path = kept_path("toy_sum")
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n\n"
        "@dataclass\nclass toy_sum:\n    n: int = 3\n"
    )
    (tmp_path / "toy.pickle").write_bytes(cloudpickle.dumps(carry("toy_sum")(4)))
    code = "import pickle; print(pickle.load(open('toy.pickle', 'rb')).n)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "4\n"


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        ("def toy_sum(:", "SyntaxError: "),
        ("x = 1 / 0", "ZeroDivisionError: division by zero"),
        ("x = 1", "KeyError: 'toy_sum'"),
        (
            "import nowhere_to_be_found",
            "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
    ],
)
def test_a_file_that_does_not_load_is_said_and_the_kits_taken(green, capsys, damage, why):
    kept_path("toy_sum").write_text(damage)
    assert carry("toy_sum") is kits_sum
    said = capsys.readouterr().out
    start = "toy_sum: the kit's version; yours (.ddpkit/answers/toy_sum.py) does not load: "
    assert said.startswith(start + why)
    assert said.count("\n") == 1


def test_a_folder_without_any_answers_is_named(toy_sum, capsys, folder, monkeypatch):
    carry("toy_sum")
    where = f"passes (there is no {folder / '.ddpkit'} yet).\n"
    assert capsys.readouterr().out.endswith(f"once its check in lab 99 {where}")
    # readers who set this variable know the folder
    monkeypatch.setenv("DDPKIT_PROGRESS", "elsewhere")
    carry("toy_sum")
    assert capsys.readouterr().out.endswith("once its check in lab 99 passes.\n")


@pytest.mark.parametrize("begun", [False, True])
def test_a_notebook_that_has_moved_says_where_the_answer_is(
    green, capsys, folder, monkeypatch, begun
):
    moved = folder / "mine" / "sub"
    (moved / ".ddpkit" if begun else moved).mkdir(parents=True)
    monkeypatch.chdir(moved)
    assert carry("toy_sum") is kits_sum
    assert capsys.readouterr().out == (
        f"toy_sum: the kit's version; yours is in {folder / '.ddpkit'}, "
        f"and this notebook looks in {moved / '.ddpkit'}.\n"
    )


def test_with_neither_it_names_the_lab(toy_sum, kit, monkeypatch, folder):
    kit.get = {}.__getitem__
    with pytest.raises(LessonError, match=rf"carry\(\) looked in {folder}/\.ddpkit\.$"):
        carry("toy_sum")
    kit.get = {}.__getitem__
    with pytest.raises(
        LessonError, match=r"no `toy_sum` to carry over\. Answer `toy_sum` in lab 99"
    ):
        carry("toy_sum")
    monkeypatch.delattr(ddpkit, "answers")
    monkeypatch.setitem(sys.modules, "ddpkit.answers", None)  # the grader's sandbox has no answers
    with pytest.raises(LessonError, match="Answer `toy_sum` in lab 99"):
        carry("toy_sum")


def test_an_unknown_name(toy_sum):
    with pytest.raises(LessonError, match="Did you mean `toy_sum`"):
        carry("toysum")


def test_an_answer_that_uses_a_carried_one_carries_it_again(green, registry, cell, tmp_path):
    """The later answer is kept with a line that carries the earlier answer, in its present form."""
    registry["toy_mean"] = registry["toy_sum"].__class__(
        "toy_mean", "91", 1, "", registry["toy_sum"].cases
    )
    namespace = {"__name__": "__main__", "add": carry("toy_sum", quiet=True)}
    check(cell("def toy_mean(numbers):\n    return add(numbers)", namespace)["toy_mean"])
    assert 'add = carry("toy_sum", quiet=True)' in kept_path("toy_mean").read_text()
    kept_path("toy_sum").write_text("def toy_sum(numbers):\n    return -1\n")
    assert carry("toy_mean")([1]) == -1
    before = kept_path("toy_mean").read_text().replace("from ddpkit ", "from ddpkit.lessons ")
    kept_path("toy_mean").write_text(before)  # the form of files before November 2026
    assert carry("toy_mean")([1]) == -1
    assert carry("toy_mean").__name__ == "toy_mean"


def test_the_line_of_a_carried_answer_is_found(green, cell, registry, capsys):
    kept_path("toy_sum").write_text("def toy_sum(numbers):\n    return 1 / 0\n")
    check(carry("toy_sum", quiet=True))
    assert "    toy_sum.py, line 2: return 1 / 0\n" in capsys.readouterr().out


def test_checking_a_carried_answer_keeps_it(green, capsys):
    before = kept_path("toy_sum").read_text()
    assert check(carry("toy_sum", quiet=True))
    assert kept_path("toy_sum").read_text() == before
