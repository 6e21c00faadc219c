"""Results that depend on order: all ranks see the order of emulated time, however busy the
cores."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from itertools import count

import pytest
import torch
import torch.distributed as dist
from torch import nn

from benchmarks._on_ranks import asynchronous_server
from ddpkit import Cluster, busy
from ddpkit.cluster.local import timekeeper
from ddpkit.cluster.local.watched import (
    Rest,
    ThreadState,
    Watched,
    is_ready,
    served_ns,
    threads,
    turns,
)
from ddpkit.protocol.emulation import ClockPage
from ddpkit.rank.group import emulated, operation
from ddpkit.simulate import cost

pytestmark = pytest.mark.processes

LINK = "1 GB/s, 10 us"
SLOW = 0.3  # real seconds in which a rank gets no core
SECOND = 1_000_000_000  # in ns


def slow_to_gloo(rank: int) -> None:
    """Delay a rank between announcing an operation and handing it to gloo."""
    whole = emulated.EmulatedGroup._emulated

    def slow(self, call, method, *args, **kwargs):
        direct = self._direct

        def late(*args, **kwargs):
            threading.Event().wait(SLOW)  # real time, without CPU time
            return direct(*args, **kwargs)

        self._direct = late
        try:
            return whole(self, call, method, *args, **kwargs)
        finally:
            self._direct = direct

    if dist.get_rank() == rank:
        emulated.EmulatedGroup._emulated = slow


def beside_later_messages(how: str, slow: bool) -> int:
    """Run two all-reduces of two ranks at the beginning; two other ranks meet a second later."""
    rank = dist.get_rank()
    if slow:
        slow_to_gloo(1)
    pair = dist.new_group([0, 1])
    begin = time.perf_counter_ns()
    if rank > 1:
        time.sleep(1)
        dist.send(torch.ones(9), 3) if rank == 2 else dist.recv(torch.ones(9), 2)
    elif how != "backward":
        late = dist.irecv(torch.ones(9), 1, tag=5) if (how, rank) == ("unmet", 0) else None
        for _ in range(2):
            dist.all_reduce(torch.ones(250), group=pair)
        took = time.perf_counter_ns() - begin
        if late is not None:
            late.wait()
        elif how == "unmet":
            dist.send(torch.ones(9), 0, tag=5)
        return took
    else:
        model = nn.parallel.DistributedDataParallel(nn.Linear(249, 1), process_group=pair)
        begin = time.perf_counter_ns()
        for _ in range(2):
            model(torch.ones(1, 249)).sum().backward()
    return time.perf_counter_ns() - begin


@pytest.mark.parametrize("how", ["all_reduce", "unmet", "backward"])
def test_a_rank_that_gloo_keeps_waiting_is_not_left_out(how):
    cluster = Cluster(4, link=LINK, speed=math.inf)
    slow, quick = (cluster.run(beside_later_messages, how, slow) for slow in (True, False))
    assert slow.results == quick.results
    assert max(slow.results[:2]) < 1_000_000
    if how != "backward":
        assert slow.results[0] == 2 * cost("ring", 2, 1000, LINK)
    assert "order" not in slow.trace.facts


def broadcasts(slow: bool) -> list[int]:
    """Return the end of each of some broadcasts. Rank 0 goes on before the last rank begins."""
    if slow and dist.get_rank() == 0:
        take, calls = operation.EmulatedOperation._take_bytes, iter(range(9))

        def late(self):
            if next(calls) == 2:
                threading.Event().wait(SLOW)  # its bytes are here, but the rank gets no core
            return take(self)

        operation.EmulatedOperation._take_bytes = late
    over = []
    for _ in range(6):
        dist.broadcast(torch.ones(9), 0)
        over.append(time.perf_counter_ns())
    return over


def test_a_rank_without_a_core_is_not_taken_for_one_that_waits_in_gloo():
    cluster = Cluster(4, link=LINK, speed=math.inf)
    slow, quick = cluster.run(broadcasts, True), cluster.run(broadcasts, False)
    assert slow.results == quick.results
    assert slow.trace.spans == quick.trace.spans


def makes_a_group(slow: bool) -> int:
    """Make a group of ranks 0 and 1, which come 10 ms apart, and all-reduce; others meet at 1 s."""
    rank, made = dist.get_rank(), dist.ProcessGroupGloo

    def late(*args):
        threading.Event().wait(0.8)  # real time, like gloo's connecting on busy cores
        return made(*args)

    if rank == 1:
        dist.ProcessGroupGloo = late if slow else made
        time.sleep(0.01)
    pair = dist.new_group([0, 1])
    if rank < 2:
        dist.all_reduce(torch.ones(250), group=pair)
    else:
        time.sleep(1)
        dist.send(torch.ones(9), 3) if rank == 2 else dist.recv(torch.ones(9), 2)
    return time.perf_counter_ns()


def test_a_group_is_made_when_its_last_rank_has_come_however_long_gloo_takes():
    cluster = Cluster(4, link=LINK, speed=math.inf)
    slow, quick = cluster.run(makes_a_group, True), cluster.run(makes_a_group, False)
    assert slow.results == quick.results
    assert slow.results[:2] == [10_000_000 + cost("ring", 2, 1000, LINK)] * 2
    assert "order" not in slow.trace.facts


def reduces() -> int:
    """Return the end of a reduce that the last rank calls after 1 ms."""
    time.sleep(0.001 * (dist.get_rank() == 3))
    dist.reduce(torch.ones(250), 0)
    return time.perf_counter_ns()


def test_a_reduce_is_over_for_no_rank_before_all_have_called_it():
    """The bytes are not here earlier, in gloo too."""
    over = Cluster(4, link=LINK, speed=math.inf).run(reduces).results
    assert over[1] == 1_000_000  # its own message has left long before
    assert min(over) == 1_000_000


def test_who_is_stopped_or_gets_no_core_does_not_stand_still(tmp_path):
    """A process that the system suspends goes on later; one look at it is not enough."""
    page = ClockPage.create(tmp_path / "page")
    page.go(0, 0)
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    watched = Watched(page, process.pid, math.inf)
    looks = [time.monotonic() + 10 + k for k in range(9)]
    try:
        while served_ns(process.pid) < 1_000_000 or is_ready(process.pid):
            threading.Event().wait(0.01)  # the process starts
        process.send_signal(signal.SIGSTOP)
        while not is_ready(process.pid):
            threading.Event().wait(0.01)
        assert not any(watched.stands_still(now, unmet=False) for now in looks)
        process.send_signal(signal.SIGCONT)
        while is_ready(process.pid):
            threading.Event().wait(0.01)
        found = [watched.stands_still(now + 20, unmet=False) for now in looks]
        assert found == [False] * 4 + [True] * 5
    finally:
        process.kill()
        process.communicate()
        watched.close()


def test_a_look_at_many_callbacks_of_a_rank_is_one_look():
    rest = Rest()
    for now in (7.0, 7.0):
        rest.look(now, 0, 0, ready=False)
    assert rest.looks == 1
    rest.look(8.0, 0, 0, ready=False)
    assert rest.looks == 2


@pytest.mark.parametrize("agent_is_known", [True, False])
def test_an_agent_that_is_always_ready_hides_no_standstill(tmp_path, monkeypatch, agent_is_known):
    """The agent of a rank waits for a core at nearly every look, if cores are busy."""
    page = ClockPage.create(tmp_path / "page")
    page.go(0, 0)
    page.agent = 2 * agent_is_known
    ticks = count()
    monkeypatch.setattr(
        "ddpkit.cluster.local.watched.threads",
        lambda pid: {1: ThreadState(False, 5), 2: ThreadState(True, 5 * next(ticks))},
    )
    monkeypatch.setattr(Watched, "used_ns", lambda self: SECOND)
    watched = Watched(page, os.getpid(), math.inf)
    looks = [time.monotonic() + 10 + second for second in range(9)]
    watched.stands_still(looks[0] - 1.5, unmet=False)
    watched.process_stands_still(looks[0] - 1.5)
    found = [watched.stands_still(now, unmet=False) for now in looks]
    assert found == [watched.process_stands_still(now) for now in looks]
    assert found == [agent_is_known and now > looks[0] + 3.5 for now in looks]
    watched.close()


@pytest.mark.parametrize(
    ("had", "used_ns", "over"),
    [(100, 1_000_000, True), (0, 0, False), (100, 900_000_000, False)],
    ids=["looks for bytes", "gets no core", "carries bytes"],
)
def test_a_loop_of_gloos_hides_no_standstill_unless_it_carries(
    tmp_path, monkeypatch, had, used_ns, over
):
    """A loop waits for a core at nearly every look, as on busy cores."""
    page = ClockPage.create(tmp_path / "page")
    page.go(0, 0)
    looks, seconds = [time.monotonic() + 10 + second for second in range(9)], 0
    found = {1: ThreadState(False, 5), 2: ThreadState(True, 5, looks_for_bytes=True)}
    monkeypatch.setattr("ddpkit.cluster.local.watched.threads", lambda pid: found)
    monkeypatch.setattr(
        "ddpkit.cluster.local.watched.turns",
        lambda pid, thread: (seconds * used_ns, 7 + seconds * had),
    )
    monkeypatch.setattr(Watched, "used_ns", lambda self: SECOND)
    watched = Watched(page, os.getpid(), math.inf)
    watched.stands_still(looks[0] - 1.5, unmet=False)
    watched.process_stands_still(looks[0] - 1.5)
    stood = []
    for now in looks:
        seconds += 1
        stood.append(watched.stands_still(now, unmet=False))
        assert stood[-1] == watched.process_stands_still(now)
    assert stood == [False] * 4 + [over] * 5
    watched.close()


def loops_of_gloo() -> list[tuple[int, int]]:
    """Return the CPU time and the turns of gloo's loops, for each loop of the rank."""
    dist.barrier()
    threading.Event().wait(0.1)
    mine = threads(os.getpid())
    return [turns(os.getpid(), each) for each, state in mine.items() if state.looks_for_bytes]


