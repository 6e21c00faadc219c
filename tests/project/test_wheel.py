"""The wheel, installed without a checkout, contains all that a student needs: all labs pass."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ddpkit import __version__
from ddpkit.commands.lab import GUIDES, TUTOR
from tests.project.source import ROOT

pytestmark = pytest.mark.processes

LABS = sorted(path.name for path in (ROOT / "labs").glob("*.ipynb"))
FEW = ["00_ranks.ipynb", "01_sgd.ipynb"]  # all of Cluster, and a lab of one process
ALL = "DDPKIT_ALL_LABS" in os.environ
ONE_THREAD = {
    "OMP_NUM_THREADS": "1"
}  # beside other tests, threads that wait for each other are slow

EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
try:
    NotebookClient(notebook, kernel_name="python3", timeout=200).execute()
finally:
    nbformat.write(notebook, sys.argv[1])
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist"]
    done = subprocess.run(
        [*command, "-d", str(folder)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def clean(built, tmp_path_factory) -> Path:
    """Return the programs of a new environment with the wheel and its dependencies.

    The dependencies (2 GB) are those of this environment, found through a path file. Python ignores
    path files in that folder, so the checkout is not found.
    """
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    python, site = (
        folder / "bin" / "python",
        "import sysconfig; print(sysconfig.get_path('purelib'))",
    )
    asked = subprocess.run([python, "-c", site], capture_output=True, text=True, check=True)
    Path(asked.stdout.strip(), "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (wheel,) = built.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index"]
    subprocess.run([*pip, "--no-deps", "--force-reinstall", str(wheel)], check=True, timeout=120)
    return folder / "bin"


def run(folder: Path, *command: object, limit: float = 240) -> subprocess.CompletedProcess[str]:
    ours = ("PYTHONPATH", "DDPKIT_PROGRESS", "DDPKIT_SEED", "PYTEST_CURRENT_TEST")
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in ours} | ONE_THREAD,
        capture_output=True,
        text=True,
        timeout=limit,
    )


def test_wheel_holds_labs_data_and_types_and_no_solution(built):
    (wheel,) = built.glob(f"ddpkit-{__version__}-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(Path(n).name for n in names if n.startswith("ddpkit/labs/")) == sorted(
        [*LABS, TUTOR]
    )
    assert {"ddpkit/py.typed", "ddpkit/data/digits.npz"} <= set(names)
    assert [name for name in names if name.startswith(("solutions", "tests"))] == []


def test_sdist_holds_what_is_tracked_and_nothing_else(built):
    (sdist,) = built.glob(f"ddpkit-{__version__}.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"solutions/00_ranks.py", "tests/conftest.py", "Makefile", "constraints.txt"} <= names
    assert [name for name in names if name.startswith((".venv", ".git/", "tests/artifacts"))] == []


@pytest.fixture(scope="module")
def mine(clean, tmp_path_factory) -> Path:
    """Return a student's folder with the labs of the wheel."""
    folder = tmp_path_factory.mktemp("student")
    copied = run(folder, clean / "ddpkit", "lab", "--copy", "mine")
    assert copied.returncode == 0, copied.stderr
    return folder / "mine"


def test_labs_are_copied_from_the_wheel(clean, mine):
    where = run(mine, clean / "python", "-c", "import ddpkit; print(ddpkit.__file__)").stdout
    assert Path(where.strip()).is_relative_to(clean.parent)
    assert sorted(path.name for path in mine.glob("*.ipynb")) == LABS
    assert (mine / TUTOR).is_file()
    assert {path.name for path in (mine / "docs").iterdir()} == {*GUIDES, "pictures"}
    assert "ddpkit lab --copy DIR" in run(mine, clean / "ddpkit", "lab").stderr


def answer(lab: Path) -> list[str]:
    """Write the answers into a lab, as a student would; return the names of its exercises."""
    blank = json.loads(lab.read_text("utf-8"))
    solved = json.loads((ROOT / "solutions" / lab.name).read_text("utf-8"))
    answers = {cell["id"]: cell["source"] for cell in solved["cells"]}
    exercises = []
    for cell in blank["cells"]:
        if name := cell["metadata"].get("ddpkit", {}).get("exercise"):
            assert "NotImplementedError" in "".join(cell["source"])
            cell["source"] = answers[cell["id"]]
            exercises.append(name)
    lab.write_text(json.dumps(blank), "utf-8")
    return exercises


def said(cell: dict[str, Any]) -> str:
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_answered_labs_pass_and_one_carries_to_the_next(clean, mine):
    """The labs run one after the other in one folder: no cell fails, and every check passes.

    All labs, before a release: DDPKIT_ALL_LABS=1 make test ARGS=tests/project/test_wheel.py
    """
    for name in LABS if ALL else FEW:
        exercises = answer(mine / name)
        done = run(mine, clean / "python", "-c", EXECUTE, name)
        assert done.returncode == 0, f"{name}: {done.stderr[-3000:]}"
        cells = json.loads((mine / name).read_text("utf-8"))["cells"]
        code = [said(cell) for cell in cells if cell["cell_type"] == "code"]
        passed = [each for each in exercises if any(f"{each}: passed, " in text for text in code)]
        assert passed == exercises
        assert "the kit's version" not in "".join(code), "what was answered before is carried"
