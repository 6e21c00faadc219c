"""Lab 15: traces of steps with one bottleneck: made, simulated, and recorded once."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ddpkit.simulate import Gradient, Step, replay
from ddpkit.simulate.step.buckets import assign_buckets
from ddpkit.trace import Span, Trace

MS = 1_000_000  # ns


@dataclass(frozen=True)
class StepWork:
    """The times of a step's work in ms, one for each rank."""

    compute: Sequence[float]
    input: Sequence[float]
    idle: Sequence[float]
    sizes: Sequence[int]  # bytes of the all_reduces after backward
    hidden: Sequence[int] = ()  # bytes of the all_reduces during backward
    latency: float = 0.2  # ms of an all_reduce without data
    bandwidth: float = 1e5  # bytes a ms
    steps: int = 4
    averages: bool = True  # average the loss at the end of a step: an all_reduce of 4 bytes
    others: int = 0  # all_gathers after backward, each 1.25 times as long as an empty all_reduce


def of(work: StepWork) -> Trace:
    """Return the trace of `work.steps` equal steps."""
    ranks = range(len(work.compute))
    spans: list[Span] = []
    free = [0.0 for _ in ranks]
    for number in range(work.steps):
        begin, seq = list(free), 100 * number
        for rank in ranks:
            at, computes = begin[rank], work.compute[rank]
            spans += [_compute(rank, "span", "input", at, at + work.input[rank])]
            at += work.input[rank] + work.idle[rank]
            spans += [_compute(rank, "forward", "forward", at, at + computes / 3)]
            free[rank] = at + computes
        under_way = max(at - work.compute[rank] / 2 for rank, at in enumerate(free))
        for nbytes in work.hidden:
            took = _took(work, nbytes)
            spans += [_comm(rank, seq, nbytes, under_way, under_way, took, None) for rank in ranks]
            under_way, seq = under_way + took, seq + 1
        for rank in ranks:
            back = free[rank] - begin[rank] - work.input[rank] - work.idle[rank]
            spans += [_compute(rank, "backward", "backward", free[rank] - 2 * back / 3, free[rank])]
        gathers = [("all_gather", round(work.latency * work.bandwidth / 4))] * work.others
        reduces = [("all_reduce", nbytes) for nbytes in (*work.sizes, *[4] * work.averages)]
        for name, nbytes in (*gathers, *reduces):
            ready = max(free)
            took = _took(work, nbytes)
            made = [_comm(r, seq, nbytes, free[r], ready, took, free[r]) for r in ranks]
            spans += [replace(each, name=name) for each in made]
            free, seq = [ready + took] * len(ranks), seq + 1
        spans += [_step(rank, begin[rank], free[rank]) for rank in ranks]
    return Trace(tuple(spans), len(ranks), {"backend": "made"})


def _took(work: StepWork, nbytes: int) -> float:
    return work.latency + nbytes / work.bandwidth


def _compute(rank: int, kind: str, name: str, start: float, end: float) -> Span:
    return Span(rank, "compute", name, kind, round(start * MS), round(end * MS))


def _step(rank: int, start: float, end: float) -> Span:
    return Span(rank, "step", "step", "step", round(start * MS), round(end * MS))


def _comm(
    rank: int, seq: int, nbytes: int, start: float, ready: float, took: float, blocked: float | None
) -> Span:
    at = [round(ms * MS) for ms in (start, ready + took, ready)]
    return Span(
        *(rank, "comm", "all_reduce", "comm", at[0], at[1], nbytes),
        group="0",
        seq=seq,
        ready_ns=at[2],
        blocked_ns=None if blocked is None else round(blocked * MS),
        collected_ns=at[1],
    )


def simulated(sizes: Sequence[int], compute_ms: float, link: str, ranks: int = 4) -> Trace:
    """Simulate a data-parallel step; each gradient has its own bucket, and `sizes` are in bytes."""
    gap = round(compute_ms * MS / len(sizes))
    gradients = tuple(Gradient(str(i), size, gap * (i + 1)) for i, size in enumerate(sizes))
    step = Step(gap, gradients, optimizer_ns=gap)
    return replay(step, ranks, link, assign_buckets(gradients, 0.0, 0.0)).trace()


def recorded(name: str, rng: random.Random) -> Trace:
    """Load a recorded run; renumber its ranks, and multiply all times by one random factor."""
    trace = Trace.load(Path(__file__).with_name(f"{name}.json.gz"))
    order = rng.sample(list(trace.ranks), trace.world_size)
    parts = trace.breakdown()
    last = min(parts, key=lambda rank: parts[rank].exposed_ns)
    if order[last] == 0:  # the rank for which all ranks wait must not be rank 0
        other = (last + 1) % len(order)
        order[last], order[other] = order[other], order[last]
    times = rng.uniform(0.4, 3.0)
    return Trace(tuple(_other(one, order, times) for one in trace.spans), trace.world_size)


def _other(one: Span, order: Sequence[int], times: float) -> Span:
    def at(ns: int | None) -> int | None:
        return None if ns is None else round(ns * times)

    return replace(
        one,
        rank=order[one.rank],
        start_ns=round(one.start_ns * times),
        end_ns=round(one.end_ns * times),
        ready_ns=at(one.ready_ns),
        blocked_ns=at(one.blocked_ns),
        collected_ns=at(one.collected_ns),
    )
