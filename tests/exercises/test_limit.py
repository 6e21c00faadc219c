"""A case has a limit of time, and Stop always works: in Python, in C++, and on ranks."""

import os
import signal
import threading
import time
from datetime import timedelta

import pytest
import torch.distributed as dist

from ddpkit.cluster.interrupts import interrupts_held
from ddpkit.errors import Interrupted, LessonError
from ddpkit.exercises import Case, Exercise, check, judge
from ddpkit.exercises.limit import TookTooLong, limited
from ddpkit.exercises.ranks import asked

SHORT = 1.0  # seconds
ON_RANKS = 60.0  # seconds: by then the ranks have begun, even on a slow and busy machine
KEY = "a key that nobody sets in time"
STORES = []  # stores in which threads wait for KEY


def asking(observe):
    """Return an exercise with two cases; the first runs `observe`."""

    def cases(answer, rng):
        yield Case("first", observe, {"x": 1})
        yield Case("second", lambda: {"x": 1}, {"x": 1})

    return Exercise("f", "00", 1, "", cases)


def for_ever():
    while True:
        pass


def in_a_store():
    STORES.append(store := dist.HashStore())
    store.wait([KEY], timedelta(days=1))


@pytest.fixture(autouse=True)
def released():
    """Set the keys at the end of a test, so that no thread stays in a store."""
    yield
    while STORES:
        STORES.pop().set(KEY, "")


@pytest.mark.parametrize("work", [for_ever, in_a_store], ids=lambda work: work.__name__)
def test_a_case_ends_at_its_limit_and_says_where_it_was(work):
    verdict = judge(asking(work), work, limit=SHORT)
    first, second = verdict.cases
    assert first.got == "not done after 1 s"
    assert "test_limit.py, line" in first.details[0]
    assert first.trouble.hung
    assert not second.tried, "another try may take its time too"


def test_an_answer_that_swallows_what_ends_it_is_left_behind(monkeypatch):
    monkeypatch.setattr("ddpkit.exercises.limit.PATIENCE_S", 0.5)
    ended = threading.Event()

    def stubborn():
        while not ended.is_set():
            try:
                time.sleep(0.01)
            except BaseException:
                continue

    try:
        with pytest.raises(TookTooLong):
            limited(stubborn, SHORT)
    finally:
        ended.set()


def rank_1_loops():
    while dist.get_rank() == 1:
        time.sleep(0.01)  # a minute of computing would slow down all tests


@pytest.mark.processes
def test_ranks_end_at_the_limit_and_each_says_where_it_was():
    observe = asked(rank_1_loops, world_size=3, see={"x": "returned"})
    first, _ = judge(asking(observe), rank_1_loops, limit=ON_RANKS).cases
    said = " ".join([first.got, *first.details])
    assert "rank 1 was in test_limit.py, line" in said
    assert "ranks 0, 2 had returned" in said


def press_stop(pid=0):
    """Send the signal of Stop to the kernel (here this process).

    Python's main thread gets the signal.
    """
    os.kill(pid or os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("work", [for_ever, in_a_store], ids=lambda work: work.__name__)
def test_stop_ends_a_check_whatever_the_answer_does(work, monkeypatch):
    monkeypatch.setattr("ddpkit.exercises.limit.PATIENCE_S", 0.5)

    def observe():
        press_stop()
        work()

    with pytest.raises(Interrupted) as stopped:
        judge(asking(observe), work)
    (line,) = stopped.value._render_traceback_()  # IPython shows no frame of the kit
    assert line.startswith("KeyboardInterrupt: stopped at test_limit.py, line ")


def rank_1_presses_stop_and_loops(pid):
    if dist.get_rank() == 1:
        press_stop(pid)
        for_ever()


@pytest.mark.processes
def test_stop_of_a_run_within_a_check_says_where_each_rank_was():
    pid, see = os.getpid(), {"x": "returned"}
    observe = asked(rank_1_presses_stop_and_loops, pid, world_size=2, see=see)
    with pytest.raises(Interrupted, match="rank 1 was in test_limit.py, line"):
        judge(asking(observe), rank_1_presses_stop_and_loops)


def test_nothing_of_an_answer_runs_in_the_main_thread():
    threads = []

    def observe():
        threads.append(threading.current_thread())
        return {"x": 1}

    assert judge(asking(observe), observe).passed
    assert threads[0] is not threading.main_thread()


def test_what_is_held_back_comes_at_the_end_of_the_block():
    """An interrupt waits while a run's processes are being ended; otherwise some would remain."""
    done = []

    def work():
        with interrupts_held():
            press_stop()
            time.sleep(1)
            done.append("the block")
        done.append("what comes after it")

    with pytest.raises(KeyboardInterrupt):
        limited(work, 30)
    assert done == ["the block"]


def test_what_is_raised_and_returned_comes_through():
    def fails():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        limited(fails, 30)
    assert limited(lambda: 7, 30) == 7


@pytest.mark.parametrize("limit", [0, -1, "60", True])
def test_a_limit_that_is_none_is_told(limit):
    def who_waits(x):
        return x

    with pytest.raises(LessonError, match="limit= takes a number of seconds above 0"):
        check(who_waits, limit=limit)
