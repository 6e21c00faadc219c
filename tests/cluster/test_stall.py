"""Runs in which nothing moves: one notice names the line of each rank, and the run goes on."""

from __future__ import annotations

import multiprocessing
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import rpc

from ddpkit import Cluster
from ddpkit.cluster.local import stall
from ddpkit.cluster.local.stall import Stall, WorkSoFar, work_of
from ddpkit.rank.agent import GloosLoops
from tests.ways import WAYS, run, words

in_every_way = pytest.mark.parametrize("way", WAYS)
REALLY = subprocess.run  # waits for real seconds, in emulated time too


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall, "PATIENCE", 1.0)


# Waits that end by themselves after more than a second. A child process waits for real seconds.


def subprocess_waits() -> None:
    REALLY(["sleep", "4"], check=True)


def lock_waits() -> None:
    lock = threading.Lock()
    lock.acquire()
    threading.Thread(target=lambda: (REALLY(["sleep", "4"], check=True), lock.release())).start()
    lock.acquire()


def queue_waits() -> None:
    arriving: queue.Queue[int] = queue.Queue()
    threading.Thread(target=lambda: (REALLY(["sleep", "4"], check=True), arriving.put(1))).start()
    arriving.get()


def store_waits() -> None:
    store = dist.distributed_c10d._get_default_store()
    if dist.get_rank() == 0:
        REALLY(["sleep", "4"], check=True)
        store.set("key", "value")
    store.get("key")


def remote_call_waits() -> None:
    rank, place = dist.get_rank(), [tempfile.mkdtemp()]
    dist.broadcast_object_list(place)
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{place[0]}/rpc")
    size = dist.get_world_size()
    rpc.init_rpc(f"w{rank}", rank=rank, world_size=size, rpc_backend_options=options)
    if rank == 0:
        rpc.rpc_async("w1", os.system, ("sleep 4",)).wait()
    rpc.shutdown()


def worker_waits() -> None:
    context = multiprocessing.get_context("fork")
    child = context.Process(target=REALLY, args=(["sleep", "4"],))
    child.start()
    child.join()


WAITS = {
    subprocess_waits: 1,
    lock_waits: 4,
    queue_waits: 3,
    store_waits: 3,
    remote_call_waits: 7,
    worker_waits: 4,
}


@pytest.mark.processes
@in_every_way
@pytest.mark.parametrize("function", WAITS, ids=lambda each: each.__name__)
def test_a_run_in_which_nothing_moves_is_told_of_once(
    way: str, function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    run(way, 2, function)
    said = words(capfd, way)
    assert said.count("For 1 s no rank has used a processor or moved a byte.") == 1
    line = function.__code__.co_firstlineno + WAITS[function]
    assert f"test_stall.py, line {line}:" in said
    assert "Ctrl-C, or the stop button, ends it." in said


# Correct programs that are busy in one line for longer than the patience


def computes() -> None:
    until = time.process_time() + 2.5
    while time.process_time() < until:
        torch.ones(300, 300) @ torch.ones(300, 300)


def child_computes() -> None:
    REALLY(["timeout", "2.5", "sh", "-c", "while :; do :; done"], check=False)


def communicates() -> None:
    until = time.process_time() + 1.5
    flag = torch.ones(1)
    while flag.item():
        flag.fill_(time.process_time() < until)
        dist.all_reduce(flag, dist.ReduceOp.MAX)


@pytest.mark.processes
@pytest.mark.parametrize(
    "function",
    [computes, child_computes, communicates],
    ids=lambda each: each.__name__,
)
def test_a_busy_run_is_left_in_peace(
    function: Callable[[], None], capfd: pytest.CaptureFixture[str]
) -> None:
    Cluster(2).run(function)
    assert "no rank has used" not in capfd.readouterr().out


def estimate_with_six_groups() -> int:
    """Return the estimated CPU time of gloo's threads in a second of a rank, in ns."""
    for _ in range(5):
        dist.new_group()
    dist.barrier()
    loops = GloosLoops()
    before = loops.used_ns()
    threading.Event().wait(1.0)
    return loops.used_ns() - before


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells of threads")
def test_the_agent_knows_the_polling_of_gloos_threads() -> None:
    """Otherwise a rank with fifty groups seems to move bytes, and its deadlock stays unseen."""
    for estimate in Cluster(2).run(estimate_with_six_groups).results:
        assert estimate > 0.9 * 6 * GloosLoops.SHARE * 1e9


# `Stall` without a cluster


def looks(monkeypatch: pytest.MonkeyPatch, *work: dict[int, WorkSoFar]) -> list[bool]:
    """Return the answers of a `Stall` with a patience of 1 s, in looks half a second apart."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    found, watcher = [], Stall(1.0)
    for each in work:
        now += 0.5
        monkeypatch.setattr(stall, "work_of", lambda _, each=each: each)
        found.append(watcher.is_new([1]))
    return found


def test_it_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    same = {1: WorkSoFar(5, 10)}
    assert looks(monkeypatch, same, same, same, same, same) == [False, False, True, False, False]


@pytest.mark.parametrize(
    "moved",
    [{1: WorkSoFar(50, 0)}, {1: WorkSoFar(0, 1 << 20)}, {1: WorkSoFar(0, 0), 2: WorkSoFar(0, 0)}],
)
def test_work_starts_the_time_again(
    monkeypatch: pytest.MonkeyPatch, moved: dict[int, WorkSoFar]
) -> None:
    still = {1: WorkSoFar(0, 0)}
    assert looks(monkeypatch, still, still, moved, moved, moved) == [False] * 4 + [True]


@pytest.mark.parametrize(("loops", "found"), [(0, False), (100, True)])
def test_many_groups_that_poll_hide_no_stall(
    monkeypatch: pytest.MonkeyPatch, loops: int, found: bool
) -> None:
    """gloo's thread of each group uses 0.1 % of a core while no byte moves."""
    work = [{1: WorkSoFar(5 * k, 0, loops)} for k in range(4)]  # 10 % of a core
    assert (True in looks(monkeypatch, *work)) == found


def test_no_processes_are_no_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    assert looks(monkeypatch, {}, {}, {}, {}) == [False] * 4


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="Linux alone tells of processes")
def test_the_work_of_descendants_counts() -> None:
    with subprocess.Popen(["sh", "-c", "sleep 60 & wait"]) as child:
        try:
            pids: dict[int, WorkSoFar] = {}
            while len(pids) < 2:
                pids = work_of([child.pid])
            assert child.pid in pids
        finally:
            for pid in pids:
                subprocess.run(["kill", str(pid)], check=True)


def test_events_of_the_network_start_the_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(stall, "work_of", lambda _: {1: WorkSoFar(5, 10)})
    found, watcher = [], Stall(1.0)
    for happened in (0, 3, 6, 9, 9, 9):
        now += 0.5
        found.append(watcher.is_new([1], happened))
    assert found == [False, False, False, False, False, True]
