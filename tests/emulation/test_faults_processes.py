"""Signals, children, threads and a failing timekeeper: each run ends, and reports the reason."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, ClusterError, busy
from ddpkit.cluster.local.timekeeper import Timekeeper
from ddpkit.errors import Interrupted, RankDied
from ddpkit.rank.emulation.seen import real_sleep
from tests.cluster.processes import becomes_true, ranks_alive

pytestmark = pytest.mark.processes
LINK = "1 Gbit/s, 200 us"


def run(function, world_size=2, **options):
    return Cluster(world_size, link=LINK, **options).run(function, timeout=120)


def test_a_timekeeper_that_fails_ends_the_run_with_one_sentence(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("no such time")

    monkeypatch.setattr(Timekeeper, "_go_on", fails)
    with pytest.raises(ClusterError, match="the emulated network has failed") as caught:
        run(dist.barrier)
    assert "\n" not in str(caught.value)
    assert becomes_true(lambda: not ranks_alive())
    monkeypatch.undo()
    assert run(dist.get_rank).results == [0, 1]


@pytest.mark.parametrize("speed", [1, math.inf])
def test_a_minute_of_one_rank_is_not_late(speed):
    def work():
        if dist.get_rank() == 1:
            time.sleep(60)
            busy("60 s")
        dist.barrier()
        return time.perf_counter()

    assert all(120 <= seconds < 121 for seconds in run(work, speed=speed).results)


def test_a_rank_that_computes_for_seconds_is_neither_late_nor_left_out():
    def work():
        values = torch.ones(1)
        if dist.get_rank() == 1:
            begun = time.thread_time()
            while time.thread_time() < begun + 3:
                torch.ones(100).sum()
        dist.all_reduce(values)
        return values.item()

    done = run(work)
    assert done.results == [2.0, 2.0]
    assert "order" not in done.trace.facts


def test_a_forked_child_has_real_time_and_leaves_the_rank_its_clock():
    def work():
        def child(queue):
            begun = time.monotonic()
            time.sleep(0.2)
            queue.put(time.monotonic() - begun)

        def talks():
            try:
                dist.isend(torch.ones(1), 1 - dist.get_rank())
            except OSError:
                os._exit(5)

        fork = multiprocessing.get_context("fork")
        queue = fork.Queue()
        children = [fork.Process(target=child, args=(queue,)), fork.Process(target=talks)]
        for process in children:
            process.start()
        seconds = queue.get(timeout=60)
        for process in children:
            process.join(60)
        now = time.perf_counter()
        dist.barrier()
        return seconds, children[1].exitcode, now

    for seconds, exit_code, now in run(work).results:
        assert seconds >= 0.2
        assert exit_code == 5
        assert now < 10


def test_a_signal_that_ends_a_wait_leaves_no_answer_for_the_next(tmp_path):
    up = tmp_path / "up"

    def work():
        class Up(Exception):
            pass

        def handler(*_):
            raise Up

        first, second = torch.zeros(1), torch.zeros(1)
        if dist.get_rank() == 1:
            while not up.exists():
                pass
            dist.send(first + 1, 0)
            time.sleep(5)
            dist.send(second + 2, 0, tag=1)
            return None
        signal.signal(signal.SIGALRM, handler)
        receive = dist.irecv(first, 1)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Up):
            receive.wait()
        up.touch()
        dist.recv(second, 1, tag=1)
        after = time.perf_counter()
        receive.wait()
        return first.item(), second.item(), after

    first, second, after = run(work).results[0]
    assert (first, second) == (1.0, 2.0)
    assert after >= 5


def test_the_stop_button_ends_ranks_that_wait_for_the_timekeeper(tmp_path):
    def work():
        (tmp_path / str(dist.get_rank())).touch()
        if dist.get_rank() == 0:
            while True:
                pass
        dist.recv(torch.ones(1), 0)

    def stop():
        becomes_true(lambda: len(list(tmp_path.iterdir())) == 2, 100)
        time.sleep(1)  # until the launcher asks the timekeeper
        os.kill(os.getpid(), signal.SIGINT)

    reader = threading.Thread(target=stop)
    reader.start()
    with pytest.raises(Interrupted):
        run(work)
    reader.join()
    assert becomes_true(lambda: not ranks_alive())


def test_a_rank_that_is_killed_while_others_ask():
    def work():
        if dist.get_rank() == 0:
            time.sleep(3)
            os.kill(os.getpid(), signal.SIGKILL)
        receive = dist.irecv(torch.ones(1), 0)
        while not receive.is_completed():
            pass

    with pytest.raises(RankDied):
        run(work, world_size=3)
    assert becomes_true(lambda: not ranks_alive())


def test_ranks_die_with_a_launcher_that_is_killed():
    script = """
