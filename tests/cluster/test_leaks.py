"""A run leaves nothing behind: no process, no zombie, no file descriptor, no folder."""

import ctypes
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, PerRank, RankDied
from tests.cluster.faults import FAULTS
from tests.cluster.processes import becomes_true, descriptors, folders, ranks_alive

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
QUICK = ("one_raises", "killed_at_once", "os_exit", "different_order", "longer_message")


def test_nothing_is_left_after_runs_and_faults(cluster):
    cluster.run(dist.get_rank)
    before = descriptors()
    for fault in (fault for fault in FAULTS if fault.name in QUICK):
        for _ in range(3):
            with pytest.raises(fault.error):
                cluster.run(fault.function)
            assert becomes_true(lambda: not ranks_alive())
            assert cluster.run(dist.get_rank).results == [0, 1]
    assert becomes_true(lambda: not ranks_alive())
    assert not folders()
    assert becomes_true(lambda: descriptors() == before)


@pytest.mark.parametrize("end", ["returns", "exits", "raises", "is killed"])
def test_children_of_a_rank_end_with_it(cluster, tmp_path, end):
    def spawns(folder, end):
        child = subprocess.Popen(["sleep", "600"])
        (folder / f"{dist.get_rank()}").write_text(str(child.pid))
        dist.barrier()
        if dist.get_rank() == 0:
            if end == "exits":
                os._exit(0)
            if end == "raises":
                raise ValueError
            if end == "is killed":
                os.kill(os.getpid(), signal.SIGKILL)

    run = cluster.run(spawns, tmp_path, end, expect_error=True)
    assert (run.error is None) == (end == "returns")
    children = [int(file.read_text()) for file in tmp_path.iterdir()]
    assert len(children) == 2
    assert becomes_true(lambda: not any(map(is_running, children)))


def test_workers_of_a_data_loader_may_end_a_thousand_times(cluster):
    def loads():
        children = []
        for _ in range(60):
            child = os.fork()
            if child == 0:
                os._exit(0)
            children.append(os.waitpid(child, 0)[1])
        return children

    assert cluster.run(loads, timeout=60).results == [[0] * 60] * 2


def test_a_rank_that_dies_in_the_middle_of_its_reply(cluster):
    """A child of the dead rank lives on, and has inherited the rank's pipes."""

    def dies():
        import ddpkit.rank.main

        def half(connection, parts):
            connection.send_bytes(pickle.dumps([1000, 1000]))
            connection.send_bytes(b"x" * 1000)
            os.kill(os.getpid(), signal.SIGKILL)

        ddpkit.rank.main.send_reply = half
        if os.fork() == 0:
            time.sleep(600)

    with pytest.raises(RankDied, match="was killed by SIGKILL"):
        cluster.run(dies, timeout=60)
    assert becomes_true(lambda: not ranks_alive())


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def loops():
    while True:
        pass


def sleeps():
    time.sleep(600)


def holds_the_gil():
    return 3 ** (1 << 40)


def holds_the_gil_asleep():
    ctypes.PyDLL(None).sleep(600)


def has_children():
    subprocess.run(["sleep", "600"], check=True)


def in_gloo():
    dist.recv(torch.ones(1), 0)


VICTIMS = (loops, sleeps, holds_the_gil, holds_the_gil_asleep, has_children, in_gloo)


@pytest.mark.slow
def test_nothing_survives_a_killed_notebook(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    notebook = subprocess.Popen(
        [sys.executable, __file__],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert notebook.stdout is not None
    with notebook:
        started = {int(notebook.stdout.readline().split()[-1]) for _ in VICTIMS}
        below = psutil.Process(notebook.pid)
        # the forkserver, the resource tracker, and the child of a rank
        assert becomes_true(lambda: len({p.pid for p in below.children(True)} - started) >= 3)
        processes = {process.pid for process in below.children(True)}
        assert started <= processes
        (sockets,) = tmp_path.glob("pymp-*")
        notebook.kill()
    assert folders(notebook.pid)  # no process was left to remove the folder
    assert becomes_true(lambda: not any(map(is_running, processes)))
    assert not sockets.exists()
    Cluster(2)
    assert not folders(notebook.pid)


def main() -> None:
    """Run the notebook of the test above: each rank is one of the victims."""

    def victim(function):
        os.write(1, f"{os.getpid()}\n".encode())
        function()

    Cluster(len(VICTIMS)).run(victim, PerRank(VICTIMS))


if __name__ == "__main__":
    main()
