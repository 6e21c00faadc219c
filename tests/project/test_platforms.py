"""macOS and Windows, by construction: the code does not need features that these systems lack.

No such machine is available. Therefore the tests remove the features from Python, and the code
takes its other branches.
"""

import os
import signal
import subprocess
import sys
from multiprocessing import Pipe

import pytest

from ddpkit.cluster.local import launch
from ddpkit.cluster.torchrun import hosts
from ddpkit.rank import process
from tests.project.source import ROOT, modules

# Windows has none of these. (Libraries are imported before, because they have branches of their
# own.)
WITHOUT = """
import importlib, importlib.abc, os, signal, sys
import click, cloudpickle, IPython, ipykernel, jupytext, matplotlib.pyplot, nbclient, nbformat
import multiprocessing.forkserver, multiprocessing.popen_spawn_posix, nbval, torch.distributed, tqdm

class Lacks(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in ("fcntl", "resource", "pwd", "grp", "termios"):
            raise ModuleNotFoundError(name, name=name)

for name in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Lacks())
for name in ("fork", "getpgid", "getuid", "killpg", "register_at_fork", "sched_getaffinity",
             "setpgid", "setsid", "geteuid", "WNOHANG", "O_NONBLOCK"):
    delattr(os, name)
for name in ("SIGALRM", "SIGKILL", "SIGUSR1", "SIGHUP", "setitimer", "pthread_sigmask"):
    delattr(signal, name)
sys.platform = "win32"
for name in sys.argv[1:]:
    importlib.import_module(name)

from ddpkit.cluster.torchrun import hosts
from ddpkit.cluster.local import launch
from ddpkit.cluster.cores import cores
from ddpkit.rank.process import _die_with
assert launch.START == "spawn"
launch.warm_up(), launch._widen(None), _die_with(None)  # nothing to do
assert hosts.address_of("lo") is None
assert hosts.interface_with("127.0.0.1") is None
assert cores() == os.cpu_count()

from ddpkit import Cluster
from ddpkit.simulate import schedule
from ddpkit.view import play
print(Cluster(2))
play(schedule("ring", 4, length=8)).figure()
"""

# Grading is for Linux; the forkserver and the programs of a package are not imported as modules.
NOT_THERE = ("ddpkit.grade", "ddpkit.rank.preload", "ddpkit.__main__", "ddpkit.data.make_digits")


@pytest.mark.processes
def test_everything_but_grading_imports_and_draws_where_there_is_no_fork():
    names = [name for name in modules() if not name.startswith(NOT_THERE)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, *names],
        cwd=ROOT,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("2 ranks · gloo · cpu\n")
    assert "step 1 of 6" in done.stdout.lower()


@pytest.mark.parametrize(
    ("platform", "settings"),
    [
        ("linux", {"GLOO_SOCKET_IFNAME": "lo"}),
        ("darwin", {"GLOO_SOCKET_IFNAME": "lo0"}),
        ("win32", {"USE_LIBUV": "0"}),
    ],
)
def test_gloo_stays_on_loopback_unless_the_user_says_otherwise(monkeypatch, platform, settings):
    monkeypatch.setattr(sys, "platform", platform)
    for name in ("GLOO_SOCKET_IFNAME", "USE_LIBUV"):
        monkeypatch.delenv(name, raising=False)
    assert process.loopback() == settings
    for name in settings:
        monkeypatch.setenv(name, "chosen")
    assert process.loopback() == {}


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_interfaces_are_asked_for_on_linux_only(monkeypatch, platform):
    monkeypatch.setattr(sys, "platform", platform)
    assert hosts.address_of("lo") is None
    assert hosts.interface_with("127.0.0.1") is None


class Process:
    """A rank's process that records the actions on it."""

    pid, exitcode, killed = 2**22 + 1, None, False  # no process has such a high number

    def kill(self) -> None:
        self.killed = True


def test_a_rank_is_ended_and_asked_where_there_are_no_process_groups(monkeypatch):
    ends = [Pipe(duplex=False)[0] for _ in range(4)]
    rank = launch.RankProcess(Process(), *ends)
    monkeypatch.setattr(os, "name", "nt")
    monkeypatch.delattr(os, "killpg")
    monkeypatch.delattr(signal, "SIGUSR1")
    rank.ask_where()
    rank.kill()
    monkeypatch.undo()
    assert rank.process.killed


@pytest.mark.processes
def test_without_a_signal_from_the_kernel_a_rank_leaves_when_its_launcher_has():
    """A thread waits for the end of the lifeline, as on macOS and Windows."""
    code = (
        "import time; from multiprocessing.connection import Connection\n"
        "import threading; from ddpkit.rank.process import _watch\n"
        "threading.Thread(target=_watch, args=(Connection(0),), daemon=True).start()\n"
        "print('watching', flush=True); time.sleep(100)"
    )
    rank = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert rank.stdout is not None
    assert rank.stdout.readline() == b"watching\n"
    rank.communicate(timeout=60)  # closes its standard input
    assert rank.returncode == 1
