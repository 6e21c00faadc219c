"""`--resume` grades again if a change could affect a score, and only then."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpkit.grade import freshness
from tests.project.source import PACKAGE, ROOT, imports

# A stand-in for the sandbox gives all points, and prints the lab. Each grader is forked before
# ddpkit is imported, so it reads the present kit, and torch is already loaded.
GRADERS = """
import os, sys
import click, cloudpickle, torch, tqdm

def grade_class():
    from ddpkit.commands.main import main
    from ddpkit.grade import classroom
    from ddpkit.grade.sandbox import levels
    from ddpkit.grade.score import Score

    def grade(course, submission, work, limits):
        if os.getpid() != first:
            print("turn of lab", course.lab, flush=True)
        return [Score(each.name, "pass", each.points, each.points, ())
                for each in course.exercises], []

    first = os.getpid()
    classroom.grade, levels.require, levels.level = grade, lambda *_: None, lambda: "bwrap"
    main(["grade", "in", "--open", "05", "--out", "out", "--resume"])

while sys.stdin.readline():
    assert not [name for name in sys.modules if name.startswith("ddpkit")]
    if not (grader := os.fork()):
        grade_class()
    print("ended with", os.waitstatus_to_exitcode(os.waitpid(grader, 0)[1]), flush=True)
"""


@dataclass
class Graders:
    """Graders of a folder, each a fresh process that imports the folder's ddpkit."""

    process: subprocess.Popen[str]

    def graded(self) -> list[str]:
        """Grade labs 03 and 05; return the labs that were really graded."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = []
        for line in self.process.stdout:
            said.append(line)
            if line.startswith("ended with "):
                break
        assert said, "the graders' process has ended"
        assert said[-1] == "ended with 0\n", said
        return sorted(re.findall(r"^turn of lab (\d\d)$", "".join(said), re.MULTILINE))


@pytest.fixture
def graders(tmp_path: Path) -> Iterator[Graders]:
    kit(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", GRADERS],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        yield Graders(process)
        assert process.stdin
        process.stdin.close()


def kit(folder: Path) -> None:
    """Make a copy of the kit, with labs 03 and 05, and hand in both labs."""
    shutil.copytree(PACKAGE, folder / "ddpkit", ignore=shutil.ignore_patterns("*.pyc.*"))
    for place in ("labs", "solutions", "in"):
        (folder / place).mkdir()
        for lab in ("03", "05"):
            (path,) = (ROOT / place.replace("in", "labs")).glob(f"{lab}_*.ipynb")
            shutil.copy(path, folder / place)


@pytest.mark.slow
def test_what_a_change_could_affect_is_graded_again(tmp_path: Path, graders: Graders) -> None:
    def change(name: str) -> list[str]:
        """Add a line to a module; return the labs that are graded again."""
        with open(tmp_path / "ddpkit" / name, "a") as module:
            module.write("CHANGED = True\n")
        return graders.graded()

    assert graders.graded() == ["03", "05"]
    assert graders.graded() == []
    assert change("view/drawing/chart.py") == []  # no score depends on a picture
    assert change("checks/lab05/rules.py") == ["05"]
    assert change("simulate/messages/schedules.py") == ["03", "05"]
    assert change("trace/traffic.py") == ["03", "05"]
    assert change("grade/score.py") == ["03", "05"]


SOME = [
    *(
        "link",
        "protocol",
        "rank",
        "cluster",
        "trace",
        "simulate",
        "exercises",
        "checks.lab03.cases",
    ),
    *("grade.engine", "grade.merge", "grade.score", "grade.inside.asking", "grade.inside.plugin"),
    # answers.lab02 by `carry`, rank.preload by its name in a string
    *("answers.lab02", "rank.preload"),
]


@pytest.mark.parametrize("module", SOME)
def test_what_a_score_of_lab_03_depends_on(module: str) -> None:
    assert f"ddpkit.{module}" in freshness.needed_for("03")[0]


@pytest.mark.parametrize(
    "folder", ["view", "authoring", "commands", "checks.lab05", "answers.lab03", "grade.report"]
)
def test_what_it_does_not_depend_on(folder: str) -> None:
    found = freshness.needed_for("03", ["from ddpkit import show\nfrom ddpkit.view import play"])[0]
    assert [name for name in found if f"{name}.".startswith(f"ddpkit.{folder}.")] == []


def test_data_that_a_lab_loads_counts() -> None:
    names = freshness.needed_for(
        "01", ["%matplotlib inline", "from ddpkit.data import load_digits"]
    )
    assert PACKAGE / "data" / "digits.npz" in freshness.files_of(names[0])
    assert "numpy" in names[1]


def test_libraries_that_run_it_count() -> None:
    assert {"torch", "nbval", "pytest", "cloudpickle"} <= freshness.needed_for("03")[1]


def test_no_import_is_overlooked() -> None:
    """The modules that the project's own walk over imports finds must be found here too."""
    found, _ = freshness.needed_for("03")
    missing = [
        f"{each.where}: {each.imported}"
        for each in imports()
        # `ddpkit` itself imports some modules only when a name is used
        if each.importer in found - {"ddpkit"}
        and each.imported.startswith("ddpkit")
        and each.imported not in found
    ]
    assert missing == []


def test_a_lazy_name_of_the_package_is_followed_where_it_is_asked_for() -> None:
    assert "ddpkit.view" in freshness.reached_from({"ddpkit.show"})[0]
    assert "ddpkit.view" not in freshness.reached_from({"ddpkit.Cluster"})[0]
