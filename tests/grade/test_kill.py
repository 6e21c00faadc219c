"""A grader that is killed loses what was in flight, leaves nothing running, and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ddpkit.grade import store
from tests.grade.attacks import notebook
from tests.grade.conftest import grade, needs_sandbox

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def running_in(folder: Path) -> list[str]:
    """Command lines of processes that were started for a sandbox of `folder`."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in text and "bwrap" in text:
            found.append(text[:200])
    return found


def wait_until(true, seconds: float) -> None:
    give_up = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def test_killed_and_resumed(tmp_path: Path) -> None:
    needs_sandbox()
    submissions, out, work = tmp_path / "in", tmp_path / "out", tmp_path / "tmp"
    work.mkdir()
    (submissions / "0").mkdir(parents=True)
    (submissions / "0" / "refused.ipynb").write_text("no notebook")
    for name in ("right", "right_sum_wrong_way"):
        (submissions / name).mkdir()
        (submissions / name / "lab.ipynb").write_text(json.dumps(notebook(name)))
    command = [sys.executable, "-m", "ddpkit", "grade", submissions, "--out", out]
    environ = {**os.environ, "TMPDIR": str(work)}
    process = subprocess.Popen(command, env=environ, stderr=subprocess.DEVNULL)
    first = store.file_of(out, "right/lab.ipynb")
    try:
        wait_until(first.exists, 300)
        wait_until(lambda: running_in(work), 60)  # the next one is in flight
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until(lambda: not running_in(work), 60)
    before = first.stat().st_mtime_ns
    done = grade(submissions, "--out", out, "--resume")
    assert done.returncode == 0, done.stderr
    assert first.stat().st_mtime_ns == before
    results = {result.name: result for result in store.load(out)}
    assert [each.status for each in results.values()] == ["refused", "graded", "graded"]
    assert results["right/lab.ipynb"].earned == results["right/lab.ipynb"].points
