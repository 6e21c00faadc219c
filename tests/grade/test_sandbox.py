"""No grade without a sandbox, and no grade if the course's own solution fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import GradeError
from ddpkit.grade import classroom, store
from ddpkit.grade.attempt import InfraError, grade
from ddpkit.grade.classroom import Classroom
from ddpkit.grade.course import open_course
from ddpkit.grade.found import HandedIn
from ddpkit.grade.sandbox import base, bwrap, levels
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.score import Score
from ddpkit.grade.submission import read
from tests.grade.attacks import ROOT, solution
from tests.grade.conftest import needs_sandbox


@pytest.fixture
def one(tmp_path: Path) -> Path:
    (path := tmp_path / "lab.ipynb").write_text(json.dumps(solution()))
    return path


def test_without_a_sandbox_nothing_runs(
    one: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "level", lambda: levels.USER)
    monkeypatch.setattr(bwrap, "trouble", lambda: "bwrap is refused here: no namespaces")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    done = CliRunner().invoke(
        main, ["grade", "--lab", "00", str(one), "--out", str(tmp_path / "out")]
    )
    assert done.exit_code == 1
    assert "the students' code" in done.output
    assert "no namespaces" in done.output
    assert "only root can" in done.output
    assert not (tmp_path / "out").exists()


@pytest.mark.processes
def test_a_solution_without_all_points_stops_the_grading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = Score("who_waits", "fail", 2.0, 1.0, ("✗ 2 ranks",))
    monkeypatch.setattr(classroom, "grade", lambda *_: ([half], []))
    room = Classroom(Path(base.PACKAGE).parent, tmp_path, b"x" * 16, tmp_path, Limits())
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

    room = Classroom(Path(base.PACKAGE).parent, tmp_path, b"x" * 16, tmp_path, Limits())
    monkeypatch.setattr(Classroom, "_prove", lambda self, course: None)
    course = room.course("00")
    monkeypatch.setattr(classroom, "grade", fails)
    result = room.grade(HandedIn("lab.ipynb", one), classroom.read(one), course, "key")
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


@pytest.mark.processes
def test_what_tells_answers_is_covered_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Libraries may contain a wheel of ddpkit, a checkout below them, and libraries in the
    checkout."""
    needs_sandbox()
    prefix = tmp_path / "prefix"
    checkout = prefix / "src" / "ddpkit"
    seen = [checkout / ".venv" / "lib" / "python3" / "site-packages" / "torch.py"]
    hidden = [
        prefix / "lib" / "python3.11" / "site-packages" / "ddpkit" / "answers" / "lab03.py",
        checkout
        / ".venv"
        / "lib"
        / "python3"
        / "site-packages"
        / "ddpkit"
        / "checks"
        / "lab03"
        / "cases.py",
        checkout / "solutions" / "03_all_reduce.py",
        checkout / "ddpkit" / "answers" / "lab03.py",
    ]
    for path in (*seen, *hidden):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    usual = list(bwrap._readable())
    readable = [*usual, prefix, checkout / ".venv"]
    monkeypatch.setattr(bwrap, "_readable", lambda: iter(readable))
    monkeypatch.setattr(bwrap, "PACKAGE", checkout / "ddpkit")
    monkeypatch.setattr(bwrap, "CHECKOUT", checkout)
    (course := tmp_path / "course" / "ddpkit").mkdir(parents=True)
    (job := tmp_path / "job").mkdir()
    arguments = bwrap.mounts(course, job, 1 << 20)
    find = ["find", str(prefix), "-name", "*.py"]
    done = subprocess.run(
        ["bwrap", *bwrap.ISOLATION, *bwrap.AS_ONESELF, *arguments, "--", *find],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(path) for path in seen]


def test_the_solution_of_another_lab_earns_nothing(tmp_path: Path) -> None:
    """The file is graded as this lab; without `--lab`, its answers would show the other lab."""
    course = open_course(ROOT, "00", b"x" * 16, tmp_path)
    (other,) = (ROOT / "solutions").glob("01_*.ipynb")
    merged = course.merged(read(other))  # no cell runs
    scores, _ = grade(course, merged, tmp_path / "work", Limits())
    assert {(one.status, one.earned) for one in scores} == {("not_run", 0.0)}
    assert scores[0].feedback == (f"There is no cell that defines {course.names[0]}.",)


FULL = """
mount -t tmpfs -o size=80k none "$1" || exit 77
"$2" -m ddpkit grade "$3" --lab 00 --out "$1/out" --secret "$4"; first=$?
cp -r "$1/out" "$5"
mount -o remount,size=8m "$1"
"$2" -m ddpkit grade "$3" --lab 00 --out "$1/out" --secret "$4" --resume; test $? = 4 || exit 1
cp -r "$1/out" "$6"
exit $first
"""


@pytest.mark.processes
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """The grader reports a full disk, writes whole files only, and resumes when there is space."""
    needs_sandbox()
    for name in ("disk", "in"):
        (tmp_path / name).mkdir()
    for number in range(60):
        (tmp_path / "in" / f"{number:02}.ipynb").write_text("no notebook")
    (tmp_path / "secret").write_text("x" * 16)
    asked_after = [
        tmp_path / "disk",
        sys.executable,
        *(tmp_path / n for n in ("in", "secret", "a", "b")),
    ]
    command = ["unshare", "-m", "sh", "-c", FULL, "sh", *map(str, asked_after)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()[:100]}")
    assert done.returncode == 1
    assert "cannot be written: No space left on device" in done.stderr
    first, all_of_them = store.load(tmp_path / "a"), store.load(tmp_path / "b")
    assert 0 < len(first) < 60 == len(all_of_them)
    assert all_of_them[: len(first)] == first
    assert not [path for path in (tmp_path / "a").rglob("*") if path.suffix not in ("", ".json")]
