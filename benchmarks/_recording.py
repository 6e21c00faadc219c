"""What recording costs: the same work, in turns, on plain gloo and on ddpkit's recorded group.

All variants run inside the same ranks, on groups of the same kind, in blocks that follow each other
in changing order, so that a busy machine slows all of them alike. `recorded` is what a rank does
with `Cluster(record=False)`, `hooked` with the default `Cluster(record=True)`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

VARIANTS = ("plain", "recorded", "hooked")
WIDTH, LAYERS, BATCH = 320, 6, 64  # a step of about 5 ms on one core, 21 + 2 spans
WARM = 2  # blocks: DDP rebuilds its buckets after the first step

Blocks = dict[str, list[float]]  # variant -> seconds for each block


def steps(blocks: int, per_block: int) -> Blocks:
    """CPU seconds of one training step of torch's DDP, per variant and block, on this rank.

    Each variant has a model of its own for all of its blocks, which are short and follow each other
    in turns: so what else the machine does meets all variants alike.
    """
    import torch
    import torch.distributed as dist

    groups = _groups()
    rows = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    trainers = {name: _trainer(groups[name], *rows) for name in VARIANTS}
    taken: Blocks = {name: [] for name in VARIANTS}
    for block in range(-WARM, blocks):
        for name in _turn(VARIANTS, block):
            with _hooks(name):
                trainers[name]()  # the caches are the other variants'
                dist.barrier(groups["plain"])
                begun = time.process_time()
                for _ in range(per_block):
                    trainers[name]()
                if block >= 0:
                    taken[name].append((time.process_time() - begun) / per_block)
    return taken


def wall(per_block: int) -> float:
    """Seconds that one such step takes by the clock, on plain gloo."""
    import torch

    step = _trainer(_groups()["plain"], torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH))
    for _ in range(WARM):
        step()
    begun = time.perf_counter()
    for _ in range(per_block):
        step()
    return (time.perf_counter() - begun) / per_block


def latency(op: str, blocks: int, per_block: int) -> dict[str, Blocks]:
    """Seconds of one small operation, {"wall": ..., "cpu": ...} per variant and block."""
    import torch
    import torch.distributed as dist

    groups, small = _groups(), torch.zeros(8)
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
    for block in range(blocks):
        for name in _turn(names, block):
            seconds = _timed(lambda name=name: call(groups[name]), per_block)  # type: ignore[misc]
            for clock, value in zip(("wall", "cpu"), seconds, strict=True):
                taken[clock][name].append(value)
    return taken


def _timed(call: Callable[[], None], times: int) -> tuple[float, float]:
    """Seconds of a call, by the clock and of CPU."""
    for _ in range(10):
        call()
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(times):
        call()
    return (time.perf_counter() - wall) / times, (time.process_time() - cpu) / times


def _groups() -> dict[str, Any]:
    """The default group passes ddpkit's recorder; a gloo group made beside it does not."""
    import torch.distributed as dist

    recorded = dist.group.WORLD
    return {"plain": dist.new_group(backend="gloo"), "recorded": recorded, "hooked": recorded}


def _hooks(variant: str) -> AbstractContextManager[Any]:
    from ddpkit.rank.compute import watch
    from ddpkit.rank.record import current

    recorder = current()
    assert recorder is not None
    return watch(recorder) if variant == "hooked" else nullcontext()


def _trainer(group: Any, rows: Any, targets: Any) -> Callable[[], None]:
    """One step of training a fresh model."""
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


def _turn(names: tuple[str, ...], block: int) -> tuple[str, ...]:
    """The names in another order for each block, so that none always comes after the same."""
    shift = block % len(names)
    return names[shift:] + names[:shift]
