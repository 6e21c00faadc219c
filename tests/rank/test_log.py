"""The log of a long run: the last steps whole, and the rest counted."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from ddpkit.protocol.call import Call
from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.call import RecordedCall
from ddpkit.rank.record.clock import HOST
from ddpkit.rank.record.log import Log
from ddpkit.trace import Count

AT_A_TIME = 3  # entries of a step: forward, all_reduce, end of the step


def a_step(log: Log, k: int, *ends: str) -> None:
    log.add(("forward", f"forward {k}", 100 * k, 100 * k + 10, 0))
    log.add(RecordedCall(Call("all_reduce", bytes=k), seq=k, posted=100 * k + 5, done=100 * k + 50))
    for end in ends:
        log.end_step(end, f"{end} {k}", 100 * k + 50, 100 * k + 90)


def kinds(log: Log) -> list[str]:
    return [span.kind for span in log.spans(0, HOST.ns)]


@pytest.mark.parametrize("limit", [3, 7, 9, 30])
def test_whole_steps_are_dropped_from_the_start(limit: int) -> None:
    log = Log(limit)
    for k in range(20):
        a_step(log, k, "optimizer")
    kept = kinds(log)
    assert kept == ["forward", "comm", "optimizer"] * (limit // AT_A_TIME)
    gone, first = log.dropped(), 20 - limit // AT_A_TIME
    assert (gone.spans, gone.steps) == (AT_A_TIME * first, first)
    assert gone.operations == {("all_reduce", None): Count(first, sum(range(first)))}
    assert log.spans(0, HOST.ns)[0].name == f"forward {first}"


def test_nothing_is_left_out_of_a_short_run() -> None:
    log = Log(30)
    for k in range(10):
        a_step(log, k, "optimizer")
    assert log.dropped().spans == log.dropped().steps == 0
    assert not log.dropped().operations
    assert len(log.spans(0, HOST.ns)) == 30


def test_a_marked_step_may_hold_several_optimizers() -> None:
    log = Log(10)
    for k in range(20):
        a_step(log, k, "optimizer", "optimizer", "step")
    assert kinds(log) == ["forward", "comm", "optimizer", "optimizer", "step"] * 2
    assert log.dropped().steps == 18


def test_without_steps_the_oldest_goes_and_messages_are_counted_by_peer() -> None:
    log = Log(4)
    for k in range(10):
        log.add(RecordedCall(Call("send", peer=k % 2, bytes=8), seq=k, posted=k, done=k + 1))
    assert [span.seq for span in log.spans(0, HOST.ns)] == [6, 7, 8, 9]
    gone = log.dropped()
    assert (gone.spans, gone.steps) == (6, 0)
    assert gone.operations == {("send", 0): Count(3, 24), ("send", 1): Count(3, 24)}


def test_steps_before_a_long_phase_without_any_go_first() -> None:
    log = Log(6)
    a_step(log, 0, "optimizer")
    for k in range(6):
        log.add(("span", f"span {k}", k, k + 1, 0))
    assert [span.name for span in log.spans(0, HOST.ns)] == [f"span {k}" for k in range(6)]
    assert (log.dropped().spans, log.dropped().steps) == (3, 1)


def test_a_backward_counts_as_the_spans_that_it_becomes() -> None:
    log = Log(12)
    for k in range(5):
        ready = [(100 * k + at, 4) for at in (10, 20, 30)]
        backward = Backward((("f.py", 3), "backward"), 100 * k, ready=ready, end=100 * k + 40)
        log.end_backward(backward)
        log.end_step("optimizer", "SGD", 100 * k + 40, 100 * k + 90)
    assert kinds(log) == [*["backward"] * 4, "optimizer"] * 2
    assert (log.dropped().spans, log.dropped().steps) == (15, 3)


def test_many_threads_add_while_the_oldest_go() -> None:
    log, n = Log(50), 3000

    def adds() -> None:
        for k in range(n):
            log.add(RecordedCall(Call("all_reduce", bytes=1), seq=k, posted=k, done=k + 1))
            if k % 3 == 0:
                log.end_step("optimizer", "SGD", k, k + 1)

    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: adds(), range(4)))  # raises the errors of the threads
    sys.setswitchinterval(0.005)
    kept, gone = log.spans(0, HOST.ns), log.dropped()
    assert len(kept) <= 50
    assert len(kept) + gone.spans == 4 * (n + n // 3)
    calls = sum(span.is_comm for span in kept)
    assert gone.operations["all_reduce", None] == Count(4 * n - calls, 4 * n - calls)
