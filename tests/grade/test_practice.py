"""`ddpkit check --as-graded`: the grader's own way, with a seed that is no secret."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.exercises.seeds import Seed
from ddpkit.grade import practice
from ddpkit.grade.merge import merge
from ddpkit.grade.practice import Practised, practise
from ddpkit.grade.questions import exercises_of, questions
from ddpkit.grade.sandbox import levels
from ddpkit.grade.submission import Submission, read
from tests.grade.attacks import ROOT, SHIFT, TOKEN, answer, before, cell, code, notebook, solution
from tests.grade.conftest import needs_sandbox
from tests.grade.honest import HONEST, cells_of
from tests.grade.mutated import of_other_makes
from tests.labs.answers import labs

SOME = ("02", "06", "11")  # messages; classes that call each other; autograd and modules of others


def unusual() -> dict[str, Any]:
    """Return lab 00, right, with all forms that once lost points (h03 to h09, h21)."""
    made = solution()
    before(made, TOKEN, "from torch.distributed import *")
    before(made, TOKEN, "%%capture said\ndef my_copy(t):\n    return t.clone()")
    before(made, TOKEN, "WAYS = {}\ndef way(f):\n    WAYS[f.__name__] = f\n    return f")
    before(made, TOKEN, "@way\ndef add_rank(t):\n    t += get_rank() + 1")
    before(made, TOKEN, "class Step:\n    pass\ndef fill():\n    Step.last = -1")
    before(made, TOKEN, "fill()")
    text = (
        code(made, TOKEN).replace("token.clone()", "my_copy(token)").replace("- 1", "+ Step.last")
    )
    answer(made, TOKEN, f"%%time\n{text}")
    better = code(made, SHIFT).replace("x.clone()", "like(x)")
    check = cell(made, f"check-{SHIFT}")
    check["source"] = f"def like(t):\n    return t.clone()\n\ncheck({SHIFT})"
    answer(
        made,
        SHIFT,
        f"def {SHIFT}(x):\n    # raise NotImplementedError('your code here')\n    1 / 0",
    )
    at = made["cells"].index(check)
    own = {"cell_type": "code", "id": "own", "metadata": {}, "source": better, "outputs": []}
    made["cells"].insert(at, own)
    return made


def practised(made: dict[str, Any], folder: Path, limit: float = 60) -> Practised:
    path = folder / "lab.ipynb"
    path.write_text(json.dumps(made))
    return practise(path, ROOT / "labs", folder / ".ddpkit" / "answers", "a seed", limit)


@pytest.fixture(params=["bwrap", "own account"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "bwrap":
        needs_sandbox()
    else:
        monkeypatch.setattr(levels, "level", lambda: levels.USER)


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.usefixtures("place")
def test_unusual_and_right_gets_all_points(tmp_path: Path) -> None:
    done = practised(unusual(), tmp_path)
    told = [line for one in done.scores for line in one.feedback]
    assert [(one.name, one.earned) for one in done.scores] == [(TOKEN, 2), (SHIFT, 2)], told
    assert done.lab == "00"


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lab", labs())
def test_right_answers_of_other_makes_get_all_points(
    lab: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right answer of these tests for each exercise of a few labs passes the grader.

    DDPKIT_ALL_MUTANTS=1 grades all of the more than 80 answers of all labs, which takes minutes. In
    tests/labs/labNN, each answer passes in the notebook and in the grader without a sandbox.
    """
    every = "DDPKIT_ALL_MUTANTS" in os.environ
    if lab not in SOME and not every:
        pytest.skip("other makes of all labs in the grader take minutes: DDPKIT_ALL_MUTANTS=1")
    monkeypatch.setattr(levels, "level", lambda: levels.USER)
    notebooks = of_other_makes(lab)
    for made in notebooks if every else notebooks[:1]:
        for one in practised(made, tmp_path).scores:
            assert (one.name, one.status, one.earned) == (one.name, "pass", one.points), (
                one.feedback
            )


