"""torchrun from a cell: it restarts killed ranks, and leaves no process behind in any case."""

import os
import re
import signal
import subprocess
import sys

import psutil
import pytest

from ddpkit import Cluster, torchrun
from ddpkit.cluster import elastic
from ddpkit.errors import ClusterError, RunTimeout
from tests.cluster import page, two_hosts
from tests.cluster.processes import becomes_true

pytestmark = pytest.mark.processes

SLEEPS = """
import os, subprocess, sys, time
from pathlib import Path

asleep = [sys.executable, "-c", "import time; time.sleep(600)"]
child = subprocess.Popen(asleep, start_new_session=True)
for pid in (os.getpid(), child.pid):
    (Path(sys.argv[1]) / str(pid)).touch()
print("asleep", flush=True)
time.sleep(600)
"""
IMPORTS = """
import os, signal, sys, torch, torch.distributed as dist
from ddpkit.answers.lab10 import load_checkpoint, save_checkpoint
"""
TRAINS = """
torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
start = load_checkpoint(path, model, optimizer)
for step in range(start, 7):
    if step == fatal and not start and dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(10 * step + dist.get_rank()))
    optimizer.zero_grad()
    model(x).square().mean().backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)
    optimizer.step()
    if step % 2:
        save_checkpoint(path, step + 1, model, optimizer)
bits = torch.cat([p.detach().flatten() for p in model.parameters()]).view(torch.int32).tolist()
"""
RESUMES = f"""{IMPORTS}
path, fatal = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
{TRAINS}
os.write(1, f"\\nrank {{dist.get_rank()}} from step {{start}}: {{bits}}\\n".encode())
dist.destroy_process_group()
"""

RUNS_AGAIN = """
import os, signal, sys, torch, torch.distributed as dist
from ddpkit import Cluster

def total():
    t = torch.ones(1)
    dist.all_reduce(t)
    if dist.get_rank() == 3 and not os.path.exists(sys.argv[1]):
        open(sys.argv[1], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
    return t.item()

run = Cluster(4).run(total)
print(run.results, run.trace.facts["restart"])
"""


def write(folder, text):
    script = folder / "script.py"
    script.write_text(text)
    return script


def pids(folder):
    return [int(path.name) for path in folder.iterdir()]


def none_runs(folder):
    return not any(psutil.pid_exists(pid) for pid in pids(folder))


def undisturbed(ranks, path):
    """Return each rank's final bits of the same training, with no rank killed."""

    def trains():
        room = {"path": str(path), "fatal": -1}
        exec(IMPORTS + TRAINS, room)
        assert room["start"] == 0
        return str(room["bits"])

    return Cluster(ranks).run(trains).results


def test_a_killed_rank_ends_with_the_bits_of_an_undisturbed_run(tmp_path):
    command = write(tmp_path, RESUMES), str(tmp_path / "killed.pt"), "5"
    run = torchrun(*command, ranks=2, max_restarts=1, timeout=250, show=False)
    assert run.code == 0, run.output
    assert [start for start, _ in ended_with(run.output)] == ["4", "4"]
    whole = undisturbed(2, tmp_path / "whole.pt")
    assert [bits for _, bits in ended_with(run.output)] == whole
    assert len(set(whole)) == 1


def ended_with(output):
    return re.findall(r"^rank \d from step (\d): (.*)$", output, re.M)


@pytest.mark.torchrun
@pytest.mark.timeout(400)
def test_so_it_does_over_two_hosts(hosts, tmp_path):
    launch, *options = page.launch(page.TWO_HOSTS)
    script, checkpoint = str(write(tmp_path, RESUMES)), str(tmp_path / "killed.pt")
    command = [launch, "--max-restarts=1", *options, script, checkpoint, "5"]
    ended = two_hosts.on_both(
        hosts, *command, limit=180, GLOO_SOCKET_IFNAME="eth0", **elastic.OWN_STORE
    )
    assert ended.codes == (0, 0), ended.stderr
    found = [*ended_with(ended.stdout[0]), *ended_with(ended.stdout[1])]
    assert [start for start, _ in found] == ["4"] * 4
    assert [bits for _, bits in found] == undisturbed(4, tmp_path / "whole.pt")


@pytest.mark.torchrun
@pytest.mark.timeout(400)
def test_a_run_goes_on_after_a_restart_over_two_hosts(hosts, tmp_path):
    """A rank of the second host dies.

    torchrun keeps its store, which still has the dead ranks' addresses.
    """
    launch, *options = page.launch(page.TWO_HOSTS)
    command = [launch, "--max-restarts=1", *options, str(write(tmp_path, RUNS_AGAIN))]
    ended = two_hosts.on_both(hosts, *command, str(tmp_path / "died"), limit=180)
    assert ended.codes == (0, 0), ended.stderr
    said = "".join(ended.stderr).count("RankDied: rank 3 on host node2 is gone")
    assert said == 1, ended.stderr
    assert ended.stdout[0].splitlines() == [
        "Restart 1 of 1: torchrun has started all ranks again.",
        "[4.0, 4.0, 4.0, 4.0] 1 of 1",
    ]


