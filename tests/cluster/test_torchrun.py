"""The same script under torchrun: the ranks are torchrun's, the results are the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

ROOT = Path(__file__).parents[2]

LESSON = """
import torch, torch.distributed as dist
from ddpkit import Cluster, PerRank

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

print(Cluster(3).run(total, 1).results, "three")

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


def torchrun(script: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return subprocess.run(
        [*command, str(script)],
        capture_output=True,
        text=True,
        timeout=200,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
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