def test_gloos_loops_are_found_by_their_name():
    for loops in Cluster(2).run(loops_of_gloo).results:
        assert loops
        assert all(used_ns > 0 and had > 0 for used_ns, had in loops)


def first_come() -> list[tuple[int, int]]:
    """Return on rank 0 the sender and the time of each message.

    The first sender is slow in real time.
    """
    rank, came = dist.get_rank(), []
    if rank == 0:
        for _ in range(2):
            source = dist.recv(torch.empty(1000))
            came.append((source, time.perf_counter_ns()))
        return came
    time.sleep(rank / 1000)
    until = time.process_time() + 0.3  # real CPU time, which is free without counted compute
    while rank == 1 and time.process_time() < until:
        pass
    dist.send(torch.ones(1000), 0)
    return came


def test_a_receive_from_anybody_takes_what_was_sent_first():
    first, second = Cluster(3, link=LINK, speed=math.inf).run(first_come).results[0]
    assert first == (1, 1_000_000 + 10_000 + 4000)
    assert second == (2, 2_000_000 + 10_000 + 4000)


def late_for_anybody() -> int:
    """Return the time of a receive from any rank that is posted long after its message."""
    if dist.get_rank() == 1:
        dist.send(torch.ones(1_000_000), 0)
        return 0
    time.sleep(0.05)
    begin = time.perf_counter_ns()
    dist.recv(torch.empty(1_000_000))
    return time.perf_counter_ns() - begin


