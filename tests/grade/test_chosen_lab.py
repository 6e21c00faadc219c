"""The teacher, not the file, decides which answers a sandbox has and which lab gets points.

Regression: a notebook that called itself lab 15 got the answers of labs 00 to 14, and exported the
answers in exceptions. Therefore no sandbox has answers of open labs, and quotes in a result are
limited.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.exercises import exercises
from ddpkit.grade import attempt, classroom, engine, quote
from ddpkit.grade.classroom import Classroom, graded
from ddpkit.grade.course import StillOpen, open_course
from ddpkit.grade.engine import SandboxRun
from ddpkit.grade.found import HandedIn, find
from ddpkit.grade.report import report
from ddpkit.grade.sandbox import base, levels
from ddpkit.grade.sandbox.base import Limits
from ddpkit.grade.store import Result
from ddpkit.grade.submission import Submission, SubmittedCell
from tests.grade.attacks import ROOT, solution

LABS = sorted({one.lab for one in exercises().values()})
SECRET = b"x" * 16


@pytest.mark.parametrize("opened", ["00", "03", LABS[-1]])
@pytest.mark.parametrize("lab", ["03", "08", LABS[-1]])
def test_no_sandbox_holds_an_answer_of_an_open_lab(lab: str, opened: str, tmp_path: Path) -> None:
    """Not as a module, not by `carry`, and not as a line of code anywhere in the copy."""
    package = base.copy_course(tmp_path, lab, opened)
    here = sorted(path.stem for path in (package / "answers").glob("lab*.py"))
    assert here == [f"lab{each}" for each in LABS if each < min(lab, opened)]
    index: dict[str, Any] = {}
    exec((package / "answers" / "__init__.py").read_text(), index)
    assert {exercises()[name].lab for name in index["LABS"]} == {name[3:] for name in here}
    bytecode = {path.name.partition(".")[0] for path in package.glob("answers/__pycache__/lab*")}
    assert bytecode <= {*here}


@pytest.mark.processes
def test_a_lab_that_needs_an_open_answer_is_not_graded_and_the_class_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Classroom, "_prove", lambda self, course: None)
    monkeypatch.setattr(levels, "level", lambda: levels.BWRAP)
    monkeypatch.setattr(classroom, "grade", lambda *_: ([], []))
    (last,) = (ROOT / "solutions").glob("15_*.ipynb")
    for name, content in (("mallory", last.read_text()), ("ada", json.dumps(solution()))):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "03_all_reduce.ipynb").write_text(content)
    room = Classroom(ROOT, tmp_path / "out", SECRET, tmp_path, Limits(), "03")
    found: list[Result] = []
    classroom.grade_class(find([tmp_path / "in"]), room, None, 1, found.append)
    by_name = {each.name.partition("/")[0]: each for each in found}
    assert (by_name["mallory"].status, by_name["mallory"].earned) == ("infra_error", None)
    assert "still open" in by_name["mallory"].notes[0]
    assert (by_name["ada"].status, by_name["ada"].lab) == ("graded", "00")
    with pytest.raises(StillOpen, match="Lab 15 needs .* still open"):
        classroom.grade_class(find([tmp_path / "in"]), room, "15", 1, found.append)


def test_a_result_is_fresh_for_the_answers_that_its_sandbox_had(tmp_path: Path) -> None:
    keys = {
        opened: open_course(ROOT, "05", SECRET, tmp_path / opened, opened).key
        for opened in ("03", "05", "06")
    }
    assert keys["03"] != keys["05"] == keys["06"]


def run(*words: str | Path) -> str:
    done = CliRunner().invoke(main, ["grade", *map(str, words)])
    assert done.exit_code == 1, done.output
    return done.output


def test_the_teacher_has_to_say_what_is_open(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text("{}")
    given = (tmp_path / "a.ipynb", "--out", tmp_path / "out")
    assert "Name the first open lab with --lab or --open: no sandbox may hold the answers" in run(
        *given
    )
    for wrong in (["--lab", "99"], ["--open", "99"], ["--lab", "x\x1b"], ["--lab", "77"]):
        said = run(*given, *wrong)
        assert f"for {wrong[0]}: use a number from 00 to" in said
        assert "\x1b" not in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["gradescope/run_autograder", "github-classroom/grade.yml"])
def test_whoever_grades_for_a_teacher_passes_the_lab(file: str) -> None:
    text = (ROOT / "docs" / file).read_text("utf-8")
    commands = re.findall(r"ddpkit grade .*", text)
    assert commands
    assert all("--lab " in each for each in commands)


@pytest.mark.processes
def test_the_autograder_takes_the_teachers_lab(tmp_path: Path) -> None:
    """A file that calls itself another lab changes no word of the command (a stand-in)."""
    folder = tmp_path / "autograder"
    for name in ("source", "submission", "results"):
        (folder / name).mkdir(parents=True)
    (folder / "submission" / "15_capstone.ipynb").write_text("{}")
    (folder / "source" / "secret").write_text("x" * 16)
    stand_in = folder / "ddpkit"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >>{folder}/said\n')
    stand_in.chmod(0o755)
    text = (ROOT / "docs" / "gradescope" / "run_autograder").read_text("utf-8")
    text = text.replace("/autograder", str(folder)).replace("/opt/venv/bin/ddpkit", str(stand_in))
    script = folder / "run_autograder"
    script.write_text(text)
    # there is no file `lab`
    assert subprocess.run(["bash", script], capture_output=True).returncode
    assert not (folder / "said").exists()
    (folder / "source" / "lab").write_text("03\n")
    subprocess.run(["bash", script], check=True)
    assert "--lab 03 " in (folder / "said").read_text().splitlines()[0]


# Quotes in a result

STOLEN = "".join(f"def answer_{n}(x): return {n} * x\n" for n in range(3000))


def many_helpers_raise() -> tuple[list[SubmittedCell], SandboxRun]:
    """Return hundreds of cells, each with an error that quotes stolen lines."""
    cells = [SubmittedCell(f"own{n}", "", "", f"x{n} = {n}; f{n}()") for n in range(400)]
    uses = "def token_ring(token):\n    return " + " + ".join(f"x{n}" for n in range(400))
    lines = STOLEN.splitlines()
    errors = {n + 1: ["E", "; ".join(lines[7 * n : 7 * n + 7]), ""] for n in range(402)}
    return [*cells, SubmittedCell("", "", "", uses)], SandboxRun(errors=errors)


def claims_carry(claim: Callable[[str, int], dict[str, Any]]) -> Any:
    def made() -> tuple[list[SubmittedCell], SandboxRun]:
        answers = [SubmittedCell("", "", "", f"def {name}(x): return x") for name in NAMES]
        claims = {n + 1: {"key": f"{NAMES[0]}.{n - 2}", **claim(STOLEN, n)} for n in range(60)}
        claims |= {n + 30: {"key": f"{NAMES[1]}.{n}", **claim(STOLEN, n)} for n in range(9)}
        return answers, SandboxRun(claims={n: json.dumps(each) for n, each in claims.items()})

    return made


NAMES = [one.name for one in exercises().values() if one.lab == "00"]
WAYS: dict[str, Any] = {
    "hundreds of helpers raise": many_helpers_raise,
    "exceptions": claims_carry(lambda text, n: {"summary": text, "lines": [text] * 8, "kinds": []}),
    "keys of a dict": claims_carry(lambda text, n: {"seen": ["d", [[["s", text], True]]]}),
    "a number that is none": claims_carry(lambda text, n: {"seen": ["i", text]}),
    "a dtype that is none": claims_carry(lambda text, n: {"seen": ["T", "torch", text, [1], ""]}),
    "values": claims_carry(
        lambda text, n: {"seen": ["d", [[["s", key], ["s", text]] for key in ("gave", "sent")]]}
    ),
}


@pytest.mark.processes
@pytest.mark.parametrize("way", WAYS)
def test_feedback_carries_no_file_out(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells, outcome = WAYS[way]()
    monkeypatch.setattr(engine, "run", lambda *_: outcome)
    course = open_course(ROOT, "00", SECRET, tmp_path)
    scores, notes = attempt.grade(
        course, course.merged(Submission(tuple(cells), "")), tmp_path / "w", Limits()
    )
    (tmp_path / "a.ipynb").write_text("{}")
    result = graded(HandedIn("a.ipynb", tmp_path / "a.ipynb"), "", course, scores, notes, 0.0)
    for each in result.exercises:
        assert sum(map(len, each.feedback)) <= quote.TEXT + 100
    told = [*result.notes, *(line for each in result.exercises for line in each.feedback)]
    assert 0 < len("".join(told)) < 10_000 < len(STOLEN)
    assert max(map(len, told)) <= quote.LINE
    assert len(report([result], "gradescope")) < 12_000


def test_a_teachers_own_words_are_not_cut() -> None:
    """The teacher's words are added after the cut."""
    from dataclasses import replace

    from ddpkit.grade.publish.overrides import Override, overridden

    result = replace(Result("a", "k", "graded", "00"), notes=("x" * 3000,) * 3)
    (with_word,) = overridden([result], [Override("a", "", 2.0, "It was our typo." * 50)])
    assert with_word.notes[-1].endswith("It was our typo.")


def test_honest_feedback_is_whole() -> None:
    from ddpkit.grade.score import Score

    lines = tuple(f"✗ {n} ranks   gave[0] is {n}; sent is nothing" for n in range(40))
    scores = [Score("ring", "fail", 2.0, 0.0, lines)] * 5
    same_id = ["Some cells of the notebook have the same id."]
    told, notes = quote.quoted(scores, same_id)
    assert (told, notes) == (scores, same_id)
