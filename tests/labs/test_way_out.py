"""Each lab ends with a program in plain torch that does the same and runs unchanged."""

import re
import subprocess
import sys

import pytest

from ddpkit import Cluster
from ddpkit.authoring import parse
from ddpkit.authoring.rules import BLOCK, SCRIPT_LINES
from ddpkit.rank.script.launched import LaunchedScript
from tests.project.source import ROOT

LESSONS = sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py"))


def program(path):
    """Return the block of Python in the section "The way out"."""
    (text,) = (
        cell.source
        for cell in parse(path).cells
        if cell.kind == "markdown" and cell.source.startswith("## The way out")
    )
    (block,) = BLOCK.findall(text)
    return re.sub(r"^```(python)?\n?|```$", "", block, flags=re.MULTILINE)


@pytest.mark.processes
@pytest.mark.parametrize("path", LESSONS, ids=[path.stem for path in LESSONS])
def test_it_runs_as_it_stands(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the program may write files in its folder
    script = tmp_path / "script.py"
    script.write_text(program(path))
    run = Cluster(2).run(LaunchedScript(str(script), ()))
    joined = "init_process_group" in script.read_text()
    assert bool([span for span in run.trace.of(1) if span.kind == "comm"]) == joined


@pytest.mark.processes
def test_torchrun_runs_it_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(program(LESSONS[2]))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, "--nproc-per-node", "2", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"rank [01]: the sum is \[1\.0, 1\.0\]", done.stdout)) == 2


def test_it_is_short_and_needs_no_kit():
    for path in LESSONS:
        code = program(path)
        assert len(code.strip().splitlines()) <= SCRIPT_LINES
        assert "ddpkit" not in code
