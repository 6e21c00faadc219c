"""One class for all tests: graded once, two at a time."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpkit.grade import bwrap, store
from ddpkit.grade.store import Result
from tests.grade.attacks import ATTACKS, notebook

LIMIT = "10"  # seconds for a cell: CI's machine is small


@dataclass(frozen=True)
class Graded:
    """A class that was graded."""

    submissions: Path
    out: Path
    results: dict[str, Result]


def grade(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddpkit", "grade", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=1500)


def needs_sandbox() -> None:
    if why := bwrap.trouble():
        pytest.skip(f"no sandbox here: {why}")


@pytest.fixture(scope="session")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Graded:
    needs_sandbox()
    folder = tmp_path_factory.mktemp("class")
    submissions, out = folder / "submissions", folder / "out"
    for name in ATTACKS:
        (submissions / name).mkdir(parents=True)
        (submissions / name / "läb.ipynb").write_text(json.dumps(notebook(name)))
    for name in ("conftest.py", "torch.py", "sitecustomize.py"):
        (submissions / "right" / name).write_text("raise SystemExit('taken over')")
    (submissions / "right" / "pytest.ini").write_text("[pytest]\naddopts = --collect-only\n")
    done = grade(submissions, "--out", out, "--jobs", "2", "--limit", LIMIT)
    assert done.returncode == 0, done.stderr
    results = {result.name.partition("/")[0]: result for result in store.load(out)}
    return Graded(submissions, out, results)
