"""A GPU works later than Python asks: tests with stand-ins for CUDA's events and for NCCL.

tests/cluster/test_gpus.py tests real events, on machines with a GPU.
"""

import threading
import time
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from ddpkit.protocol import ship
from ddpkit.rank.agent import Agent
from ddpkit.rank.record import clock
from ddpkit.rank.record.backward import Backward
from ddpkit.rank.record.clock import GpuClock
from ddpkit.rank.record.recorder import Recorder
from tests.rank.test_record import Box

SECOND = 1_000_000_000


class Gpu:
    """A GPU with a clock (in ms) and a progress that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms, self.is_there, self.waiting = 0.0, True, []
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                self.at: float | None = None

            def record(self) -> None:
                if gpu.is_there:
                    self.at = gpu.ms
                else:
                    gpu.waiting.append(self)

            def query(self) -> bool:
                return self.at is not None

            def synchronize(self) -> None:
                assert self.at is not None, "this would wait for ever"

            def elapsed_time(self, later: "Event") -> float:
                assert self.at is not None
                assert later.at is not None
                return float(np.float32(later.at - self.at))  # CUDA's times are float32

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())

    def halts(self) -> None:
        self.is_there = False

    def comes(self, ms: float) -> None:
        """Let the GPU finish all queued work at a time."""
        self.ms, self.is_there = ms, True
        for event in self.waiting:
            event.at = ms
        self.waiting.clear()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


@pytest.fixture
def recorder(gpu: Gpu) -> Recorder:
    return Recorder(0, Box(), clock=GpuClock())


def test_moments_of_a_long_run_are_exact(gpu, monkeypatch):
    """CUDA counts ms in float32: an hour after one origin, steps would be a quarter of a ms."""
    host = 5 * SECOND
    monkeypatch.setattr(clock.time, "perf_counter_ns", lambda: host)
    mine, moments = GpuClock(), []
    for _ in range(3000):
        host, gpu.ms = host + SECOND * 6 // 5, gpu.ms + 1200.0
        moments.append((mine.now(), host))
    errors = [abs(mine.ns(moment) - expected) for moment, expected in moments]
    assert max(errors) < 2000


def test_a_gpu_that_is_behind_is_counted_from_when_it_gets_there(gpu, monkeypatch):
    host = 5 * SECOND
    monkeypatch.setattr(clock.time, "perf_counter_ns", lambda: host)
    mine = GpuClock()
    gpu.halts()
    moments = []
    for _ in range(4):
        host += SECOND
        moments.append(mine.now())
    assert not any(mine.is_past(moment) for moment in moments)
    gpu.comes(ms=4500.0)
    assert [mine.ns(moment) for moment in moments] == [9 * SECOND + SECOND // 2] * 4
    assert mine.ns(7) == 7  # the host times operations of gloo
    assert mine.is_past(7)


def test_a_call_is_under_way_until_the_gpu_has_done_it(gpu, recorder):
    call = recorder.posted("all_reduce", "", on_gpu=True)
    gpu.halts()
    recorder.done(call)
    moved = recorder.moved
    assert recorder.under_way() == [call]
    assert recorder.spans() == []  # a rank that fails now must not wait for the GPU
    gpu.comes(ms=3.0)
    assert (recorder.under_way(), recorder.moved) == ([], moved + 1)
    (span,) = recorder.spans()
    assert span.end_ns - span.start_ns == 3_000_000


def test_a_rank_that_has_returned_waits_for_its_gpu_and_says_so(gpu, recorder):
    call = recorder.posted("recv", "", peer=1, on_gpu=True)
    gpu.halts()
    recorder.done(call)
    finishes = threading.Thread(target=recorder.finish)
    finishes.start()
    while recorder.waits.get(finishes.ident) is not call:
        time.sleep(0.01)
    gpu.comes(ms=1.0)
    finishes.join(60)
    assert (finishes.is_alive(), recorder.waits) == (False, {})


def test_who_stands_still_with_a_call_on_the_gpu_waits_for_it(gpu, recorder):
    """`loss.item()` waits in CUDA, where no Python code sees the wait and the processor spins."""
    call = recorder.posted("all_reduce", "", on_gpu=True)
    gpu.halts()
    recorder.done(call)
    agent, stop, ids = Agent(recorder, recorder.box), threading.Event(), []

    def stands():
        ids.append(threading.get_ident())
        stop.wait(60)

    rank = threading.Thread(target=stands)
    rank.start()
    while not ids:
        time.sleep(0.01)
    # the thread of this test is not at work
    agent._main, agent._is_at_work = ids[0], lambda *_: False
    try:
        looks = [agent.status()]
        while looks[-1].waiting is None and len(looks) < 100:
            time.sleep(0.01)
            looks.append(agent.status())
    finally:
        stop.set()
        rank.join()
    assert looks[0].waiting is None  # one look cannot tell if the thread stands still
    assert looks[-1].waiting.op == "all_reduce"
    assert looks[-1].cpu_ns == 0


def test_what_ddp_waits_for_is_found_when_the_gpu_has_done_it(gpu, recorder):
    """Moments that the GPU has not reached cannot be compared."""
    recorder.backward = Backward((("f.py", 3), "backward"), recorder.clock.now())
    call = recorder.posted("all_reduce", "", on_gpu=True)
    gpu.ms = 1.0
    recorder.backward.ready.append((recorder.clock.now(), 8))
    gpu.halts()
    recorder.teller(call)(None)
    recorder.backward.end = recorder.clock.now()
    recorder.backward_ends()
    assert recorder.spans() == []
    gpu.comes(ms=3.0)
    recorder.finish()
    comm, gradient, rest = recorder.spans()
    assert (comm.end_ns - comm.start_ns, comm.end_ns - comm.blocked_ns) == (3_000_000, 2_000_000)
    assert (gradient.bytes, gradient.end_ns) == (8, comm.blocked_ns)
    assert (rest.start_ns, rest.end_ns) == (comm.blocked_ns, comm.end_ns)


def test_arguments_arrive_on_the_device_of_the_rank():
    parts = ship.pack_call(
        torch.add, (torch.ones(3),), {"other": torch.nn.Parameter(torch.ones(1))}
    )
    parts = [bytearray(part) for part in parts]
    torch.set_default_device("meta")
    try:
        _, (x,), others = ship.unpack_call(parts)
    finally:
        torch.set_default_device(None)
    assert (x.device.type, others["other"].device.type) == ("meta", "meta")
    assert isinstance(others["other"], torch.nn.Parameter)


def test_marks_of_two_streams_may_be_out_of_order_and_the_hosts_times_may_not(gpu):
    mine = GpuClock()
    later, sooner = mine.now(), mine.now()
    later.event.at, sooner.event.at = 2.0, 1.5
    start_ns, end_ns = clock.stretch(mine.ns, later, sooner)
    assert start_ns == end_ns
    assert clock.stretch(clock.HOST.ns, 7, 5) == (7, 5)
