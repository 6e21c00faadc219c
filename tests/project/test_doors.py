"""Devcontainer, Binder and docs/where.md: commands exist, versions agree with ours."""

import json
import os
import re
import subprocess
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement

from tests.project.source import ROOT
from tests.project.test_requirements import PROJECT, pins

CONTAINER = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))
BINDER = yaml.safe_load((ROOT / "binder" / "environment.yml").read_text("utf-8"))
TESTED = re.search(r"Python (\d+\.\d+)", (ROOT / "constraints.txt").read_text("utf-8"))[1]
WHERE = (ROOT / "docs" / "where.md").read_text("utf-8")


def test_every_door_has_the_python_that_the_constraints_are_for():
    assert re.fullmatch(rf".*/python:\d+-{re.escape(TESTED)}-\w+", CONTAINER["image"])
    for conda in (CONDA, BINDER):
        assert f"python={TESTED}" in conda["dependencies"]
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]
    assert lint["python_version"] == TESTED


@pytest.mark.processes
def test_container_is_made_by_a_target_of_the_makefile():
    make, target = CONTAINER["postCreateCommand"].split()
    dry = subprocess.run(
        [make, "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, timeout=20
    )
    assert dry.returncode == 0, dry.stderr
    venv = target.partition("/")[0]
    interpreter = CONTAINER["customizations"]["vscode"]["settings"]["python.defaultInterpreterPath"]
    assert interpreter == f"${{containerWorkspaceFolder}}/{venv}/bin/python"
    assert f"-m venv {venv}" in dry.stdout


def test_binder_takes_torch_from_where_conda_users_take_everything():
    assert BINDER["channels"] == CONDA["channels"]
    (torch,) = (Requirement(each) for each in BINDER["dependencies"] if each.startswith("pytorch"))
    (ours,) = (each for each in map(Requirement, PROJECT["dependencies"]) if each.name == "torch")
    assert torch.name == "pytorch-cpu"
    assert torch.specifier == ours.specifier


@pytest.mark.processes
def test_binder_installs_the_rest_as_tested(tmp_path):
    """The script runs with a stand-in for Python, which prints its arguments."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "$@"\ncat "$6"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [ROOT / "binder" / "postBuild"],
        cwd=ROOT,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    asked, *constraints = done.stdout.splitlines()
    assert re.fullmatch(r"-m pip install --no-cache-dir -c \S+ -e \.", asked)
    kept = [line.partition("==")[0] for line in constraints if not line.startswith("#")]
    assert len(kept) == len(pins()) - 1
    assert "torch" not in kept


@pytest.mark.parametrize("path", re.findall(r"\]\((?!https?:)([^)#]+)", WHERE))
def test_what_the_page_names_is_there(path):
    assert (ROOT / "docs" / path).exists()


def test_the_page_says_of_every_door_whether_it_was_tested():
    rows = re.findall(r"^\| \*\*(.+?)\*\* \|[^|]*\| (.+?) \|", WHERE, re.MULTILINE)
    doors = dict(rows)
    assert set(doors) == {
        "Linux", "torchrun", "GPUs", "macOS", "Windows", "Colab", "Binder", "VS Code", "conda",
    }  # fmt: skip
    assert all(tested.startswith(("yes", "no", "in part")) for tested in doors.values())
