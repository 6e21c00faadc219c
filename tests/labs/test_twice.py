"""Each run of the lessons on a modelled machine, with and without values: equal times and
levels."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.project.source import ROOT

pytestmark = pytest.mark.processes

LESSONS = sorted((ROOT / "solutions").glob("*.py"))[4:15]  # 04 to 14
UNLIKE = {  # (lesson, function) -> the reason for unequal times
    ("08", "train_both"): "the rows that a worker pulls are drawn, and drawn numbers are values",
    ("10", "job"): "ranks send the bytes of a checkpoint, and files without values are smaller",
    ("13", "torchs_checkpoint"): "torch.distributed.checkpoint sends sizes of files as objects",
}
SOME = ("06",)  # all lessons take half an hour: DDPKIT_ALL_MUTANTS=1


@pytest.mark.parametrize("lesson", LESSONS, ids=lambda path: path.name[:2])
def test_the_runs_of_a_lesson_are_equal_without_values(lesson):
    if lesson.name[:2] not in SOME and "DDPKIT_ALL_MUTANTS" not in os.environ:
        pytest.skip("the runs of the other lessons take half an hour: DDPKIT_ALL_MUTANTS=1")
    done = subprocess.run(
        [sys.executable, "-m", "tests.labs.twice", str(lesson)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert sum("function" in each for each in found) > 2, done.stdout + done.stderr
    unlike = [each for each in found if not (each.get("spans") and each.get("memory"))]
    number = lesson.name[:2]
    assert [each for each in unlike if (number, each.get("function")) not in UNLIKE] == []
