"""The outcome of a run: results by rank, from fresh and settled processes, and nothing else."""

import dataclasses
import multiprocessing
import os
import random
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, ClusterError, Deadlock, PerRank, RankError
from ddpkit.cluster import blame
from ddpkit.cluster.local import launch
from ddpkit.cluster.local import run as local
from tests.cluster.explained import out_of_time
from tests.cluster.faults import FAULTS
from tests.cluster.processes import becomes_true, descriptors, ranks_alive

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]


@dataclasses.dataclass
class Point:
    x: int


class OwnError(Exception):
    pass


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_results_in_rank_order(size):
    def f(a, b, *, c):
        total = torch.tensor([dist.get_rank() + 1.0])
        dist.all_reduce(total)
        return dist.get_rank(), dist.get_world_size(), total.item(), a, b, c

    run = Cluster(size).run(f, PerRank(range(size)), "b", c=PerRank("abcdefgh"[:size]))
    total = size * (size + 1) / 2
    assert run.results == [(r, size, total, r, "b", "abcdefgh"[r]) for r in range(size)]
    assert run.error is None


def test_words_for_a_cluster_and_a_run(cluster):
    assert repr(cluster) == "2 ranks · gloo · cpu"
    assert repr(Cluster(1)) == "1 rank · gloo · cpu"
    run = cluster.run(dist.get_rank)
    assert repr(run) == "<Run of 2 ranks: results [0, 1]>"


def test_every_run_is_a_fresh_process(cluster):
    def f():
        first = not hasattr(torch, "mark")
        torch.mark = True
        return first, os.getpid()

    one, two = cluster.run(f).results, cluster.run(f).results
    assert [first for first, _ in one + two] == [True] * 4
    assert len({pid for _, pid in one + two}) == 4


def test_classes_of_a_cell_keep_their_identity(cluster):
    run = cluster.run(lambda p: Point(p.x + dist.get_rank()), Point(3))
    assert run.results == [Point(3), Point(4)]


def test_a_rank_that_gets_no_core_is_waited_for_when_another_has_raised(cluster, monkeypatch):
    """Regression: on busy cores, the exception of the slow rank came too late to be reported."""
    monkeypatch.setattr(local, "served_ns", lambda pid: 0)
    monkeypatch.setattr(blame, "ECHO", 60.0)

    def f():
        until = time.monotonic() + dist.get_rank()
        while time.monotonic() < until:
            pass
        raise ValueError if dist.get_rank() else KeyError

    with pytest.raises(RankError) as caught:
        cluster.run(f)
    assert [each.type for _, each in sorted(caught.value.raised.items())] == [
        "KeyError",
        "ValueError",
    ]


@pytest.mark.parametrize("call", ["send", "isend"])
def test_a_message_to_oneself_is_one_short_sentence(cluster, call):
    def to_me():
        getattr(dist, call)(torch.ones(1), dist.get_rank())

    with pytest.raises(RankError) as caught:
        cluster.run(to_me)
    assert "send(dst=0): a rank cannot exchange messages with itself\n" in str(caught.value)
    assert (
        caught.value.raised[1].message == "send(dst=1): a rank cannot exchange messages with itself"
    )


def test_the_exception_itself_is_the_cause(cluster):
    def f():
        raise OwnError("x", 3)

    with pytest.raises(RankError) as caught:
        cluster.run(f)
    assert type(caught.value.__cause__) is OwnError
    assert caught.value.__cause__.args == ("x", 3)
    assert (caught.value.rank, caught.value.ranks) == (0, (0, 1))


def test_an_exception_that_cannot_even_be_shown(cluster):
    class Unspeakable(Exception):
        def __str__(self):
            raise RuntimeError

    def f():
        raise Unspeakable

    with pytest.raises(RankError, match="ranks 0, 1 raised Unspeakable: <its __str__ raised"):
        cluster.run(f)


def test_an_expected_error_is_printed_and_returned(cluster, capsys):
    def f():
        if dist.get_rank() == 1:
            raise ValueError("on purpose")
        return "done"

    run = cluster.run(f, expect_error=True)
    assert type(run.error) is RankError
    assert run.results[1] is None
    assert "RankError: rank 1 raised ValueError: on purpose" in capsys.readouterr().out
    assert cluster.run(dist.get_rank, expect_error=True).error is None


def test_a_failed_run_keeps_what_there_was(cluster):
    def f():
        print("hello")
        if dist.get_rank() == 0:
            return 42
        time.sleep(1.5)
        raise ValueError

    with pytest.raises(RankError) as caught:
        cluster.run(f)
    run = caught.value.run
    assert run.results == [42, None]
    assert run.output == "[rank 0] hello\n[rank 1] hello"


def test_random_numbers_differ_by_rank_and_come_again(cluster):
    def draw():
        return torch.rand(1).item(), np.random.rand(), random.random()

    first, again = cluster.run(draw).results, cluster.run(draw).results
    other = cluster.run(draw, seed=1).results
    assert first == again
    assert len({number for numbers in first + other for number in numbers}) == 12


def test_the_ranks_share_the_cores_and_know_who_they_are(cluster):
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")

    def f():
        return torch.get_num_threads(), [os.environ[name] for name in names]

    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert cluster.run(f).results == [
        (threads, [str(r), str(r), "2", "2", str(threads)]) for r in (0, 1)
    ]


