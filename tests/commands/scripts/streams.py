"""Measure streams, events and lists of tensors on a modelled GPU with a time of its own.

A product takes 1 ms, the all_reduce 5 ms, and a launch 5 us.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

dist.init_process_group("nccl")
a = torch.zeros(100, 100, device="cuda")
g = torch.ones(25_000, device="cuda")
side = torch.cuda.Stream()


def ms(function: Callable[[], Any]) -> float:
    """Return the device's time for a function's launches, in ms."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    dist.barrier()
    first.record()
    function()
    last.record()
    last.synchronize()
    return round(first.elapsed_time(last), 6)


def step(*, blocking: bool) -> None:
    """Reduce on a side stream during eight products."""
    with torch.cuda.stream(side):
        work = dist.all_reduce(g, async_op=not blocking)
    for _ in range(8):
        a @ a
    if work is not None:
        work.wait()
    torch.cuda.current_stream().wait_stream(side)


def optimized(**options: bool) -> float:
    """Return the time of AdamW's second step on 144 tensors, in ms."""
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(72))).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), **options)
    model(torch.ones(4, 4, device="cuda")).sum().backward()
    optimizer.step()
    return ms(optimizer.step)


beside = 8.01  # two launches, and eight products
assert ms(lambda: step(blocking=True)) == beside
assert ms(lambda: step(blocking=False)) == beside
assert ms(lambda: [a @ a for _ in range(5)]) == 5.005
unready = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
unready[0].record()
a @ a
unready[1].record()
with pytest.raises(RuntimeError, match="must be completed"):
    unready[0].elapsed_time(unready[1])
lists, each = optimized(foreach=True), optimized(foreach=False)
assert optimized() == lists < each / 10, (lists, each)
