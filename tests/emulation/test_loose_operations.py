"""Operations outside modules are compute in a trace, if compute is counted."""

from __future__ import annotations

import itertools
import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster, busy, span
from ddpkit.trace import OPERATIONS, Span, Trace

pytestmark = pytest.mark.processes

MACHINE, LINK = "100 GFLOP/s, 100 GB/s, 1 GB, 5 us", "1 Gbit/s, 10 us"
PRODUCT_NS = 5_000 + round(2 * 512**3 / 100)


def loose(trace: Trace, rank: int = 0) -> list[Span]:
    return [each for each in trace.of(rank) if OPERATIONS in each.args]


def hidden(marked: bool) -> None:
    """Hide an all_reduce behind four products; then make a second all_reduce alone."""
    side, x = torch.ones(512, 512), torch.ones(250_000)
    dist.barrier()
    work = dist.all_reduce(x, async_op=True)
    if marked:
        with span("block"):
            for _ in range(4):
                side @ side
    else:
        for _ in range(4):
            side @ side
    work.wait()
    dist.all_reduce(x)


def test_communication_behind_plain_operations_is_overlapped() -> None:
    cluster = Cluster(2, machine=MACHINE, link=LINK)
    plain, marked = (cluster.run(hidden, each).trace for each in (False, True))
    assert plain.breakdown() == marked.breakdown()
    for rank in (0, 1):
        parts = plain.breakdown()[rank]
        assert (
            parts.overlapped_ns == parts.exposed_ns - 10_000 == 8_020_000
        )  # the barrier takes 10 us
        start, end = plain.window_of(rank)
        whole = parts.compute_only_ns + parts.overlapped_ns + parts.exposed_ns + parts.idle_ns
        assert whole == end - start
        (products,) = [each for each in loose(plain, rank) if each.name == "mm"]
        assert products.duration_ns == 4 * PRODUCT_NS
        assert products.kind == "span"
        assert products.is_compute


def test_a_stretch_ends_where_time_passes_otherwise() -> None:
    """Waits, stated work and modules end a stretch; the longest operation names the stretch."""

    def many() -> list[int]:
        side, layer = torch.ones(512, 512), nn.Linear(512, 512)
        dist.barrier()
        side @ side
        side + side
        dist.barrier()
        side + side
        busy("1 ms")
        side @ side
        layer(side).sum().backward()
        torch.optim.SGD(layer.parameters(), 0.1).step()
        side.exp()
        dist.barrier()
        return [0]

    trace = Cluster(2, machine=MACHINE, link=LINK).run(many).trace
    found = loose(trace)[-5:]
    assert [each.name for each in found] == ["mm", "add", "mm", "sum", "exp"]
    compute = sorted(
        (each.start_ns, each.end_ns) for each in trace.of(0) if each.is_compute and each.duration_ns
    )
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(compute))
    assert trace.breakdown()[0].idle_ns == 0


def functional(steps: int) -> None:
    """Train without any module: each step's stretches lie inside the step."""
    weight = torch.zeros(256, 256, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    x = torch.ones(64, 256)
    for _ in range(steps):
        ((x @ weight - 1) ** 2).mean().backward()
        weight.grad /= dist.get_world_size()
        dist.all_reduce(weight.grad)
        optimizer.step()
        optimizer.zero_grad()


def test_steps_are_those_of_the_optimizer_and_hold_their_operations() -> None:
    trace = Cluster(2, machine=MACHINE, link=LINK).run(functional, 4).trace
    assert trace.steps == 4
    parts = [trace.step(k).breakdown()[0] for k in range(1, 4)]
    assert len({(p.compute_only_ns, p.exposed_ns, p.idle_ns) for p in parts}) == 1
    assert parts[0].idle_ns == 0
    for k in range(4):
        start, end = trace.step(k).window_of(0)
        for each in loose(trace.step(k)):
            assert start <= each.start_ns <= each.end_ns <= end
    # The first step begins with the backward, after the operations that make the data.
    assert trace.step(0).window_of(0)[0] == trace.start_ns


def test_what_lies_before_the_first_call_of_any_rank_and_after_the_last_is_in_no_trace() -> None:
    def late() -> None:
        side = torch.ones(512, 512)
        for _ in range(1 + 2 * dist.get_rank()):
            side @ side
        dist.all_reduce(side)
        side @ side

    trace = Cluster(2, machine=MACHINE, link=LINK).run(late).trace
    calls = [each for each in trace.spans if each.is_comm]
    assert trace.start_ns == min(each.start_ns for each in calls)
    assert trace.end_ns == max(each.end_ns for each in calls)
    assert [each.duration_ns for each in loose(trace, 1)] == [2 * PRODUCT_NS]
    for each in trace.spans:
        assert trace.start_ns <= each.start_ns <= each.end_ns <= trace.end_ns


def test_without_a_record_of_compute_there_are_none() -> None:
    trace = Cluster(2, machine=MACHINE, link=LINK, record=False).run(hidden, False).trace
    assert not any(each.is_compute for each in trace.spans)


def test_measured_time_knows_none() -> None:
    trace = Cluster(2, link=LINK).run(hidden, False).trace
    assert not any(OPERATIONS in each.args for each in trace.spans)


def test_a_killed_rank_leaves_its_stretches() -> None:
    def dies() -> None:
        side = torch.ones(512, 512)
        for _ in range(3):
            side @ side
            dist.barrier()
        if dist.get_rank():
            os.kill(os.getpid(), signal.SIGKILL)
        dist.barrier()

    run = Cluster(2, machine=MACHINE, link=LINK).run(dies, expect_error=True)
    assert [each.name for each in loose(run.trace, 1)].count("mm") >= 2