def test_a_script_that_fails_has_its_exit_code(tmp_path, capfd):
    run = torchrun(write(tmp_path, "raise SystemExit(3)"), ranks=1, timeout=250)
    assert run.code == 1
    assert "exitcode  : 3" in run.output
    assert str(run) == "exit code 1, after 0 restarts"
    assert "exitcode  : 3" in capfd.readouterr().out


FAILS_TWICE = """
import os, signal, sys, time, torch.distributed as dist
dist.init_process_group("gloo")
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
dist.barrier()
if dist.get_rank() == 1 and attempt < 2:
    if attempt:
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("bad batch 7")
print("x\\n" * 2000 if attempt == 0 else "", flush=True)
try:
    dist.barrier()
except RuntimeError:  # rank 0 lives on, so that torchrun cannot take it for the first failed rank
    time.sleep(600)
if dist.get_rank() == 0 and sys.argv[1] == "fails":
    sys.exit(3)
dist.destroy_process_group()
"""


@pytest.mark.parametrize(("how", "code"), [("ends", 0), ("fails", 1)])
def test_the_restarts_and_their_reasons_are_said(tmp_path, capfd, how, code):
    """The first failure comes after 1000 lines of output, and must still be found."""
    run = torchrun(write(tmp_path, FAILS_TWICE), how, ranks=2, max_restarts=2, timeout=250)
    assert run.code == code
    assert run.restarts == ("rank 1: ValueError: bad batch 7", "rank 1: ended by SIGKILL")
    said = f"exit code {code}, after 2 restarts ({'; '.join(run.restarts)})"
    assert str(run) == said
    assert capfd.readouterr().out.endswith(f"torchrun ended with {said}.\n")


LOST = "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:35516: Connection reset by peer."


@pytest.mark.parametrize(
    ("code", "newest", "says"),
    [
        (1, {"0": LOST, "1": "ValueError: bad batch"}, "rank 1: ValueError: bad batch"),
        (1, {"0": LOST, "1": LOST, "2": "KeyError: 7"}, "rank 2: KeyError: 7"),
        (1, {"0": "KeyError: 7", "1": "ValueError: bad batch"}, "rank 0: KeyError: 7"),
        (1, {"0": LOST}, "another rank, which torchrun does not name: rank 0 lost its "),
        (1, {"1": "ValueError: bad batch"}, "rank 0: exit code 1"),
        (-9, {"1": "ValueError: bad batch"}, "rank 0: ended by SIGKILL"),
    ],
)
def test_a_rank_that_lost_its_connection_is_not_to_blame(code, newest, says):
    """Rank 1 was killed, rank 0 failed 0.1 s later, and the restart was rank 0's fault."""
    assert elastic._failure(code, "0", newest).startswith(says)


def test_no_script():
    with pytest.raises(
        ClusterError, match=r"cannot run the script nowhere\.py: there is no such file"
    ):
        torchrun("nowhere.py", ranks=2)


def test_a_timeout_leaves_nobody(tmp_path):
    seen = tmp_path / "seen"
    seen.mkdir()
    with pytest.raises(RunTimeout, match="ended after its timeout of 8 s"):
        torchrun(write(tmp_path, SLEEPS), str(seen), ranks=1, timeout=8, show=False)
    assert becomes_true(lambda: none_runs(seen))


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_neither_stop_nor_a_dead_kernel_leaves_anybody(tmp_path, how):
    seen = tmp_path / "seen"
    seen.mkdir()
    script = write(tmp_path, SLEEPS)
    call = f"import ddpkit; ddpkit.torchrun({str(script)!r}, {str(seen)!r}, ranks=2)"
    kernel = subprocess.Popen([sys.executable, "-c", call], stderr=subprocess.DEVNULL)
    try:
        assert becomes_true(lambda: len(pids(seen)) == 4, 120)
        below = psutil.Process(kernel.pid).children(recursive=True)
        assert len(below) >= 6  # the guardian, the agent, and two ranks with a child each
        kernel.send_signal(signal.SIGINT if how == "stopped" else signal.SIGKILL)
        assert becomes_true(lambda: not any(process.is_running() for process in below))
        assert none_runs(seen)
        assert kernel.wait(20) != 0
    finally:
        kernel.kill()
        kernel.wait()
        for pid in pids(seen):
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)
