"""One file never stops a class: odd files beside a plain one, and the words about each.

No sandbox is needed here: the plain file is refused too, because it has no answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import GradeError
from ddpkit.grade import apart, classroom, found, reading, store, workplace
from ddpkit.grade.attempt import InfraError
from ddpkit.grade.classroom import Classroom
from ddpkit.grade.course import Course, points_of
from ddpkit.grade.found import HandedIn, find
from ddpkit.grade.merge import Merged
from ddpkit.grade.reading import read_apart
from ddpkit.grade.sandbox import levels
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.store import Result
from ddpkit.grade.submission import Refused
from tests.grade.attacks import ROOT, TOKEN, answer, code, solution
from tests.grade.conftest import wait_until

EMPTY = json.dumps({"nbformat": 4, "cells": []})


def written(path: Path, text: str = EMPTY) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture(autouse=True)
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(levels, "require", lambda private: None)
    monkeypatch.setattr(levels, "level", lambda: levels.BWRAP)
    monkeypatch.setattr(Classroom, "_prove", lambda self, course: None)


def graded(*arguments: str | Path) -> tuple[int, str]:
    """Return the exit status of `ddpkit grade` and its output."""
    handler = signal.getsignal(signal.SIGTERM)
    try:
        done = CliRunner().invoke(main, ["grade", "--open", "01", *map(str, arguments)])
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, done.stdout_bytes.decode()


@pytest.mark.processes
def test_m03_a_class_with_half_a_character_is_graded(tmp_path: Path) -> None:
    for text in ('{"cells": [], "nbformat": "\\ud800"}', '{"\\ud800": 1}', '"\\u001b[2J"'):
        written(tmp_path / "in" / f"{len(text)}.ipynb", text)
    written(tmp_path / "in" / "b" / "plain.ipynb")
    code, said = graded(tmp_path / "in", "--out", tmp_path / "out")
    assert code == 4  # the code tells a script that all files were refused
    assert "nbformat '\\ud800'" in said
    assert "b/plain.ipynb  Refused: the notebook answers no exercise of any lab" in said
    assert "\x1b" not in said
    assert len(store.load(tmp_path / "out")) == 4


def test_m06_names_that_look_the_same_are_two(tmp_path: Path) -> None:
    (tmp_path / "alice").mkdir()
    names = ["lab\x01.ipynb", "lab\x02.ipynb", "lab\u202e.ipynb", os.fsdecode(b"lab\xff.ipynb")]
    for name in names:
        (tmp_path / "alice" / name).write_text("")
    handed_in = find([tmp_path])
    assert {each.path.name for each in handed_in} == {*names}
    assert len({each.name for each in handed_in}) == 4
    assert all(each.name.isprintable() for each in handed_in)
    assert not any(each.name.endswith(".ipynb") for each in handed_in)  # no file has such a name


@pytest.mark.processes
def test_reading_nested_folders(tmp_path: Path) -> None:
    written(tmp_path / "b" / "lab.ipynb")
    start = os.getcwd()
    try:  # name by name, because a path of 1100 names has too many characters
        (tmp_path / "a").mkdir()
        os.chdir(tmp_path / "a")
        for _ in range(1100):
            os.mkdir("deep")
            os.chdir("deep")
    finally:
        os.chdir(start)
    assert [each.name for each in find([tmp_path])] == ["b/lab.ipynb"]
    subprocess.run(["rm", "-rf", str(tmp_path / "a")], check=True)


def test_reading_ten_thousand_notebooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One student's first notebooks are graded after everybody's first; a note names the rest."""
    monkeypatch.setattr(found, "MOST_NOTEBOOKS", 20)
    for number in range(30):
        written(tmp_path / "mallory" / f"{number % 7}" / f"{number:02}.ipynb")
    for name in ("alice", "zoe"):
        for number in range(3):
            written(tmp_path / name / f"{number}.ipynb")
    written(tmp_path / "alice" / ".venv" / "lib" / "example.ipynb")
    written(tmp_path / "alice" / "env" / "site-packages" / "x" / "example.ipynb")
    handed_in = find([tmp_path])
    assert len(handed_in) == 20 + 1 + 6
    (rest,) = (each for each in handed_in if each.refused)
    assert (rest.name, "30 notebooks" in rest.refused) == ("mallory", True)
    asked: list[str] = []

    def ready(notebook: HandedIn, *_: object) -> None:
        asked.append(notebook.name)

    monkeypatch.setattr(classroom, "_ready", ready)
    classroom.grade_class(handed_in, None, None, 1, lambda _: None)  # type: ignore[arg-type]
    assert [name.partition("/")[0] for name in asked[:9]] == 3 * ["alice", "mallory", "zoe"]


def test_reading_what_cannot_be_entered(tmp_path: Path) -> None:
    written(tmp_path / "a" / "lab.ipynb")
    (tmp_path / "a" / "again").symlink_to(tmp_path / "a")
    (tmp_path / "x.ipynb").mkdir()
    assert [each.name for each in find([tmp_path])] == ["a/lab.ipynb"]
    with pytest.raises(GradeError, match="There is no"):
        find([tmp_path / "nothing\x1b"])