def test_the_ranks_live_where_the_notebook_does(cluster, monkeypatch, tmp_path):
    cluster.run(dist.get_rank)
    monkeypatch.setenv("DDPKIT_TEST", "later")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "beside_the_notebook.py").write_text("def answer():\n    return 42\n")
    import beside_the_notebook

    def f():
        return os.environ.get("DDPKIT_TEST"), os.getcwd()

    assert cluster.run(f).results == [("later", str(tmp_path))] * 2
    assert cluster.run(beside_the_notebook.answer).results == [42, 42]
    monkeypatch.delenv("DDPKIT_TEST")
    assert cluster.run(f).results[0][0] is None


def test_two_threads_run_clusters_at_the_same_time():
    results, errors = {}, []
    deadlock = next(fault for fault in FAULTS if fault.name == "recv_recv")

    def runs(name, size):
        try:
            results[name] = [Cluster(size).run(lambda: (name, dist.get_rank())).results] * 3
        except BaseException as error:
            errors.append(error)

    def fails():
        with pytest.raises(deadlock.error):
            Cluster(2).run(deadlock.function)
        results["fails"] = True

    threads = [threading.Thread(target=runs, args=(name, name + 1)) for name in range(3)]
    threads.append(threading.Thread(target=fails))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert results.pop("fails")
    assert results == {name: [[(name, rank) for rank in range(name + 1)]] * 3 for name in range(3)}


@pytest.mark.parametrize("how", ["by what it is asked", "killed"])
def test_the_forkserver_may_die(cluster, how):
    """The forkserver ends by an exception if its launcher is interrupted during a request."""
    from multiprocessing import forkserver

    cluster.run(dist.get_rank)
    server = forkserver._forkserver
    if how == "killed":
        os.kill(server._forkserver_pid, signal.SIGKILL)
    else:
        with socket.socket(socket.AF_UNIX) as asks:
            asks.connect(server._forkserver_address)
        ended = psutil.Process(server._forkserver_pid)
        assert becomes_true(lambda: ended.status() == psutil.STATUS_ZOMBIE)
    assert cluster.run(dist.get_rank).results == [0, 1]


def test_open_files_may_run_out(cluster):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = descriptors()
    resource.setrlimit(resource.RLIMIT_NOFILE, (before + 12, hard))
    try:
        with pytest.raises(ClusterError, match="of 4 could not be started .*Too many open files"):
            Cluster(4).run(dist.get_rank)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert descriptors() == before
    assert becomes_true(lambda: not ranks_alive())
    assert cluster.run(dist.get_rank).results == [0, 1]


def test_a_script_needs_no_main_guard(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(
        "import torch.distributed as dist\n"
        "from ddpkit import Cluster\n"
        "print('top')\n"
        "class Thing:\n"
        "    def __init__(self, n): self.n = n\n"
        "def f():\n"
        "    return Thing(dist.get_rank())\n"
        "run = Cluster(2).run(f)\n"
        "print([type(thing) is Thing and thing.n for thing in run.results])\n"
    )
    done = subprocess.run(
        [sys.executable, script],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("top\n[0, 1]\n", "", 0)


def test_a_temporary_folder_may_have_a_long_name(tmp_path):
    """The socket of the forkserver may have a name of at most 107 bytes, as in a batch job."""
    long = tmp_path / ("a" * 60) / ("b" * 60)
    long.mkdir(parents=True)
    script = (
        "import ddpkit, multiprocessing.util as of_python\n"
        "print(ddpkit.Cluster(2).run(int).results)\n"
        "print(of_python.get_temp_dir())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(long)},
    )
    assert done.stderr == ""
    results, made = done.stdout.splitlines()
    assert results == "[0, 0]"
    assert not Path(made).exists()
    assert [path.name for path in long.iterdir() if "ddpkit" in path.name] == []


def test_where_no_socket_can_be_the_variable_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "SHORT_FOLDER", str(tmp_path / "none"))
    monkeypatch.setattr(tempfile, "tempdir", "/t" * 60)
    monkeypatch.delitem(multiprocessing.current_process()._config, "tempdir", raising=False)
    with pytest.raises(ClusterError, match="longer than 107 bytes, .* Set TMPDIR to a folder"):
        launch.warm_up()


def test_a_run_needs_no_torch_in_the_notebook():
    """Importing torch in the notebook would delay the first run by a second or two."""
    script = "import sys, ddpkit; ddpkit.Cluster(1).run(int); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


MADE = """
def spins():
    while True:
        pass

def divides():
    return 1 / 0

def receives():
    import torch.distributed as dist, torch
    dist.recv(torch.ones(1), 1 - dist.get_rank())
"""


@pytest.mark.parametrize("file", ["<string>", "<my code>"])
def test_code_that_exec_has_made_has_lines_too(file):
    """Regression: such ranks were reported as "still starting", however long they had run."""
    made = {}
    exec(compile(MADE, file, "exec"), made)
    cluster = Cluster(2)
    cluster.run(int)  # the forkserver has imported torch now, so ranks start at once
    said = str(out_of_time(cluster, made["spins"], timeout=1))
    assert re.search(rf"rank 1 was in {file}, line [34]\b", said), said
    with pytest.raises(RankError, match=f"{file}, line 7  .in divides."):
        cluster.run(made["divides"])
    with pytest.raises(Deadlock, match=rf"rank 0 waits in recv\(src=1\)\s+{file}, line 11"):
        cluster.run(made["receives"])
