"""A class is graded in parts on several machines, and reported as a whole."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import subprocess
import sys
import unicodedata
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from ddpkit.commands.main import main
from ddpkit.errors import GradeError
from ddpkit.grade import division, store
from ddpkit.grade.division import ClassShare
from ddpkit.grade.found import HandedIn
from ddpkit.grade.score import Score
from ddpkit.grade.store import Result
from tests.grade.attacks import ROOT, solution

# a `ddpkit` without a sandbox: every notebook gets half of the points
STAND_IN = f"""#!{sys.executable}
import os, sys
sys.path.insert(0, {str(ROOT)!r})
from ddpkit.commands.main import main
from ddpkit.grade import classroom
from ddpkit.grade.sandbox import levels
from ddpkit.grade.score import Score

def grade(course, merged, work, limits):
    if os.path.exists(os.environ.get("DIES", "/nowhere")):
        os.kill(first, 9)
    return [Score(each.name, "fail", each.points, each.points / 2, ())
            for each in course.exercises], []

first = os.getpid()
classroom.grade, levels.require, levels.level = grade, lambda *_: None, lambda: "bwrap"
classroom.Classroom._prove = lambda self, course: None
main()
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return a folder with a class of twelve, a secret, and a stand-in for ddpkit."""
    for number in range(12):
        (folder := tmp_path / "handed-in" / f"s{number:02}").mkdir(parents=True)
        (folder / "00_ranks.ipynb").write_text(json.dumps(solution()))
    (tmp_path / "secret").write_text("x" * 16)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "ddpkit").write_text(STAND_IN)
    (tmp_path / "bin" / "ddpkit").chmod(0o755)
    return tmp_path


def names(count: int) -> list[str]:
    return [f"student {n}/lab{n % 16:02}.ipynb" for n in range(count)]


@pytest.mark.parametrize("of", [1, 2, 8, 7, 50])
def test_every_submission_is_in_one_part(of: int) -> None:
    everybody = [HandedIn(name, Path(name)) for name in names(2000)]
    shares = [ClassShare(number, of).of_class(everybody) for number in range(1, of + 1)]
    assert sorted(one.name for share in shares for one in share) == sorted(names(2000))
    assert all(len(share) > 0.5 * 2000 / of for share in shares)


@pytest.mark.processes
def test_the_split_depends_on_nothing_but_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other submissions, Python's seed and the disk's form of accents change no part."""
    third = {name for name in names(100) if ClassShare(3, 8).holds(name)}
    assert third == {name for name in names(2000) if ClassShare(3, 8).holds(name)} & {*names(100)}
    for name in ("Zoë/lab.ipynb", "Ångström/00.ipynb", "half \udcff/lab.ipynb"):
        forms = [unicodedata.normalize(form, name) for form in ("NFC", "NFD")]
        assert ClassShare(1, 3).holds(forms[0]) == ClassShare(1, 3).holds(forms[1])
    code = (
        "from ddpkit.grade.division import ClassShare\n"
        "named = {n: f'student {n}/lab{n % 16:02}.ipynb' for n in range(100)}\n"
        "print(*[n for n in named if ClassShare(3, 8).holds(named[n])])"
    )
    for seed in ("1", "2"):
        environ = {**os.environ, "PYTHONHASHSEED": seed}
        said = subprocess.run(
            [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
        ).stdout
        assert len(said.split()) == len(third)


@pytest.mark.parametrize("text", ["0/8", "9/8", "3", "3/", "/8", "-1/8", "a/b", "1/0", "1/99999"])
def test_what_is_no_part(text: str) -> None:
    with pytest.raises(GradeError, match="names no part: write 1/8"):
        ClassShare.parse(text)


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*map(str, words)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.output
    return done.exit_code, done.output


def test_parts_need_one_secret_and_a_folder_each(place: Path) -> None:
    how = ["grade", place / "handed-in", "--lab", "00", "--out", place / "one", "--part", "1/2"]
    code, said = run(*how)
    assert code == 1
    assert "All parts of a class need the same secret" in said
    (place / "two" / "results").mkdir(parents=True)
    with pytest.raises(GradeError, match="holds a whole class, but the command grades part 1/2"):
        division.begin(place / "two", ClassShare(1, 2))
    (place / "one").mkdir()
    division.begin(place / "one", ClassShare(1, 2))
    for other in (ClassShare(2, 2), ClassShare(1, 3), None):
        with pytest.raises(GradeError, match="holds part 1/2, but the command"):
            division.begin(place / "one", other)
    division.begin(place / "one", ClassShare(1, 2))


@pytest.mark.processes
def test_two_graders_do_not_share_a_folder(place: Path) -> None:
    """The second grader is refused with a sentence; a killed grader leaves no lock."""
    (place / "out").mkdir()
    code = (
        "import sys, time; from pathlib import Path; from ddpkit.grade import store\n"
        f"with store.alone(Path({str(place / 'out')!r})):\n"
        "    print('here', flush=True); time.sleep(100)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as first:
        try:
            assert first.stdout
            first.stdout.readline()
            with pytest.raises(GradeError, match="Another"), store.alone(place / "out"):
                pass
        finally:
            first.kill()
    with store.alone(place / "out"), store.alone(place):
        pass


def test_a_file_system_without_locks_refuses_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", none)
    with store.alone(tmp_path):
        pass


def slurm(place: Path, task: int, dies: bool = False) -> subprocess.CompletedProcess[str]:
    """Run the script with a stand-in for Slurm's variables."""
    environ = {
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "HOME": str(place),
        "LAB": "00",
        "HANDED_IN": str(place / "handed-in"),
        "GRADES": str(place / "grades"),
        "SECRET": str(place / "secret"),
        "SLURM_ARRAY_TASK_ID": str(task),
        "SLURM_ARRAY_TASK_COUNT": "1",  # Slurm's count when a single task is submitted
        "DIES": str(place / "secret") if dies else "/nowhere",
    }
    script = (place / "slurm.sh").read_text()
    return subprocess.run(
        ["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=300
    )


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_the_slurm_script_and_a_part_that_died(place: Path) -> None:
    text = (ROOT / "docs" / "parts" / "slurm.sh").read_text("utf-8")
    assert "#SBATCH --array=1-8\n" in text
    assert "\nparts=8 " in text
    (place / "slurm.sh").write_text(text.replace("parts=8 ", "parts=3 "))
    assert slurm(place, 1).returncode == 0
    assert slurm(place, 2, dies=True).returncode
    assert slurm(place, 3).returncode == 0
    outs = sorted((place / "grades").iterdir())
    assert [path.name for path in outs] == ["1", "2", "3"]
    code, said = run("report", *outs, "--format", "csv", "-o", place / "grades.csv")
    assert "Unfinished parts, of 3: 2." in said
    before = {path: path.stat().st_mtime_ns for path in place.glob("grades/[13]/results/*")}
    assert slurm(place, 2).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before
    code, said = run("report", *outs, "--format", "csv", "-o", place / "grades.csv")
    assert (code, "Unfinished" in said) == (0, False)
    rows = list(csv.DictReader(io.StringIO((place / "grades.csv").read_text())))
    assert [row["submission"] for row in rows] == [f"s{n:02}/00_ranks.ipynb" for n in range(12)]
    assert {row["earned"] for row in rows} == {"2.0"}
    _, said = run("report", *outs[:2], "--format", "csv", "-o", place / "grades.csv")
    assert "Missing parts, of 3: 3." in said


@pytest.mark.processes
def test_the_kubernetes_job_numbers_its_parts_from_one() -> None:
    """The Job's command is valid, and names each part once with a stand-in for the variables."""
    job = yaml.safe_load((ROOT / "docs" / "parts" / "kubernetes.yaml").read_text("utf-8"))
    spec = job["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    environ = {one["name"]: one["value"] for one in container["env"]}
    assert spec["completionMode"] == "Indexed"
    assert int(environ["PARTS"]) == spec["completions"]
    (script,) = container["args"]
    said = [
        subprocess.run(
            [*container["command"], f"ddpkit() {{ printf '%s\\n' \"$@\"; }}\n{script}"],
            env={**environ, "PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": str(index)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for index in range(spec["completions"])
    ]
    shares = [words[words.index("--part") + 1] for words in said]
    assert shares == [f"{number}/8" for number in range(1, 9)]
    assert len({words[words.index("--out") + 1] for words in said}) == 8
    for words in said:
        assert ClassShare.parse(words[words.index("--part") + 1])
        main.commands["grade"].make_context("grade", words[1:])


def results(count: int) -> list[Result]:
    return [
        Result(
            f"s{n:02}/00_ranks.ipynb", "k", "graded", "00", "bwrap", 4.0, n % 5, 1.0,
            (Score("token_ring", "pass", 2.0, 2.0, (), (("2 ranks", "pass", ""),)),),
            written=(("Why?", f"because {n}"),), answers=(("token_ring", f"x = {n}"),),
            look=("ring, line 2: frames",) * (n % 2),
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "form", ["json", "junit", "csv", "html", "gradebook", "canvas", "statistics", "written"]
)
def test_a_report_over_parts_is_the_report_of_the_class(form: str, tmp_path: Path) -> None:
    for n, result in enumerate(results(12)):
        store.save(tmp_path / "whole", result)
        store.save(tmp_path / f"part{n % 3}", result)
    shares = [tmp_path / f"part{n}" for n in range(3)]
    whole, of_parts = (
        run("report", tmp_path / "whole", "--format", form),
        run("report", *shares, "--format", form),
    )
    assert whole == of_parts
    assert whole[0] == 0


def test_sources_and_overrides_of_all_folders_count(tmp_path: Path) -> None:
    for n, result in enumerate(results(4)):
        store.save(tmp_path / str(n % 2), result)
    for n in range(2):
        text = f'[[override]]\nname = "s0{n}/00_ranks.ipynb"\npoints = {n + 0.25}\n'
        (tmp_path / str(n) / "overrides.toml").write_text(text)
    given = ("report", tmp_path / "0", tmp_path / "1", "--format")
    assert "wrote 4 answers" in run(*given, "sources", "-o", tmp_path / "sources")[1]
    rows = list(csv.DictReader(io.StringIO(run(*given, "csv")[1])))
    assert [row["earned"] for row in rows] == ["0.25", "1.25", "2", "3"]


def test_of_two_results_of_one_submission_the_graded_one_counts(tmp_path: Path) -> None:
    """A graded result comes before a failed one; results of two labs are two results."""
    (result,) = results(1)
    failed = replace(result, status="infra_error", earned=None, exercises=())
    store.save(tmp_path / "a", failed)
    store.save(tmp_path / "b", result)
    store.save(tmp_path / "c", replace(result, lab="01"))
    assert store.load(tmp_path / "a", tmp_path / "b") == [result]
    assert store.load(tmp_path / "b", tmp_path / "a") == [result]
    assert [each.lab for each in store.load(*(tmp_path / n for n in "abc"))] == ["00", "01"]


def test_what_is_no_result_is_named_and_not_a_traceback(tmp_path: Path) -> None:
    (result,) = results(1)
    store.file_of(tmp_path / "a", result.name).mkdir(parents=True)
    with pytest.raises(GradeError, match="is damaged .*directory"):
        store.load(tmp_path / "a")
    with pytest.raises(GradeError, match="cannot be written"):
        store.save(tmp_path / "a", result)
    with pytest.raises(GradeError, match="cannot be removed"):
        store.forget(tmp_path / "a", result.name)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / division.FILE).write_text("[]")
    with pytest.raises(GradeError, match="grade the part again"):
        division.part_in(tmp_path / "b")
