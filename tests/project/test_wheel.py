"""The wheel, installed where there is no checkout, holds what a student needs."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from ddpkit import __version__
from tests.project.source import ROOT

LABS = sorted(path.name for path in (ROOT / "labs").glob("*.ipynb"))


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
def installed(built, tmp_path_factory) -> dict[str, str]:
    """An environment in which `import ddpkit` is the wheel's, not the checkout's."""
    site = tmp_path_factory.mktemp("site")
    (wheel,) = built.glob("*.whl")
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": str(site)}


def run(environ: dict[str, str], folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_wheel_holds_labs_data_and_types_and_no_solution(built):
    (wheel,) = built.glob(f"ddpkit-{__version__}-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert sorted(Path(n).name for n in names if n.startswith("ddpkit/labs/")) == LABS
    assert {"ddpkit/py.typed", "ddpkit/data/digits.npz"} <= set(names)
    assert [name for name in names if name.startswith(("solutions", "tests"))] == []


def test_sdist_holds_what_is_tracked_and_nothing_else(built):
    (sdist,) = built.glob(f"ddpkit-{__version__}.tar.gz")
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    assert {"solutions/00_ranks.py", "tests/conftest.py", "Makefile", "constraints.txt"} <= names
    assert [name for name in names if name.startswith((".venv", ".git/", "tests/artifacts"))] == []


def test_labs_are_copied_from_the_wheel_and_checked_there(installed, tmp_path):
    where = run(installed, tmp_path, "-c", "import ddpkit; print(ddpkit.__file__)").stdout
    assert where.startswith(installed["PYTHONPATH"])
    copied = run(installed, tmp_path, "-m", "ddpkit", "lab", "--copy", "mine")
    assert copied.returncode == 0, copied.stderr
    assert sorted(path.name for path in (tmp_path / "mine").glob("*.ipynb")) == LABS
    opened = run(installed, tmp_path, "-m", "ddpkit", "lab")
    assert "ddpkit lab --copy DIR" in opened.stderr
    solved = ROOT / "solutions" / "00_ranks.ipynb"
    (tmp_path / "mine" / "00_ranks.ipynb").write_bytes(solved.read_bytes())
    checked = run(installed, tmp_path / "mine", "-m", "ddpkit", "check", "00_ranks.ipynb")
    assert "2 of 2 exercises pass." in checked.stdout, checked.stdout + checked.stderr
