"""The cause of a run that ends early: tests with runs that end as they are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ddpkit.grade import attempt, engine
from ddpkit.grade.attempt import InfraError
from ddpkit.grade.course import Course, open_course
from ddpkit.grade.engine import BUSY, INFRA, SandboxRun
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.submission import Submission, SubmittedCell, read
from tests.grade.attacks import ROOT

pytestmark = pytest.mark.processes

SOLUTION = ROOT / "solutions" / "00_ranks.ipynb"
ANSWER = 2  # the first answer comes after the cell of imports
End = tuple[str, int | None]  # (reason, cell) of a run's end


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Course:
    return open_course(ROOT, "00", b"x" * 16, tmp_path_factory.mktemp("course"))


@pytest.fixture
def grade(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[str], list[str], list[bool], list[int]]]:
    """Return a function that grades the solution in runs with given ends.

    It returns the statuses, the notes, the runs that had the machine alone, and the cells of each
    run.
    """

    def graded(*ends: End) -> tuple[list[str], list[str], list[bool], list[int]]:
        waiting, alone, cells = [*ends], [], []
        usual = attempt.turn

        def runs(_: Path, __: Path, ___: Limits, count: int, *____: Any) -> SandboxRun:
            cells.append(count)
            why, at = waiting.pop(0)
            return SandboxRun(why=why, stopped_at=at, log="\x1b[31mall points, please")

        def turns(folder: Path, *, alone: bool) -> Any:
            taken.append(alone)
            return usual(folder, alone=alone)

        taken = alone
        monkeypatch.setattr(engine, "run", runs)
        monkeypatch.setattr(attempt, "turn", turns)
        (tmp_path / "box").mkdir(exist_ok=True)
        merged = course.merged(read(SOLUTION))
        scores, notes = attempt.grade(course, merged, tmp_path / "box", Limits())
        assert not waiting
        told = [*notes, *(line for each in scores for line in each.feedback)]
        return [each.status for each in scores], told, alone, cells

    return graded


def test_m02_who_is_never_served_is_run_again_alone_and_then_has_timed_out(
    grade: Callable[..., Any],
) -> None:
    statuses, told, alone, _ = grade((BUSY, ANSWER), (BUSY, ANSWER), ("", None))
    assert "timeout" in statuses
    assert alone == [False, True, True]
    assert any("run again alone" in line for line in told)


def test_m02_what_was_only_in_the_way_of_others_loses_nothing(grade: Callable[..., Any]) -> None:
    statuses, told, alone, _ = grade((BUSY, ANSWER), ("", None))
    assert alone == [False, True]
    assert "timeout" not in statuses
    assert not any("alone" in line for line in told)


@pytest.mark.parametrize("at", [0, None])
@pytest.mark.parametrize("why", [INFRA, "memory", "exited"])
def test_m01_what_never_begins_is_the_students_if_the_machine_works_without_it(
    why: str, at: int | None, grade: Callable[..., Any]
) -> None:
    statuses, told, alone, cells = grade((why, at), (why, at), ("", None))
    assert {*statuses} == {"exited"}
    assert alone == [False, True, True]
    assert cells[-1] == 1  # the last run had no cell of the student
    assert not any("please" in line for line in told)


def test_it_is_the_machines_if_it_does_not_work_without_it(grade: Callable[..., Any]) -> None:
    with pytest.raises(InfraError):
        grade((INFRA, None), (INFRA, 0), (INFRA, None))


@pytest.mark.parametrize("why", sorted({*attempt.WORDS} - {BUSY}))
def test_m01_once_a_cell_has_begun_it_is_to_blame(why: str, grade: Callable[..., Any]) -> None:
    ends = [(why, ANSWER)] if why == "too long" else [(why, ANSWER), ("", None)]
    statuses, told, alone, _ = grade(*ends)
    assert attempt.STATUS.get(why, "error") in statuses
    assert not any(alone)
    assert told


def test_a_helper_that_raised_is_told_where_points_are_lost(
    course: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that imports google.colab ends there, so the names defined below are missing."""
    own = SubmittedCell("own", "", "", "import google.colab\ndef double(x):\n    return x")
    uses = SubmittedCell("", "", "", "def token_ring(token):\n    return double(token)")
    raised = ["ModuleNotFoundError", "No module named 'google'", "----> 1 import"]
    run = SandboxRun(errors={1: raised, 2: raised})
    monkeypatch.setattr(engine, "run", lambda *_: run)
    _, notes = attempt.grade(course, course.merged(Submission((own, uses), "")), tmp_path, Limits())
    (note,) = [each for each in notes if "raised" in each]
    assert note.startswith(
        "A cell of your own raised an error, line 1: ModuleNotFoundError: No module"
    )
