"""A script of a Cluster under torchrun: torchrun starts the ranks; the results are equal."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.cluster import page, run_lessons
from tests.cluster.faults import met_by, write
from tests.cluster.two_hosts import PATHS

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

LESSON = """
import torch, torch.distributed as dist
from ddpkit import Cluster, PerRank, show

def total(x):
    t = torch.tensor([float(x)])
    dist.all_reduce(t)
    print("hello from", dist.get_rank())
    print("end", end="")
    return dist.get_world_size(), t.item(), torch.rand(1).item()

cluster = Cluster(2)
print(cluster)
run = cluster.run(total, PerRank([1, 10]))
print([result[:2] for result in run.results], run.results[0][2] != run.results[1][2])
print(run.output.splitlines())
print(run.traffic)
print(cluster.run(total, 1).results[0][:2], "again")

print(Cluster(1).run(total, 5).results[0][:2], "alone")

run = Cluster(3).run(total, 1)
print(run.results, "three")
show(run, step=2)
print(Cluster(3).run(total, 1).results, "three again")

def stuck():
    dist.recv(torch.ones(1), 1 - dist.get_rank())

print(cluster.run(stuck, expect_error=True).results, "stuck")
"""

FAILS = """
import torch.distributed as dist
from ddpkit import Cluster

def fails():
    if dist.get_rank() == 1:
        raise ValueError("no such thing")  # here
    dist.barrier()

Cluster(2).run(fails)
"""


LEAVES = """
import os, sys
import torch.distributed as dist
from ddpkit import Cluster

cluster = Cluster(2)
print(cluster.run(dist.get_world_size).results)
if os.environ["RANK"] == "1":
    sys.exit(0)
cluster.run(dist.get_rank)
print("never said")
"""

DIES_ONCE = """
import os, signal, torch, torch.distributed as dist
from ddpkit import Cluster

def total():
    t = torch.ones(1)
    dist.all_reduce(t)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    return t.item()

run = Cluster(2).run(total)
print(run.results, run.trace.facts["restart"])
"""

FAULTS = met_by("torchrun")

LAUNCH = ["torchrun", "--standalone", "--nproc-per-node=2"]


def torchrun(
    script: Path, *args: str, launch: list[str] = LAUNCH, limit: float = 100
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*launch, str(script), *args],
        capture_output=True,
        text=True,
        timeout=limit,
        env={**os.environ, **PATHS, "OMP_NUM_THREADS": "1"},
    )


def test_a_lesson(tmp_path):
    script = tmp_path / "lesson.py"
    script.write_text(LESSON)
    done = torchrun(script)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    printed = [line for line in said if line.startswith("[rank")]
    assert sorted(printed) == sorted(
        [f"[rank {rank}] {line}" for rank in (0, 1) for line in (f"hello from {rank}", "end")] * 2
        + ["[rank 0] hello from 0", "[rank 0] end"]
    )
    assert [line for line in said if line not in printed] == [
        "2 ranks · gloo · cpu",
        "[(2, 11.0), (2, 11.0)] True",
        "['[rank 0] hello from 0', '[rank 0] end', '[rank 1] hello from 1', '[rank 1] end']",
        "<Traffic of 2 ranks: all_reduce ×1 per rank>",
        "(2, 2.0) again",
        "(1, 5.0) alone",
        "Skipped: it needs 3 ranks, and torchrun started 2.",
        "[None, None, None] three",
        "No picture: the run was skipped.",
        "Skipped: 3 ranks.",
        "[None, None, None] three again",
        "Left out under torchrun: this run breaks its ranks on purpose.",
        "[None, None] stuck",
    ]


def test_a_rank_that_raises_ends_the_job_with_its_line(tmp_path):
    script = tmp_path / "lesson.py"
    script.write_text(FAILS)
    done = torchrun(script)
    assert done.returncode != 0
    assert "ValueError: no such thing" in done.stderr
    assert 'raise ValueError("no such thing")  # here' in done.stderr
    assert done.stderr.count("RankError: rank 1 raised") == 1
    assert re.search(r"Root Cause.*\n.*\n.*\n.*\n *rank *: 1 ", done.stderr), (
        "torchrun names it too"
    )


def ended(done: subprocess.CompletedProcess[str], says: list[str], error: str) -> None:
    """Check that an error ended the job after its first run, and was reported once."""
    assert done.returncode != 0
    assert done.stdout == "[2, 2]\n"
    assert [text for text in says if text not in done.stderr] == []
    assert done.stderr.count(f"{error}: ") == 1
    assert "ChildFailedError" in done.stderr


@pytest.mark.parametrize("name", FAULTS)
def test_what_ends_a_run_is_said_once(name, tmp_path):
    fault = FAULTS[name]
    script = tmp_path / "faults.py"
    says = write(script, fault, "torchrun", "print(Cluster(2).run(dist.get_world_size).results)")
    ended(torchrun(script), says, fault.error.__name__)


def test_a_rank_that_leaves_the_script_is_said_once(tmp_path):
    script = tmp_path / "lesson.py"
    script.write_text(LEAVES)
    ended(torchrun(script), ["RankDied: rank 1 left the script"], "RankDied")


def test_a_job_goes_on_after_a_restart_in_the_store_of_the_attempt_before(tmp_path):
    """Without the variable that `ddpkit.torchrun` sets, torch's own rendezvous fails here."""
    script = tmp_path / "lesson.py"
    script.write_text(DIES_ONCE)
    done = torchrun(script, launch=[*LAUNCH, "--max-restarts=1"])
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("RankDied: rank 1 is gone") == 1
    assert done.stdout.splitlines() == [
        "Restart 1 of 1: torchrun has started all ranks again.",
        "[2.0, 2.0] 1 of 1",
    ]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lessons", run_lessons.ON_ONE_HOST, ids=run_lessons.named)
def test_lessons_pass_and_say_so_once(lessons):
    """test_hosts.py runs the first lessons."""
    launch = page.launch(page.ONE_HOST)
    done = torchrun(run_lessons.SCRIPT, *map(str, lessons), launch=launch, limit=350)
    assert done.returncode == 0, done.stderr
    assert run_lessons.passed(done.stdout) == run_lessons.checked(lessons)


@pytest.mark.timeout(400)
def test_lessons_go_on_where_they_need_more_ranks_than_there_are():
    """Two ranks instead of four: exercises that need more ranks are left out, all others run."""
    lessons = run_lessons.ON_TOO_FEW
    done = torchrun(run_lessons.SCRIPT, *map(str, lessons), limit=350)
    assert done.returncode == 0, done.stderr
    assert "Skipped: it needs 4 ranks, and torchrun started 2." in done.stdout
    assert "left out: torchrun started too few ranks." in done.stdout
    assert run_lessons.passed(done.stdout) == run_lessons.checked(lessons)
