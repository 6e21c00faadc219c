"""torchrun over two hosts: the same lessons, one explanation, one clock."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ddpkit import Deadlock
from tests.cluster import page, run_lessons, two_hosts
from tests.cluster.faults import met_by, write
from tests.cluster.two_hosts import PATHS, Ended, Host, on_both

pytestmark = [pytest.mark.torchrun, pytest.mark.slow]

TIMES = """
import json, sys, time
import torch, torch.distributed as dist
from ddpkit import Cluster

def sums():
    for _ in range(20):
        time.sleep(0.01 * dist.get_rank())
        dist.all_reduce(torch.ones(1))
    return time.perf_counter()

run = Cluster(4).run(sums)
together = {}
for span in run.trace.spans:
    together.setdefault(span.seq, []).append((span.start_ns, span.end_ns))
print(json.dumps([dict(run.trace.facts), run.results, list(together.values())]))
"""

SRUN = """#!{python}
# Stands in for Slurm's: the command on each node, and the worst of their exit codes.
import subprocess, sys
command = sys.argv[1:]
while command[0].startswith("-"):
    del command[0]
enter = ["nsenter", "--net", "--uts", "--mount", "--time"]
tasks = [subprocess.Popen([*enter, f"--target={{pid}}", *command]) for pid in {pids}]
sys.exit(max(task.wait() for task in tasks))
"""

ENDS = """
import os, signal, sys, time
import torch, torch.distributed as dist
from ddpkit import Cluster

def killed_first():
    dist.barrier()
    if dist.get_rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()

def sleeps():
    with open(os.path.join(sys.argv[2], str(dist.get_rank())), "w") as file:
        print(os.getpid(), file=file)
    time.sleep(1000)

if sys.argv[1] == "sleeps":
    import ddpkit.cluster.torchrun.connections
    ddpkit.cluster.torchrun.connections.SILENCE = 10  # instead of 20 seconds
Cluster(4).run(globals()[sys.argv[1]])
print("never said")
"""

FAULTS = met_by("hosts")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "faults.py"


def run(hosts: tuple[Host, Host], *what: object, limit: float = 100, **environ: str) -> Ended:
    return on_both(hosts, *page.launch(page.TWO_HOSTS), *map(str, what), limit=limit, **environ)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("lessons", run_lessons.ON_TWO_HOSTS, ids=run_lessons.named)
def test_lessons_pass_and_say_so_once(hosts, lessons):
    ended = run(hosts, run_lessons.SCRIPT, *lessons, limit=350)
    assert ended.codes == (0, 0), ended.stderr
    assert run_lessons.passed(ended.stdout[0]) == run_lessons.checked(lessons)
    theirs = ended.stdout[1].splitlines()
    assert [line for line in theirs if not line.startswith("[rank ")] == []
    if run_lessons.ALL[0] in lessons:
        assert "Run on 4 ranks, 4 messages of 4 MB (gloo, CPU" in ended.stdout[0], "a timeline"
        assert "[rank 2] I am rank 2 of 4." in theirs, "inside a run, each rank prints where it is"


def sbatch(hosts: tuple[Host, Host], folder: Path, script: Path) -> str:
    """Run a script by the job script of the page, as Slurm does, and return the script's output."""
    tools = {
        "srun": SRUN.format(python=sys.executable, pids=[host.pid for host in hosts]),
        "scontrol": "#!/bin/sh\necho node1; echo node2\n",
    }
    for name, text in tools.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    (folder / "job.sh").write_text(page.SBATCH.replace(page.LESSON, str(script)))
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "77"}
    ended = subprocess.run(
        ["bash", str(folder / "job.sh")],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, **PATHS, **slurm, "PATH": f"{folder}{os.pathsep}{PATHS['PATH']}"},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_times_of_two_hosts_are_of_one_clock(hosts, tmp_path):
    """The hosts' clocks are a day apart.

    No rank leaves an all-reduce before the last rank has entered.
    """
    script = tmp_path / "times.py"
    script.write_text(TIMES)
    facts, theirs, sums = json.loads(sbatch(hosts, tmp_path, script))
    assert theirs[3] - theirs[0] > two_hosts.DAY / 2, "not moved: what a function measures itself"
    assert facts["hosts"] == 2
    error = facts["clock_error_ns"]
    assert 0 < error < 20_000_000, "half of a round trip"
    assert len(sums) == 20
    for spans in sums:
        assert len(spans) == 4
        starts, ends = zip(*spans, strict=True)
        assert max(starts) <= min(ends) + 2 * error


@pytest.mark.parametrize("name", FAULTS)
def test_a_failure_on_the_second_host_is_explained_once(hosts, script, name):
    fault = FAULTS[name]
    says = write(script, fault, "hosts")
    ended = run(hosts, script)
    assert 0 not in ended.codes
    assert "never said" not in "".join(ended.stdout)
    assert [text for text in says if text not in ended.stderr[0]] == []
    assert "".join(ended.stderr).count(f"{fault.error.__name__}: {says[0]}") == 1
    assert [said.count("ChildFailedError:") for said in ended.stderr] == [1, 1], "torchrun's report"
    if fault.error is not Deadlock:
        _, _, cause = ended.stderr[1].partition("Root Cause")
        assert "rank      : 3 (local_rank: 1)" in cause, "torchrun names the rank, too"


def test_rank_0_killed_is_explained_by_those_that_it_would_have_told(hosts, script):
    """The first host may stay silent: torchrun may end its other rank before the rank reports."""
    script.write_text(ENDS)
    ended = run(hosts, script, "killed_first")
    assert 0 not in ended.codes
    said = [text.count("RankDied: rank 0 on host node1 is gone") for text in ended.stderr]
    assert said[0] <= 1
    assert said[1] == 1
    assert "never said" not in "".join(ended.stdout)


def runs(pid: int) -> bool:
    """True if a process still runs: a zombie has ended, even if its parent has not noticed yet."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_host_that_is_cut_off_ends_the_job(hosts, script, tmp_path):
    """The ranks on both sides end, although torchrun on the second host waits for longer."""
    script.write_text(ENDS)
    ranks = [tmp_path / str(rank) for rank in range(4)]
    for host in hosts:
        host.start(*page.launch(page.TWO_HOSTS), str(script), "sleeps", str(tmp_path))
    try:
        while not all(path.exists() and path.read_text().endswith("\n") for path in ranks):
            assert [host.jobs[0].poll() for host in hosts] == [None, None], "begun"
            time.sleep(0.1)
        pids = [int(path.read_text()) for path in ranks]
        hosts[1].cable("down")
        _, said = hosts[0].jobs[0].communicate(timeout=60)
        give_up = time.monotonic() + 60
        while any(map(runs, pids)) and time.monotonic() < give_up:
            time.sleep(0.1)
        alive = list(filter(runs, pids))
    finally:
        for host in hosts:
            host.end_jobs()
        hosts[1].cable("up")
    assert "RankDied: rank" in said
    assert (
        "on host node2 is gone: its process was killed or crashed, or its host cannot be reached"
        in said
    )
    assert alive == []
