"""Programs of known duration, run by ranks in the benchmark and the tests of emulated time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from ddpkit import busy
from ddpkit.simulate import schedule
from ddpkit.simulate.messages.schedules import Recv, RecvReduce, Send, Step

Cell = tuple[str, int]  # an operation, and the bytes of a rank's vector
Moments = tuple[int, int]  # begin and end on a rank, in ns
FAR_NS = 1_000_000_000  # more than an all_reduce of 8 bytes takes

BY_TORCH: dict[str, Callable[[torch.Tensor], object]] = {
    "torch all_reduce": dist.all_reduce,
    "torch broadcast": lambda x: dist.broadcast(x, src=0),
}


def carry_out(steps: tuple[Step, ...], x: torch.Tensor) -> None:
    """Carry out one rank's steps of a schedule on the rank's vector, by isend and recv."""
    given = x.clone() if any(isinstance(step, Send) and step.original for step in steps) else x
    got, works = torch.empty_like(x), []
    for step in steps:
        part = slice(*step.part)
        if isinstance(step, Send):  # a copy: the vector changes while the message is under way
            message = given[part] if step.original else x[part].clone()
            works.append((dist.isend(message, step.peer), message))
            continue
        assert isinstance(step, Recv)
        dist.recv(got[part], step.peer)
        if isinstance(step, RecvReduce):
            x[part] += got[part]
        else:
            x[part] = got[part]
    for work, _ in works:
        work.wait()


def align() -> None:
    """Let all ranks go on at the same emulated time; a barrier would end at different times."""
    latest = torch.tensor(time.perf_counter_ns())
    dist.all_reduce(latest, dist.ReduceOp.MAX)
    time.sleep((int(latest) + FAR_NS - time.perf_counter_ns()) / 1e9)


def moments_of(cells: list[Cell]) -> dict[Cell, Moments]:
    """Return the begin and the end of each operation on this rank.

    cells  operations, each with the bytes of its float32 vector

    Raises AssertionError if an operation gives a wrong result.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    found = {}
    for operation, nbytes in cells:
        x = torch.full((nbytes // 4,), float(rank + 1))
        by_torch = BY_TORCH.get(operation)
        steps = () if by_torch else schedule(operation, n, nbytes // 4).of(rank)
        align()
        begin = time.perf_counter_ns()
        if by_torch is not None:
            by_torch(x)
        else:
            carry_out(steps, x)
        found[operation, nbytes] = begin, time.perf_counter_ns()
        wanted = 1 if "broadcast" in operation else n * (n + 1) // 2
        assert bool((x == wanted).all()), (operation, nbytes)
    return found


def one_all_reduce(nbytes: int) -> tuple[Moments, int]:
    """Return begin and end of an all-reduce, and the memory of this rank in bytes (PSS)."""
    x = torch.ones(nbytes // 4)
    align()
    begin = time.perf_counter_ns()
    dist.all_reduce(x)
    end = time.perf_counter_ns()
    assert bool((x == dist.get_world_size()).all())
    pss = Path("/proc/self/smaps_rollup").read_text("ascii").partition("\nPss:")[2]
    return (begin, end), int(pss.split()[0]) * 1024


def pipeline(order: str, micro_batches: int, forward: str, backward: str) -> Moments:
    """Run one stage of a pipeline with stated compute; `order` is "gpipe" or "1f1b"."""
    stage, stages = dist.get_rank(), dist.get_world_size()
    first = micro_batches if order == "gpipe" else min(stages - stage - 1, micro_batches)
    todo = ["F"] * first + ["F", "B"] * (micro_batches - first) + ["B"] * first
    x, works = torch.ones(1), []
    align()
    begin = time.perf_counter_ns()
    for each in todo:
        source, target = (stage - 1, stage + 1) if each == "F" else (stage + 1, stage - 1)
        if 0 <= source < stages:
            dist.recv(torch.empty(1), source)
        busy(forward if each == "F" else backward)
        if 0 <= target < stages:
            works.append(dist.isend(x, target))
    for work in works:
        work.wait()
    return begin, time.perf_counter_ns()


def asynchronous_server(rounds: int, work_ms: float, slower: int) -> list[tuple[int, int]]:
    """Run a server on rank 0; return there the sender and the time of each message, in order.

    The last rank works `slower` times as long as the other workers.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    x, came = torch.zeros(25_000), []
    if rank == 0:
        answers = []
        for _ in range((n - 1) * rounds):
            source = dist.recv(x)
            came.append((source, time.perf_counter_ns()))
            busy("500 us")
            answers.append(dist.isend(torch.zeros_like(x), source))
        for answer in answers:
            answer.wait()
        return came
    for _ in range(rounds):
        time.sleep(work_ms / 1e3 * (slower if rank == n - 1 else 1))
        dist.send(x, 0)
        dist.recv(x, 0)
    return came


def training(steps: int, together: bool) -> list[tuple[float, float]]:
    """Return emulated and real seconds of each step of a loop, with torch's DDP if ``together``."""
    from torch import nn

    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(*(nn.Linear(512, 512) for _ in range(6)))
    if together:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, seconds = torch.randn(256, 512), []
    for _ in range(steps):
        emulated, real = time.perf_counter(), _real()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        seconds.append((time.perf_counter() - emulated, _real() - real))
    return seconds


def _real() -> float:
    """Return the seconds of a clock that stays real on an emulated machine."""
    return time.clock_gettime(time.CLOCK_MONOTONIC_RAW)