import os, time, torch, torch.distributed as dist
from ddpkit import Cluster

def work():
    print("rank", os.getpid(), flush=True)
    if dist.get_rank() == 0:
        while True: pass
    dist.recv(torch.ones(1), 0)

Cluster(2, link="1 Gbit/s, 200 us").run(work)
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as launcher:
        pids = [int(launcher.stdout.readline().rpartition(" ")[2]) for _ in range(2)]
        launcher.kill()
    assert becomes_true(lambda: not any(psutil.pid_exists(pid) for pid in pids))


def test_workers_of_a_data_loader():
    def work():
        class Numbers(torch.utils.data.Dataset):
            def __len__(self):
                return 16

            def __getitem__(self, number):
                time.sleep(0.001)
                return torch.tensor([float(number)])

        loader = torch.utils.data.DataLoader(
            Numbers(), batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=60
        )
        total = 0.0
        for _ in range(2):
            for batch in loader:
                dist.all_reduce(values := batch.sum())
                total += values.item()
        return total

    assert run(work).results == [480.0, 480.0]


def test_a_run_in_a_thread_of_the_notebook():
    results = []
    thread = threading.Thread(target=lambda: results.append(run(dist.get_rank).results))
    thread.start()
    thread.join(120)
    assert results == [[0, 1]]


def test_locks_of_files_wait_in_real_time(tmp_path):
    filelock = pytest.importorskip("filelock")

    def work(path):
        with filelock.FileLock(path, timeout=60):
            threading.Event().wait(0.5)
        return True

    assert Cluster(2, link=LINK).run(work, str(tmp_path / "lock"), timeout=120).results == [1, 1]


def slow_at(module, name):
    """Delay a function of a thread module, as if the thread had no core."""
    real = getattr(module, name)
    source = f"def {name}(*args):\n    sleep(0.3)\n    return real(*args)\n"
    room = {"sleep": real_sleep, "real": real}
    exec(compile(source, sys.modules[real.__module__].__file__, "exec"), room)
    setattr(module, name, room[name])


@pytest.mark.parametrize("slow", ["worker_takes", "worker_gives", "thread_begins", "told_to_go_on"])
def test_a_thread_without_a_core_is_not_taken_for_one_that_rests(slow):
    """Regression: the thread's frame is where threads rest, so a limit was over at once."""

    def work():
        import asyncio
        import concurrent.futures.thread as pool

        if slow == "worker_takes":
            slow_at(pool._WorkItem, "run")
        elif slow == "thread_begins":
            slow_at(threading.Thread, "run")
        elif slow == "told_to_go_on":
            slow_at(threading.Condition, "_acquire_restore")

        def one():
            if slow == "worker_gives":
                slow_at(threading.Condition, "notify_all")
            return 1

        def tells(loop, future, event):
            event.wait()
            loop.call_soon_threadsafe(future.set_result, 1)

        async def both():
            loop = asyncio.get_running_loop()
            found = await asyncio.wait_for(loop.run_in_executor(None, one), 60)
            future, event = loop.create_future(), threading.Event()
            thread = threading.Thread(target=tells, args=(loop, future, event))
            thread.start()
            event.set()
            found += await asyncio.wait_for(future, 60)
            thread.join()
            return found

        return asyncio.run(both())

    assert run(work).results == [2, 2]


def test_an_asyncio_loop_waits_for_threads_and_children_in_real_time():
    """Regression: a limit was over at once, because only the loop counted."""

    def work():
        import asyncio

        def sums():
            return sum(range(3_000_000))

        async def both():
            loop = asyncio.get_running_loop()
            found = await asyncio.wait_for(loop.run_in_executor(None, sums), 60)
            echo = await asyncio.create_subprocess_exec("echo", "hi", stdout=-1)
            out, _ = await asyncio.wait_for(echo.communicate(), 60)
            before = time.perf_counter()
            await asyncio.gather(*(asyncio.sleep(1.0 * k) for k in range(90)))
            return found, out, time.perf_counter() - before

        return asyncio.run(both())

    begun = time.monotonic()
    for found, out, slept in run(work).results:
        assert (found, out) == (sum(range(3_000_000)), b"hi\n")
        assert 89 <= slept < 91
    assert time.monotonic() - begun < 60
