"""The cost of recording: the same work, in turns, on plain gloo and on ddpkit's recorded group.

All variants run inside the same ranks, on groups of the same kind, in blocks that follow each other
in random order, so that a busy machine slows all variants alike. The variant `recorded` is a rank
with `Cluster(record=False)`, and `hooked` a rank with the default `Cluster(record=True)`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any

VARIANTS = ("plain", "recorded", "hooked")
WIDTH, LAYERS, BATCH = 320, 6, 64  # these make a step of about 5 ms on one core
WARM = 2  # blocks that do not count: DDP rebuilds its buckets after the first step

Blocks = dict[str, list[float]]  # variant -> seconds for each step, or block of operations


def has_dynamo() -> bool:
    """True if this rank was forked with `torch._dynamo`, as `ddpkit.rank.preload` imports it."""
    return "torch._dynamo" in sys.modules


def steps(blocks: int, per_block: int, seed: int) -> Blocks:
    """Return the CPU seconds of each training step of torch's DDP, per variant, on this rank.

    Blocks are short and follow each other in random order, so that other work of the machine slows
    all variants alike. The models of the two groups are made in random order too, because a model's
    place in memory makes its steps a few percent faster or slower. `seed`, the same on all ranks,
    decides the order; many pairs of ranks with different seeds average the effect out.
    """
    import torch
    import torch.distributed as dist

    groups, random = _groups(), Random(seed)
    rows = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    made = {
        name: _trainer(groups[name], *rows) for name in _shuffled(("plain", "recorded"), random)
    }
    trainers = {**made, "hooked": made["recorded"]}
    taken: Blocks = {name: [] for name in VARIANTS}
    for block in range(-WARM, blocks):
        for name in _shuffled(VARIANTS, random):
            with _hooks(name):
                trainers[name]()  # does not count, because the caches are another variant's
                dist.barrier(groups["plain"])
                for _ in range(per_block):
                    begun = time.process_time()
                    trainers[name]()
                    if block >= 0:
                        taken[name].append(time.process_time() - begun)
    return taken


def wall(per_block: int) -> float:
    """Return the seconds of a training step by the wall clock, on plain gloo."""
    import torch

    step = _trainer(_groups()["plain"], torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH))
    for _ in range(WARM):
        step()
    begun = time.perf_counter()
    for _ in range(per_block):
        step()
    return (time.perf_counter() - begun) / per_block


def latency(op: str, blocks: int, per_block: int) -> dict[str, Blocks]:
    """Return the "wall" and "cpu" seconds of one small operation, per variant and block."""
    import torch
    import torch.distributed as dist

    groups, small, random = _groups(), torch.zeros(8), Random(0)
    other = 1 - dist.get_rank()

    def all_reduce(group: Any) -> None:
        dist.all_reduce(small, group=group)

    def ping_pong(group: Any) -> None:
        first, second = (dist.send, dist.recv) if other else (dist.recv, dist.send)
        first(small, other, group=group)
        second(small, other, group=group)

    call = {"all_reduce": all_reduce, "ping_pong": ping_pong}[op]
    names = ("plain", "recorded")
    taken: dict[str, Blocks] = {clock: {name: [] for name in names} for clock in ("wall", "cpu")}
    for _ in range(blocks):
        for name in _shuffled(names, random):
            seconds = _timed(lambda name=name: call(groups[name]), per_block)  # type: ignore[misc]
            for clock, value in zip(("wall", "cpu"), seconds, strict=True):
                taken[clock][name].append(value)
    return taken


def _timed(call: Callable[[], None], times: int) -> tuple[float, float]:
    """Return the seconds of a call: by the wall clock, and of CPU time."""
    for _ in range(10):
        call()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def _groups() -> dict[str, Any]:
    """Return the group of each variant: ddpkit's default group, or a plain gloo group."""
    import torch.distributed as dist

    recorded = dist.group.WORLD
    plain = dist.new_group.__wrapped__(backend="gloo")  # torch's own function
    return {"plain": plain, "recorded": recorded, "hooked": recorded}


def _hooks(variant: str) -> AbstractContextManager[Any]:
    from ddpkit.rank.record.compute import watch
    from ddpkit.rank.record.recorder import current

    recorder = current()
    assert recorder is not None
    return watch(recorder) if variant == "hooked" else nullcontext()


def _trainer(group: Any, rows: Any, targets: Any) -> Callable[[], None]:
    """Return a function that takes one step in the training of a fresh model."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(rows), targets)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def _shuffled(names: Sequence[str], random: Random) -> list[str]:
    return random.sample(names, len(names))
