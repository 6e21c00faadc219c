"""The benchmark of the compiler prints its rows, for Pythons with and without torch's compiler."""

import subprocess
import sys

import pytest

from benchmarks import compiler
from tests.project.source import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="the forkserver is Linux's"),
]


def test_it_prints_time_and_processor_time_of_a_first_run() -> None:
    command = [sys.executable, "-m", "benchmarks.compiler", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "2 ranks, the first run: time" in done.stdout
    assert "2 ranks, the first run: processor time of all" in done.stdout
    assert compiler.LOADED in done.stdout
    assert "nan" not in done.stdout