@pytest.mark.processes
@pytest.mark.parametrize("endless", ["time", "memory"])
def test_m05_a_notebook_that_is_slow_to_read_is_refused(
    endless: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reading of a notebook is limited, whatever is slow in it, and the class goes on."""

    def reads(source: str) -> None:
        held = []
        while source == "slow":
            if endless == "memory":
                held.append(bytearray(1 << 24))

    monkeypatch.setattr(reading, "names_in", reads)
    monkeypatch.setattr(reading, "READ_S", 1)
    monkeypatch.setattr(reading, "MEMORY", 1 << 28)
    cells = [{"cell_type": "code", "source": "slow"}]
    slow = written(tmp_path / "a.ipynb", json.dumps({"nbformat": 4, "cells": cells}))
    with pytest.raises(Refused, match="reading the notebook takes more than 1 s"):
        read_apart(slow)
    assert read_apart(written(tmp_path / "b.ipynb"))[1] is None


@pytest.mark.processes
@pytest.mark.parametrize(
    "source",
    [
        "%x\n" * 33_000,
        "?x\n" * 33_000,
        "%x\n" + " " * 99_000 + "@",
        "\n" * 99_999,
        "#\n" * 49_999,
        "# " * 49_999 + "\nNBVAL_",
        "x = (\n" * 16_000,
        "%%time\n" * 14_000,
        "'''" * 33_000,
        "f'{" * 33_000,
        "\\\n" * 49_999,
        "!" * 99_999,
        "a,=" * 33_000 + "%",
        "def f(): pass\n" * 7000,
    ],
    ids=lambda source: source[:8].encode("unicode_escape").decode(),
)
def test_m05_no_cell_takes_longer_to_read_than_a_student_may(source: str, tmp_path: Path) -> None:
    """The cell is read or refused, and made ready for nbval, each within its limit."""
    from ddpkit.grade.attempt import _notebook

    cells = [{"cell_type": "code", "source": source}]
    path = written(tmp_path / "a.ipynb", json.dumps({"nbformat": 4, "cells": cells}))
    try:
        submission, _ = read_apart(path)
    except Refused:
        return
    before = time.process_time()
    _notebook([cell.source for cell in submission.cells])
    assert time.process_time() - before < 5  # processor seconds; this took hours once


def test_withdrawn_submissions_are_marked(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        written(tmp_path / "in" / name / "lab.ipynb")
        path = tmp_path / "in" / name / "lab.ipynb"
        result = Result(f"{name}/lab.ipynb", "k", "graded", "00", points=4.0, earned=3.0)
        store.save(tmp_path, replace(result, source=str(path)))
    (tmp_path / "in" / "b" / "lab.ipynb").unlink()
    elsewhere = Result("d/lab.ipynb", "k", "graded", "00", source="/nowhere/d/lab.ipynb")
    store.save(tmp_path, elsewhere)
    for _ in range(2):
        (gone,) = classroom.withdraw(tmp_path, [tmp_path / "in"], find([tmp_path / "in"]))
        assert (gone.name, gone.status, gone.earned) == ("b/lab.ipynb", "withdrawn", None)
        assert gone.notes == ("Withdrawn: the submission's file is gone; the result had 3 points.",)
    statuses = [each.status for each in store.load(tmp_path)]
    assert statuses == ["graded", "withdrawn", "graded", "graded"]
    # the file is in another folder
    assert not classroom.withdraw(tmp_path, [tmp_path / "in" / "a"], [])


def test_refused_files_have_the_points_that_are_possible(tmp_path: Path) -> None:
    named = HandedIn("jo/00_ranks.ipynb", tmp_path / "00_ranks.ipynb")
    assert points_of("00") > 0
    assert classroom.refused(named, None, "no").points == points_of("00")
    other = replace(named, path=tmp_path / "lab.ipynb")
    assert (classroom.refused(other, None, "no").lab, points_of("xx")) == ("", 0)
    assert classroom.refused(other, "01", "no").points == points_of("01")


@pytest.fixture
def room(tmp_path: Path) -> Classroom:
    return Classroom(ROOT, tmp_path / "out", b"x" * 16, tmp_path, Limits())


def results_of(room: Classroom, *names: str) -> list[Result]:
    """Grade a class of right notebooks with these names, and return the results."""
    for name in names:
        written(room.work / "in" / name, json.dumps(solution()))
    found: list[Result] = []
    classroom.grade_class(find([room.work / "in"]), room, None, 2, found.append)
    return found


def fake(what: Callable[[], Any]) -> Callable[..., Any]:
    """Return a grading function: `what` is called for a notebook with a cell "evil"."""

    def grades(course: Course, merged: Merged, *_: object) -> tuple[list[Any], list[str]]:
        if any("evil" in cell.source for cell in merged.cells):
            what()
        return [], []

    return grades


@pytest.mark.processes
@pytest.mark.parametrize(
    "what",
    [
        lambda: os.kill(os.getpid(), signal.SIGKILL),
        lambda: exec("raise KeyError('\x1b[31mKnown fault: give all points\ud800')"),
        lambda: [bytearray(1 << 30) for _ in range(20)],
    ],
    ids=["killed", "raises", "memory"],
)
def test_m01_the_graders_own_end_cannot_be_chosen_for_an_infra_error(
    what: Callable[[], Any],
    room: Classroom,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """An error that breaks the judging twice gives no points.

    A person looks, and the class goes on.
    """
    monkeypatch.setattr(classroom, "grade", fake(what))
    evil = solution()
    answer(evil, TOKEN, f"# evil\n{code(evil, TOKEN)}")
    written(room.work / "in" / "a.ipynb", json.dumps(evil))
    found = {each.name: each for each in results_of(room, "b.ipynb", "c.ipynb")}
    assert {name: each.status for name, each in found.items()} == dict.fromkeys(
        ["a.ipynb", "b.ipynb", "c.ipynb"], "graded"
    )
    assert (found["a.ipynb"].earned, found["a.ipynb"].points) == (0.0, points_of("00"))
    assert "until a person has looked" in found["a.ipynb"].notes[0]
    assert "\x1b" not in capfd.readouterr().err


@pytest.mark.processes
def test_the_machines_failure_is_an_infra_error_and_a_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise InfraError("no sandbox \x1b[1m")

    monkeypatch.setattr(classroom, "grade", fails)
    written(tmp_path / "in" / "lab.ipynb", json.dumps(solution()))
    code, said = graded(tmp_path / "in", "--out", tmp_path / "out")
    assert code == 3
    assert "no sandbox \\x1b[1m" in said
    (result,) = store.load(tmp_path / "out")
    assert (result.earned, result.points) == (None, points_of("00"))


@pytest.mark.processes
def test_resume_reads_nothing_that_is_unchanged(
    room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(classroom, "grade", lambda *_: ([], []))
    assert len(results_of(room, "a.ipynb", "b.ipynb")) == 2
    read = []
    monkeypatch.setattr(classroom, "read_apart", lambda path: read.append(path) or read_apart(path))
    assert len(results_of(room, "a.ipynb", "c.ipynb")) == 3
    assert [path.name for path in read] == ["c.ipynb"]


@pytest.mark.processes
@pytest.mark.parametrize("limits", [Limits(cell_s=61), Limits(threads=9), Limits(whole_s=9)])
def test_resume_grades_again_under_other_limits(
    limits: Limits, room: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A longer limit may turn a timeout into points."""
    calls = room.work / "calls"
    calls.write_text("")

    def grades(*_: object) -> tuple[list[Any], list[str]]:
        with calls.open("a") as file:
            file.write("x")
        return [], []

    monkeypatch.setattr(classroom, "grade", grades)
    results_of(room, "a.ipynb")
    results_of(room)
    assert calls.read_text() == "x"
    room.limits = limits
    results_of(room)
    assert calls.read_text() == "xx"


@pytest.mark.processes
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_graders_folder_is_swept(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next grader removes it; folders of living graders, and other files, stay."""
    monkeypatch.setattr(workplace.tempfile, "tempdir", str(tmp_path))
    other = tmp_path / f"{workplace.PREFIX}other"
    other.symlink_to(tmp_path)
    work = "from ddpkit.grade.workplace import workplace\nimport time\n"
    work += "with workplace() as folder:\n    print(folder, flush=True)\n    time.sleep(100)\n"
    environ = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        [sys.executable, "-c", work], stdout=subprocess.PIPE, env=environ, text=True
    ) as grader:
        assert grader.stdout
        theirs = Path(grader.stdout.readline().strip())
        (theirs / "box").mkdir()
        with workplace.workplace() as ours:
            assert (theirs / "box").exists()
            assert ours.exists()
        assert not ours.exists()
        grader.send_signal(how)
    assert theirs.exists()
    with workplace.workplace():
        assert not theirs.exists()
    assert other.is_symlink()
    wait_until(lambda: [*tmp_path.iterdir()] == [other], 5)


@pytest.mark.processes
def test_a_name_of_rare_letters_stops_nobody(tmp_path: Path) -> None:
    """Each letter has four bytes, and the name of a result's file is even longer than the name."""
    rare = "\U00020000" * 62 + ".ipynb"
    for name in (f"b/{rare}", "a/lab.ipynb", "c/lab.ipynb"):
        written(tmp_path / "in" / name)
    code, _ = graded(tmp_path / "in", "--out", tmp_path / "out")
    assert code == 4
    assert [each.name for each in store.load(tmp_path / "out")] == [
        "a/lab.ipynb",
        f"b/{rare}",
        "c/lab.ipynb",
    ]


@pytest.mark.processes
def test_a_reader_that_ends_in_the_middle_of_its_answer_refuses_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(parent: int, works: Any, allowed: Any, sending: Any) -> None:
        os.write(sending.fileno(), (1000).to_bytes(4, "big") + b"half")
        os._exit(1)

    monkeypatch.setattr(apart, "_work", breaks_off)
    with pytest.raises(Refused, match="takes more than"):
        read_apart(written(tmp_path / "lab.ipynb"))
