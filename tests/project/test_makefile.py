"""The first command installs a copy of the labs, and no developers' tools."""

import shutil
import subprocess

import pytest

from tests.project.source import ROOT

pytestmark = [
    pytest.mark.skipif(shutil.which("make") is None, reason="no make here"),
    pytest.mark.processes,
]


def commands(target: str) -> str:
    made = subprocess.run(
        ["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return made.stdout


def test_a_reader_works_on_a_copy_that_git_ignores():
    lab = commands("lab")
    assert "ddpkit lab --copy my_labs --opened\n" in lab
    assert "--ServerApp.root_dir=my_labs" in lab
    assert "my_labs/" in (ROOT / ".gitignore").read_text("utf-8").splitlines()


def test_a_reader_gets_no_developers_tools():
    assert "[test" not in commands("lab")
    assert "'.[test,lint]'" in commands("quick")
