"""No grade without a sandbox, and none where the course's own solution fails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.cli import main
from ddpkit.errors import GradeError
from ddpkit.grade import classroom, sandbox
from ddpkit.grade.attempt import InfraError
from ddpkit.grade.classroom import Classroom, Task
from ddpkit.grade.sandbox import Limits
from ddpkit.grade.score import Score
from tests.grade.attacks import solution


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (path := tmp_path / "lab.ipynb").write_text(json.dumps(solution()))
    return path


def test_without_a_sandbox_nothing_runs(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "trouble", lambda: "bwrap is refused here: no namespaces")
    done = CliRunner().invoke(main, ["grade", str(one), "--out", str(tmp_path / "out")])
    assert done.exit_code == 1
    assert "strangers' code" in done.output
    assert "no namespaces" in done.output
    assert not (tmp_path / "out").exists()


def test_a_solution_without_all_points_stops_the_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Score("who_waits", "fail", 2.0, 1.0, ("✗ 2 ranks",))
    monkeypatch.setattr(classroom, "grade", lambda *_: ([half], []))
    room = Classroom(Path(sandbox.PACKAGE).parent, tmp_path, b"x" * 16, tmp_path, Limits())
    with pytest.raises(GradeError, match="own solution of who_waits gets 1 of 2 points"):
        room.course("00")
    assert not (tmp_path / "proofs").exists()


def test_a_machine_that_fails_is_no_zero(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def fails(*_: object) -> None:
        tries.append(1)
        raise InfraError("too busy")

    room = Classroom(Path(sandbox.PACKAGE).parent, tmp_path, b"x" * 16, tmp_path, Limits())
    monkeypatch.setattr(Classroom, "_prove", lambda self, course: None)
    course = room.course("00")
    monkeypatch.setattr(classroom, "grade", fails)
    result = room.grade(Task("lab.ipynb", one), classroom.read(one), course, "key")
    assert (result.status, result.earned, len(tries)) == ("infra_error", None, 2)
    assert "too busy" in result.notes[0]


def test_a_secret_is_made_once_and_for_its_owner(tmp_path: Path) -> None:
    from ddpkit.grade.course import read_secret

    secret = read_secret(tmp_path / "secret")
    assert read_secret(tmp_path / "secret") == secret
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    (tmp_path / "short").write_text("abc")
    with pytest.raises(GradeError, match="16 characters"):
        read_secret(tmp_path / "short")
