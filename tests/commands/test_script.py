"""`ddpkit script`: a student's lab as a script that runs; no file is ever lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ddpkit
from ddpkit.commands.main import main

ROOT = Path(ddpkit.__file__).parent.parent
HEAD = "def {}(x):\n    "
BLANK = 'raise NotImplementedError("your code here: about 7 lines")'
RING = """import torch.distributed as dist
def token_ring(token):  # mine
    rank, size = dist.get_rank(), dist.get_world_size()
    token = token.clone()
    if rank:
        dist.recv(token, rank - 1)
    token += rank + 1
    if size > 1:
        dist.send(token, (rank + 1) % size)
        if not rank:
            dist.recv(token, size - 1)
    return token
"""


def cell(source: str, exercise: str = "") -> dict[str, object]:
    metadata = {"ddpkit": {"exercise": exercise}} if exercise else {}
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": []}


@pytest.mark.parametrize("copies", [["00_ranks-Copy1"], ["00_ranks-Copy1", "00_ranks-Copy12"]])
def test_a_number_means_the_lab_beside_its_jupyter_duplicates(folder: Path, copies: list[str]):
    for copy in copies:
        (folder / f"{copy}.ipynb").write_bytes((folder / "00_ranks.ipynb").read_bytes())
    result = CliRunner().invoke(main, ["script", "00"])
    assert result.exit_code == 0, result.output
    assert (folder / "00_ranks.py").exists()
    result = CliRunner().invoke(main, ["script", copies[0]])
    assert result.exit_code == 0, result.output
    assert (folder / f"{copies[0]}.py").exists()


def test_two_notebooks_of_one_number_are_both_named(folder: Path):
    (folder / "00_mine.ipynb").write_bytes((folder / "00_ranks.ipynb").read_bytes())
    result = CliRunner().invoke(main, ["script", "00"])
    assert result.exit_code == 1
    assert "Several notebooks are lab '00': 00_mine, 00_ranks. Name one." in result.output


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A student's folder: one answer in the notebook, one kept by its check, one missing."""
    cells = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Ranks\n", "\n", "Four of *them*."]},
        cell("%matplotlib inline\nfrom ddpkit import Cluster, check, show"),
        cell("cluster = Cluster(4)\ncluster  # “four”"),
        cell(HEAD.format("token_ring") + BLANK, "token_ring"),
        cell("check(token_ring)"),
        cell(HEAD.format("who_waits") + "return x", "who_waits"),
        cell(HEAD.format("minibatches") + BLANK, "minibatches"),
        cell("(\n    1 +\n    2\n)"),
    ]
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "00_ranks.ipynb").write_text(json.dumps(notebook), "utf-8")
    kept = tmp_path / ".ddpkit" / "answers" / "token_ring.py"
    kept.parent.mkdir(parents=True)
    kept.write_text(f"# mine\nfrom __future__ import annotations\n\n{RING}", "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DDPKIT_PROGRESS", raising=False)
    return tmp_path


def script(*args: str) -> Result:
    return CliRunner().invoke(main, ["script", *args])


def run(*command: str) -> list[str]:
    paths = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    environ = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_answers_come_from_the_notebook_or_from_their_checks(folder):
    assert script("0").output.splitlines() == [
        "wrote 00_ranks.py from 00_ranks.ipynb",
        "your answers: who_waits",
        "your answers, as kept by their checks: token_ring",
        "not answered yet: cells that need them will fail: minibatches",
    ]
    text = (folder / "00_ranks.py").read_text("utf-8")
    assert "# # Ranks\n#\n# Four of *them*.\n" in text
    assert "# %matplotlib inline\n" in text
    assert "print(cluster)  # “four”\n" in text, "what a notebook shows"
    assert "print((\n    1 +\n    2\n))" in text


def test_the_copy_that_make_lab_works_on_is_found_from_above(folder):
    (folder / "my_labs").mkdir()
    for name in ("00_ranks.ipynb", ".ddpkit"):
        (folder / name).rename(folder / "my_labs" / name)
    said = script("0").output.splitlines()
    assert said[0] == f"wrote 00_ranks.py from {Path('my_labs', '00_ranks.ipynb')}"
    assert said[2] == "your answers, as kept by their checks: token_ring"


@pytest.mark.slow
def test_it_runs_alone_and_under_torchrun(folder):
    script("00", "-o", "lesson.py")
    for command in ([], ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=4"]):
        said = run(sys.executable, *command, "lesson.py")
        assert said[0] == "4 ranks · gloo · cpu"
        assert [line for line in said if line.startswith("token_ring: passed")] != []
        assert said[-1] == "3"
        assert len(said) == len(set(said)), "once, not by every rank"


def test_a_script_that_was_changed_stays(folder):
    path = folder / "00_ranks.py"
    assert script("00").exit_code == 0
    first = path.read_text("utf-8")
    (folder / ".ddpkit" / "answers" / "token_ring.py").unlink()
    assert script("00").exit_code == 0
    assert path.read_text("utf-8") != first, "written anew: nobody had changed it"
    for text in (path.read_text("utf-8") + "\n", "print(1)\n", first.replace("Cluster(4)", "x")):
        path.write_text(text, "utf-8")
        refused = script("00")
        assert refused.exit_code == 1
        assert "00_ranks.py has changed since `ddpkit script` wrote it" in refused.output
        assert path.read_text("utf-8") == text


def test_what_is_wrong_is_said(folder):
    assert "There is no lab '77'" in script("77").output
    assert "cannot be written: " in script("00", "-o", "nowhere/00.py").output
    (folder / "00_ranks.ipynb").write_text(json.dumps({"cells": [cell("x = = 1")]}), "utf-8")
    refused = script("00", "-o", "new.py")
    assert "00_ranks.ipynb cannot become a script: invalid syntax, in the line `x = = 1`" in (
        refused.output
    )
    assert not (folder / "new.py").exists()
