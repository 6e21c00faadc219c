"""`make quick` runs the tests that start no process, and detects tests that start one."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.order import LONGEST
from tests.project.source import ROOT

pytestmark = pytest.mark.processes

TESTS = """
import multiprocessing, os, subprocess, sys
import pytest

def starts():
    subprocess.run([sys.executable, "-c", ""])

def forks():
    if not os.fork():
        os._exit(0)

def spawns():
    process = multiprocessing.get_context("spawn").Process(target=int)
    process.start()
    process.join()  # one that ends after pytest could write behind its last line

@pytest.mark.parametrize("one", [starts, forks, spawns])
def test_unmarked(one):
    one()

def test_who_catches_it_fails_too():
    try:
        starts()
    except BaseException:
        pass

@pytest.fixture
def started():
    starts()

def test_of_a_fixture(started):
    pass

@pytest.mark.processes("some")
@pytest.mark.parametrize("one", [starts, print])
def test_some(one):
    one()

@pytest.mark.processes
def test_marked():
    starts()

@pytest.mark.slow
def test_slow():
    pass

def test_pure():
    subprocess.run(["git", "--version"])
"""


def run(folder: Path, *options: str) -> list[str]:
    """Return pytest's output lines for TESTS."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    processes: .\n    slow: .\n")
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.quick", "-p", "no:cacheprovider"]
    where = ["-c", str(folder / "pytest.ini"), str(folder)]
    done = subprocess.run(
        [*command, "-q", "-rA", *options, *where], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.splitlines()


def test_a_test_that_starts_a_process_is_told_to_be_marked(tmp_path: Path) -> None:
    said = run(tmp_path, "--quick")
    found = (re.match(r"(ERROR|FAILED|PASSED) .*::(\S+)", line) for line in said)
    assert sorted(" ".join(each.groups()) for each in found if each) == [
        "ERROR test_of_a_fixture",
        "FAILED test_unmarked[forks]",
        "FAILED test_unmarked[spawns]",
        "FAILED test_unmarked[starts]",
        "FAILED test_who_catches_it_fails_too",
        "PASSED test_pure",
        "PASSED test_some[print]",
    ]
    sentence = "This test is in `make quick`, and it starts a process (subprocess.Popen: python"
    assert [line for line in said if line.startswith(sentence)]
    assert [line for line in said if line.endswith("Mark it: @pytest.mark.processes")]
    assert "4 failed, 2 passed, 1 skipped, 2 deselected, 1 error" in said[-1]


def test_the_longest_are_there() -> None:
    assert [path for path in LONGEST if not (ROOT / path).exists()] == []


def test_without_it_all_run(tmp_path: Path) -> None:
    assert "10 passed" in run(tmp_path)[-1]