@pytest.mark.processes
@pytest.mark.slow
def test_the_command_tells_what_the_grader_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "level", lambda: levels.USER)
    (path := tmp_path / "monday.ipynb").write_text(json.dumps(notebook("wrong_and_deadlocked")))
    before = path.read_bytes()
    done = CliRunner().invoke(main, ["check", "--as-graded", str(path), "--seed", "a seed"])
    assert done.exit_code == 1
    assert f"✗ {TOKEN}  " in done.output
    assert "of 2, deadlock\n" in done.output
    assert "Hint: " in done.output
    assert ", expected " in done.output  # the seed is no secret
    assert "points as graded for lab 00, with inputs of --seed a seed." in done.output
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


SLEEPS = """\
    import time
    while dist.get_rank() == 1:
        time.sleep(0.01)
    return token"""


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (SLEEPS, "rank 1 was in"),
        ("    torch.futures.Future().wait()", "rank 3 was in"),  # a wait in C++
    ],
)
def test_what_never_ends_is_ended_and_says_where_it_was(
    body: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the case ends: the same kernel grades the next exercise."""
    monkeypatch.setattr(levels, "level", lambda: levels.USER)
    made = solution()
    answer(made, TOKEN, f"def {TOKEN}(token):\n{body}")
    ring, shift = practised(made, tmp_path, limit=24).scores
    assert (ring.name, ring.status, ring.earned) == (TOKEN, "timeout", 0), ring.feedback
    assert says in " ".join(ring.feedback)
    assert shift.status == "pass", shift.feedback


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "the file is not JSON"),
        ('{"nbformat": 4, "cells": []}', "answers no exercise of any lab"),
    ],
)
def test_what_is_no_lab_is_said(tmp_path: Path, content: str, says: str) -> None:
    (path := tmp_path / "x.ipynb").write_text(content)
    done = CliRunner().invoke(main, ["check", "--as-graded", str(path)])
    assert done.exit_code == 1
    assert says in done.output
    assert "Traceback" not in done.output


def test_what_is_expected_is_shown_under_a_seed_that_is_no_secret() -> None:
    (exercise,) = (each for each in exercises_of("00") if each.name == TOKEN)
    shown: Callable[[Seed], bool] = lambda seed: all(  # noqa: E731
        each.shown >= set(each.case.expect) for each in questions(exercise, seed)
    )
    assert shown(Seed("a seed"))
    assert not shown(Seed("a seed", secret=True))


def test_whose_earlier_answers_were_used_is_known() -> None:
    """A student's GradientBuckets with extra features is not available in the grader."""
    lab = read(next((ROOT / "labs").glob("06_*.ipynb")))
    solved = read(next((ROOT / "solutions").glob("06_*.ipynb")))
    plain = Submission(cells_of(HONEST["plain"]), "")
    ddp = ["DistributedDataParallel"]
    assert practice._carries(merge(lab.cells, ddp, solved))
    assert not practice._carries(merge(lab.cells, ddp, plain))


def test_own_earlier_answers_come_along_where_the_kit_has_none(tmp_path: Path) -> None:
    """The archive for a class has no answers of open labs."""
    answers, kept = tmp_path / "course" / "answers", tmp_path / "kept"
    for folder in (answers, kept):
        folder.mkdir(parents=True)
    (answers / "__init__.py").write_text("LABS = {'token_ring': 'lab00'}\n")
    (answers / "lab00.py").write_text("")
    for name in ("token_ring", "reduce", "unknown"):
        (kept / f"{name}.py").write_text(f"def {name}(x):\n    return x\n")
    (kept / "gather.py").write_text("def gather(x):\n    return y +\n")
    practice._carry_along(kept, answers.parent)
    assert sorted(path.name for path in answers.glob("kept_*")) == ["kept_reduce.py"]
    space: dict[str, Any] = {}
    exec((answers / "__init__.py").read_text(), space)
    assert space["LABS"] == {"token_ring": "lab00", "reduce": "kept_reduce"}
