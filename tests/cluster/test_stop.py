"""KeyboardInterrupt frees the notebook and the ranks at once, whatever they do."""

import ctypes
import os
import re
import signal
import threading
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from ddpkit.cluster.local import run as local
from ddpkit.errors import Interrupted
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
    """On a busy machine ranks may take longer than a reader waits to say where they are."""
    monkeypatch.setattr(local, "ANSWER", 20.0)


@pytest.mark.parametrize(
    "function", [computes, holds_the_gil, regex, sleeps, waits, swallows, floods]
)
def test_interrupt(cluster, function, tmp_path, patient):
    def start():
        (tmp_path / str(dist.get_rank())).touch()
        function()

    def interrupt():
        becomes_true(lambda: len(list(tmp_path.iterdir())) == 2)
        time.sleep(0.3)
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
    with pytest.raises(Exception, match="rank 1 was in test_stop.py, line .*PyDLL") as caught:
        cluster.run(holds_the_gil, timeout=0.7)
    assert type(caught.value).__name__ == "RunTimeout"


def test_interrupt_while_the_ranks_start(cluster):
    for delay in (0.0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may come before the run
            timer.start()
            cluster.run(sleeps)
    # One whose launcher was interrupted before it said what to do ends by itself, a little later.
    assert becomes_true(lambda: not ranks_alive(), seconds=60)
    assert psutil.Process().num_fds() < 200
