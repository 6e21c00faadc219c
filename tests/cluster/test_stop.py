"""KeyboardInterrupt frees the notebook and the ranks at once, in every state of the ranks."""

import ctypes
import os
import re
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from ddpkit.cluster.local import run as local
from ddpkit.errors import Interrupted
from tests.cluster.explained import out_of_time
from tests.cluster.processes import becomes_true, ranks_alive

pytestmark = pytest.mark.processes


def computes():
    while True:
        pass


def holds_the_gil():
    ctypes.PyDLL(None).sleep(600)


def regex():
    re.match("(a+)+$", "a" * 60 + "b")


def sleeps():
    time.sleep(600)


def waits():
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1), 1)
    time.sleep(600)


def swallows():
    while True:
        try:
            time.sleep(600)
        except BaseException:
            continue


def floods():
    while True:
        os.write(1, b"spam\n" * 10_000)


@pytest.fixture
def patient(monkeypatch):
    """Wait longer for the ranks' answers than a reader would: the machine may be busy."""
    monkeypatch.setattr(local, "ANSWER", 60.0)


@pytest.mark.parametrize(
    "function", [computes, holds_the_gil, regex, sleeps, waits, swallows, floods]
)
def test_interrupt(cluster, function, tmp_path, patient):
    def start():
        (tmp_path / str(dist.get_rank())).touch()
        function()

    def interrupt():
        becomes_true(lambda: len(list(tmp_path.iterdir())) == 2, 120)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(Interrupted, match="you stopped the run. At that moment,") as caught:
        cluster.run(start)
    said = str(caught.value)
    if function is not floods:
        assert f"rank 1 was in {os.path.basename(__file__)}, line " in said
    assert becomes_true(lambda: not ranks_alive())
    assert cluster.run(dist.get_rank).results == [0, 1]


def test_timeout_of_a_rank_that_holds_the_gil_says_where(cluster, patient):
    said = str(out_of_time(cluster, holds_the_gil, timeout=0.7))
    assert re.search("rank 1 was in test_stop.py, line .*PyDLL", said), said


def sleeps_on(pid: int) -> bool:
    """True if the main thread of a process sleeps, in several looks."""
    for _ in range(5):
        if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
            return False
        time.sleep(0.002)
    return True


def test_a_rank_that_has_waited_for_a_moment_only_is_said_to_wait(cluster, tmp_path, monkeypatch):
    """The rank's last status is older than the wait, so the launcher must await a new one."""
    monkeypatch.setattr(local, "NEXT_BEAT", 60.0)

    def waits_once_more():
        if dist.get_rank() == 0:
            dist.send(torch.tensor([os.getpid()]), 1)
            return [dist.recv(torch.ones(1), 1) for _ in range(2)]
        dist.recv(pid := torch.zeros(1, dtype=torch.int64), 0)
        dist.send(torch.ones(1), 0)  # ends when rank 0 has received; rank 0 then waits again
        becomes_true(lambda: sleeps_on(int(pid)), 120)
        (tmp_path / "waits").touch()
        time.sleep(600)
        return None

    def interrupt():
        becomes_true((tmp_path / "waits").exists, 120)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(Interrupted, match=r"rank 0 waits in recv\(src=1\)\n"):
        cluster.run(waits_once_more)


def test_interrupt_while_the_ranks_start(cluster):
    for delay in (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come before the run
            timer.start()
            cluster.run(sleeps)
    # A rank ends by itself, a little later, if its launcher was interrupted before it sent the
    # task.
    assert becomes_true(lambda: not ranks_alive(), seconds=180)
    assert psutil.Process().num_fds() < 200