def test_a_receive_from_anybody_is_timed_by_its_senders_departure():
    """The latency is over, because the bytes have waited for the receive."""
    took = Cluster(2, link="1 GB/s, 200 us", speed=math.inf).run(late_for_anybody).results[0]
    assert took == 4_000_000


def test_arrivals_at_a_server_are_equal_in_all_runs():
    cluster = Cluster(4, link="1 Gbit/s, 200 us", speed=math.inf)
    runs = [cluster.run(asynchronous_server, 5, 20, 4).results[0] for _ in range(4)]
    assert runs[0] == runs[1] == runs[2] == runs[3]
    assert [source for source, _ in runs[0]].count(3) == 5
    assert {source for source, _ in runs[0][-4:]} == {3}


def looks() -> tuple[int, int, bool]:
    """Return the end of a loop that asks if a message has come, and the number of questions."""
    x, rank = torch.ones(1_000_000), dist.get_rank()
    if rank == 1:
        time.sleep(0.01)
        dist.send(x, 0)
        return 0, 0, True
    work, asked = dist.irecv(x, 1), 0
    while not work.is_completed():
        asked += 1
    return time.perf_counter_ns(), asked, work.is_completed()


def test_a_loop_that_asks_whether_it_is_done_ends_soon_after_it_is():
    cluster = Cluster(2, link="1 GB/s, 200 us", speed=math.inf)
    ends, asked, still = cluster.run(looks).results[0]
    assert still
    assert 14_200_000 <= ends <= 14_200_000 * (1 + 1 / 64) + 1_000
    assert 1 < asked < 2000
    assert cluster.run(looks).results[0] == (ends, asked, still)


