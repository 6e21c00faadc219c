"""One class for all tests, graded once, two notebooks at a time.

The grader is killed on the way and started again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ddpkit.errors import GradeError
from ddpkit.grade import store
from ddpkit.grade.sandbox import bwrap
from ddpkit.grade.store import Result
from tests.grade.attacks import ATTACKS, notebook

LIMIT = "15"  # seconds for a cell; 5 were too few for a right answer on a slow, busy machine
REFUSED = "0/refused.ipynb"  # a file of the class that is no notebook


@dataclass(frozen=True)
class Graded:
    """A class that was graded, and traces of the killed grader."""

    submissions: Path
    out: Path
    results: dict[str, Result]  # results of ATTACKS, by name
    refused: Result
    kept: dict[Path, int]  # results at the time of the kill: ns of each file's change
    left: list[str]  # processes of sandboxes that still ran a minute after the kill


def grade(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ddpkit", "grade", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=3000)


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
    (submissions / REFUSED).parent.mkdir()
    (submissions / REFUSED).write_text("no notebook")
    how = [submissions, "--lab", "00", "--jobs", "2", "--limit", LIMIT]
    left = killed_on_the_way(folder / "tmp", out, *how)
    kept = {path: path.stat().st_mtime_ns for path in (out / "results").iterdir()}
    del kept[store.file_of(out, REFUSED)]  # nothing is graded for this file: it is refused again
    done = grade(*how, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    results = {result.name.partition("/")[0]: result for result in store.load(out)}
    return Graded(submissions, out, results, results.pop("0"), kept, left)


def killed_on_the_way(work: Path, out: Path, *arguments: str | Path) -> list[str]:
    """Start a grader, and kill it when one notebook is graded and others are in flight.

    Return the processes of its sandboxes that still run a minute later.
    """
    work.mkdir()
    command = [sys.executable, "-m", "ddpkit", "grade", *map(str, arguments), "--out", str(out)]
    environ = {**os.environ, "TMPDIR": str(work)}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: "graded" in [result.status for result in _stored(out)], 1400)
        wait_until(lambda: bool(running_in(work)), 60)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    try:
        wait_until(lambda: not running_in(work), 60)
    except AssertionError:
        return running_in(work)
    return []


def _stored(out: Path) -> list[Result]:
    try:
        return store.load(out)
    except GradeError:  # no results yet
        return []


def running_in(folder: Path) -> list[str]:
    """Return the command lines of processes that were started for a sandbox of `folder`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text and "bwrap" in text:
            found.append(text[:200])
    return found


def wait_until(true: Callable[[], bool], seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.1)
