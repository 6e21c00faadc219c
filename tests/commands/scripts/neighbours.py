"""Programs beside the device's queues, with torch's own code; times in us.

Under `ddpkit run` a program's numbers go to found.json. A Cluster's tests call the functions.
tests/commands/test_neighbours.py has the working by hand.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from ddpkit import busy

WIDTH = 100  # a product of such matrices takes 1 ms at 2 GFLOP/s


def gpu() -> str:
    """Return the device's name: a Cluster's ranks see no GPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def streams() -> Any:
    """Return the module that has the device's streams and events."""
    return torch.cuda if torch.cuda.is_available() else torch.cpu


def us(function: Callable[[], Any]) -> list[float]:
    """Return the times after which the host has called a function, and the device has done it."""
    streams().synchronize()
    dist.barrier()
    began = time.perf_counter_ns()
    function()
    host = time.perf_counter_ns()
    streams().synchronize()
    return [(each - began) / 1000 for each in (host, time.perf_counter_ns())]


def net(layers: int = 2, width: int = WIDTH) -> nn.Sequential:
    """Return layers without bias on the device."""
    made = nn.Sequential(*(nn.Linear(width, width, bias=False) for _ in range(layers)))
    return made.to(gpu())


def accumulates() -> dict[str, list[float]]:
    """Accumulate the gradients of three micro-batches in DDP, with and without `no_sync`."""
    model = DistributedDataParallel(net(), bucket_cap_mb=0.03, gradient_as_bucket_view=True)
    x = torch.zeros(WIDTH, WIDTH, device=gpu())

    def step(*, waits: bool) -> None:
        for i in range(3):
            with model.no_sync() if waits and i < 2 else nullcontext():
                model(x).sum().backward()

    for _ in range(2):  # the first step ends with new buckets
        step(waits=False)
    return {str(waits): us(lambda waits=waits: step(waits=waits)) for waits in (True, False)}


def zero() -> list[float]:
    """Step with an optimizer whose states are shared out among the ranks."""
    model = net()
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.SGD, lr=0.1, parameters_as_bucket_view=False
    )
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return us(optimizer.step)


def tensor_parallel() -> dict[str, list[float]]:
    """Train a perceptron whose two layers are cut over the ranks."""
    model = nn.Sequential(
        nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(2 * WIDTH, WIDTH, bias=False)
    ).to(gpu())
    mesh = init_device_mesh(gpu(), (dist.get_world_size(),))
    parallelize_module(model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    found = {}
    for wants in (False, True):
        x = torch.zeros(WIDTH, WIDTH, device=gpu(), requires_grad=wants)

        def step(x: torch.Tensor = x) -> None:
            model(x).sum().backward()
            model.zero_grad()

        step()
        step()
        found[str(wants)] = us(step)
    return found


def scales() -> dict[str, list[float]]:
    """Take three steps without a scaler, with one, and with one that a fused optimizer reads."""
    found = {}
    for name in ("none", "scaler", "fused"):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=name == "fused" or None)
        scaler = torch.amp.GradScaler(gpu(), enabled=name != "none")
        x = torch.zeros(WIDTH, WIDTH, device=gpu())

        def steps(
            model: nn.Module = model, optimizer: Any = optimizer, scaler: Any = scaler, x: Any = x
        ) -> None:
            for _ in range(3):
                scaler.scale(model(x).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()

        steps()
        found[name] = us(steps)
    return found


def pipeline() -> list[float]:
    """Train two micro-batches on two stages, forwards first."""
    rank = dist.get_rank()
    stage = PipelineStage(net(1), rank, 2, torch.device(gpu(), rank if gpu() == "cuda" else None))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda out, _: out.sum())
    x = torch.zeros(2 * WIDTH, WIDTH, device=gpu())

    def step() -> None:
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x)

    step()
    return us(step)


def events() -> dict[str, list[Any]]:
    """Time kernels of two streams by events; the host waits for one event and looks at others."""
    home, found = streams(), {}
    side = home.Stream()
    first, middle, last, other, never = (home.Event(enable_timing=True) for _ in range(5))

    def program() -> None:
        began = time.perf_counter_ns()
        first.record()
        busy("100 us", "K1")
        middle.record()
        busy("50 us", "K2")
        last.record()
        with home.stream(side):
            side.wait_event(middle)
            busy("300 us", "S")
            other.record()
        last.synchronize()
        found["host"] = [(time.perf_counter_ns() - began) / 1000]
        found["done"] = [each.query() for each in (never, last, other)]

    found["device"] = us(program)[1:]
    found["elapsed"] = [round(1000 * first.elapsed_time(each), 3) for each in (middle, last, other)]
    return found


NUMBER = 25_000_000  # float32: 100 MB, which takes 4 ms on a bus of 25 GB/s


def prefetches() -> dict[str, list[float]]:
    """Copy four batches up, each before its kernel of 5 ms, in line or on a side stream."""
    found, side = {}, torch.cuda.Stream()
    memories = {"pinned": torch.empty(NUMBER, pin_memory=True), "pageable": torch.zeros(NUMBER)}

    def inline(batch: torch.Tensor, *, non_blocking: bool) -> None:
        for _ in range(4):
            batch.to("cuda", non_blocking=non_blocking)
            busy("5 ms")

    def beside(batch: torch.Tensor, *, non_blocking: bool) -> None:
        def copy() -> torch.Tensor:
            with torch.cuda.stream(side):
                return batch.to("cuda", non_blocking=non_blocking)

        ahead = copy()
        for i in range(4):
            torch.cuda.current_stream().wait_stream(side)
            ahead.record_stream(torch.cuda.current_stream())
            busy("5 ms")
            if i < 3:
                ahead = copy()

    for kind, batch in memories.items():
        for non_blocking in (True, False):
            for way in (inline, beside):
                name = f"{kind} {way.__name__}{' non_blocking' * non_blocking}"
                found[name] = us(
                    lambda way=way, batch=batch, wait=non_blocking: way(batch, non_blocking=wait)
                )
    return found


def loads() -> dict[str, list[float]]:
    """Multiply the three batches of 40 kB of a DataLoader."""
    data = TensorDataset(torch.zeros(3 * WIDTH, WIDTH))
    weight = torch.zeros(WIDTH, WIDTH, device="cuda")
    found = {}
    for name, options in (
        ("pinned", {"pin_memory": True}),
        ("pageable", {}),
        ("pinned, of a worker", {"pin_memory": True, "num_workers": 1}),
    ):

        def epoch(options: Any = options) -> None:
            for (batch,) in DataLoader(data, batch_size=WIDTH, **options):
                batch.to("cuda", non_blocking=True) @ weight

        found[name] = us(epoch)
    return found


if __name__ == "__main__":
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    found = globals()[sys.argv[1]]()
    Path(f"found by {dist.get_rank()}.json").write_text(json.dumps(found))