def with_a_limit() -> tuple[int, int, str]:
    """Return the time at which a wait with a limit gave up, and the end of the next wait."""
    from datetime import timedelta

    if dist.get_rank() == 1:
        time.sleep(0.1)
        dist.send(torch.ones(1000), 0)
        return 0, 0, ""
    work, said = dist.irecv(torch.empty(1000), 1), ""
    try:
        work.wait(timedelta(milliseconds=30))
    except RuntimeError as error:
        said = str(error)
    gave_up = time.perf_counter_ns()
    work.wait(timedelta(milliseconds=300))
    return gave_up, time.perf_counter_ns(), said


def test_a_limit_of_a_wait_is_in_emulated_time():
    gave_up, over, said = Cluster(2, link=LINK, speed=math.inf).run(with_a_limit).results[0]
    assert (gave_up, over) == (30_000_000, 100_000_000 + 10_000 + 4000)
    assert "Timed out" in said


def gives_a_message_up() -> float:
    """Wait too briefly for a message that comes, and take the next message."""
    from datetime import timedelta

    if dist.get_rank() == 0:
        work = dist.irecv(torch.zeros(1), src=1, tag=1)
        with suppress(RuntimeError):
            work.wait(timedelta(milliseconds=5))
        del work
        x = torch.zeros(1)
        dist.recv(x, src=1)
        return x.item()
    busy("20 ms")
    threading.Event().wait(0.2)  # in real time: until the work is garbage-collected
    work = dist.isend(torch.zeros(1), dst=0, tag=1)
    dist.send(torch.full((1,), 7.0), dst=0)
    work.wait()
    return 0.0


def test_a_message_that_was_given_up_holds_up_no_other():
    assert Cluster(2, link=LINK, speed=math.inf).run(gives_a_message_up, timeout=20).results[0] == 7


def everything() -> list[float]:
    """Use all that order could change: groups that share links, a model, receives from any rank."""
    rank, n = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group([0, 1]), dist.new_group([1, 2]), dist.new_group(range(n))]
    mine = [group for group in groups if dist.get_rank(group) >= 0]
    works = [dist.all_reduce(torch.ones(10_000), group=group, async_op=True) for group in mine]
    model = nn.parallel.DistributedDataParallel(
        nn.Sequential(*(nn.Linear(64, 64) for _ in range(3))), bucket_cap_mb=0.02
    )
    for _ in range(3):
        busy(0.001 * (rank + 1))
        model(torch.ones(4, 64)).sum().backward()
    works += [dist.all_reduce(torch.ones(5000), group=group, async_op=True) for group in mine]
    for work in works:
        work.wait()
    came = []
    for _ in range(4):
        if rank == 0:
            came += [dist.recv(torch.empty(3000)) for _ in range(n - 1)]
        else:
            busy(0.0001 * rank)
            dist.send(torch.ones(3000), 0)
    return [*came, time.perf_counter_ns()]


def test_times_are_equal_to_the_nanosecond_in_every_run():
    cluster = Cluster(3, link={"default": "1 Gbit/s, 100 us", 2: "300 Mbit/s"}, speed=math.inf)
    runs = [cluster.run(everything) for _ in range(4)]
    for run in runs[1:]:
        assert run.results == runs[0].results
        assert moments(run.trace) == moments(runs[0].trace)


def moments(trace):
    """Return all times of a trace's communication."""
    return sorted(
        (s.rank, s.name, s.group, s.start_ns, s.end_ns, s.collected_ns or 0)
        for s in trace.spans
        if s.kind == "comm"
    )


def small_sums() -> int:
    """Post sums at once, and wait for them one by one."""
    for _ in range(20):
        works = [dist.all_reduce(torch.ones(n), async_op=True) for n in range(1, 20)]
        for work in works:
            work.wait()
    return time.perf_counter_ns()


def test_time_passes_when_a_rank_has_spoken_and_not_at_the_next_look(monkeypatch):
    # time between two looks at the ranks' clocks; 380 looks would take 57 seconds
    for name in ("SHORT", "LONG"):
        monkeypatch.setattr(timekeeper, name, 0.15)
    one, other = Cluster(2, link=LINK, machine="A100").run(small_sums, timeout=40).results
    assert one == other > 0
