"""A measured machine: what operations cost on the device at hand, as a machine file has it.

Each kind of operation is timed over a fixed grid of sizes, forward as training has it: with fresh
outputs, on one thread. On the CPU the thread's own CPU time counts, the least of several rounds: so
what else runs on the machine matters little. From a time t and a size the efficiency follows,
size / (peak · (t − launch)), where the peak is the best that was seen.

The launch is what an operation of a training step costs that has next to nothing to do: torch's
modules, autograd and optimizer included, shared out among the operations that are counted.
"""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Any

from ddpkit.machine import KindCost, MachineModel

ROUNDS, AT_LEAST = 7, 0.004  # of each work; seconds that a round takes
# (rows, inner, columns); (batch, channels, pixels a side); (batch, heads, length, width)
PRODUCTS = [(rows, k, k) for rows in (16, 64, 256, 1024) for k in (32, 128, 384, 768)]
CONVOLUTIONS = [(b, c, side) for b in (4, 32) for c, side in ((16, 32), (64, 16), (128, 8))]
ATTENTIONS = [(b, 4, length, 32) for b in (2, 16) for length in (16, 64, 256)]
ELEMENTS = [4**n for n in range(3, 13)]
LEAST_NS = 1.0  # of a time, when the launch is taken off

Work = tuple[float, Callable[[], Any]]  # FLOPs or bytes, and what does them


def measure(device: str = "cpu", say: Callable[[str], None] = lambda _: None) -> MachineModel:
    """The machine of a device of this computer; takes a minute or two.

    ``say`` hears of what is done. Raises RuntimeError, torch's, if there is no such device.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.device(device):
            return _measure(device, say)
    finally:
        torch.set_num_threads(threads)


def _measure(device: str, say: Callable[[str], None]) -> MachineModel:
    works = {
        "matmul": [*_products()],
        "convolution": [*_convolutions()],
        "attention": [*_attentions()],
        "elementwise": [*_elementwise()],
        "copy": [*_copies()],
    }
    say("a step with next to nothing to do")
    launch = 1e9 * _launch(device)
    times: dict[str, list[tuple[float, float]]] = {}
    for kind, grid in works.items():
        say(f"{kind}: {len(grid)} sizes")
        times[kind] = [(size, 1e9 * _seconds(work, device)) for size, work in grid]
    bare = min(ns for _, ns in times["elementwise"])  # a launch without modules and autograd
    rates = {
        kind: [(size, size / max(ns - bare, LEAST_NS)) for size, ns in found]
        for kind, found in times.items()
    }
    peak = max(rate for kind in ("matmul", "convolution", "attention") for _, rate in rates[kind])
    bandwidth = rates["copy"][-1][1]  # far beyond every cache
    kinds = {
        kind: KindCost(
            launch, _curve(found, bandwidth if kind in ("elementwise", "copy") else peak)
        )
        for kind, found in rates.items()
    }
    return MachineModel(
        "measured",
        {"float32": 1e9 * peak},
        1e9 * bandwidth,
        None,
        launch,
        kinds=kinds,
        title=f"{_name(device)}, one thread" if device == "cpu" else _name(device),
        source=dict.fromkeys(("flops", "bandwidth", "launch_us", "efficiency", "kinds"), _said()),
    )


def _curve(rates: list[tuple[float, float]], best: float) -> tuple[tuple[float, float], ...]:
    """Efficiencies by size: the mean, where several works are of about one size."""
    bins: dict[int, list[tuple[float, float]]] = {}
    for size, rate in sorted(rates):
        bins.setdefault(int(size).bit_length(), []).append((size, rate / best))
    return tuple(
        (
            statistics.geometric_mean([size for size, _ in found]),
            statistics.geometric_mean([part for _, part in found]),
        )
        for _, found in sorted(bins.items())
    )


def _seconds(work: Callable[[], Any], device: str) -> float:
    """How long a piece of work takes: the least mean of several rounds."""
    clock, finish = _clock(device)
    work()
    count = 1
    while True:
        finish()
        begin = clock()
        for _ in range(count):
            work()
        finish()
        took = clock() - begin
        if took > AT_LEAST:
            break
        count = max(2 * count, int(1.2 * count * AT_LEAST / max(took, 1e-7)))
    best = took / count
    for _ in range(ROUNDS - 1):
        begin = clock()
        for _ in range(count):
            work()
        finish()
        best = min(best, (clock() - begin) / count)
    return best


def _clock(device: str) -> tuple[Callable[[], float], Callable[[], None]]:
    """What tells the time, and what waits for the device."""
    import torch

    if device == "cpu":
        return time.thread_time, lambda: None
    return time.perf_counter, torch.cuda.synchronize


def _launch(device: str) -> float:
    """Seconds that an operation of a training step takes, of modules of 8 × 8."""
    import torch
    from torch import nn

    from ddpkit.rank.emulation.counted import OperationCount

    layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()) for _ in range(16)]
    net, x, y = nn.Sequential(*layers), torch.ones(8, 8), torch.zeros(8, dtype=torch.long)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    step()
    operations = OperationCount()
    with operations:
        step()
    return _seconds(step, device) / operations.number


def _products() -> Iterator[Work]:
    import torch

    for rows, inner, columns in PRODUCTS:
        a, b, c = torch.ones(rows, inner), torch.ones(columns, inner), torch.ones(columns)
        yield 2.0 * rows * inner * columns, partial(torch.addmm, c, a, b.t())
        g = torch.ones(rows, columns)
        yield 2.0 * rows * inner * columns, partial(torch.mm, g.t(), a)
        yield 2.0 * rows * inner * columns, partial(torch.mm, g, b)


def _convolutions() -> Iterator[Work]:
    import torch

    for batch, channels, side in CONVOLUTIONS:
        x = torch.ones(batch, channels, side, side)
        w = torch.ones(channels, channels, 3, 3)
        flops = 2.0 * 9 * batch * (channels * side) ** 2
        yield flops, partial(torch.conv2d, x, w, padding=1)
        back = torch.ops.aten.convolution_backward
        yield (
            2 * flops,
            partial(
                back, x, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
            ),
        )


def _attentions() -> Iterator[Work]:
    import torch

    for batch, heads, length, width in ATTENTIONS:
        q = torch.ones(batch, heads, length, width)
        attend = torch.nn.functional.scaled_dot_product_attention
        yield 4.0 * batch * heads * length**2 * width, partial(attend, q, q, q)


def _elementwise() -> Iterator[Work]:
    import torch

    for elements in ELEMENTS:
        x, y = torch.ones(elements), torch.ones(elements)
        yield 12.0 * elements, partial(torch.add, x, y)


def _copies() -> Iterator[Work]:
    import torch

    for elements in ELEMENTS:
        x, y = torch.ones(elements), torch.ones(elements)
        yield 8.0 * elements, partial(x.copy_, y)


def _said() -> str:
    import torch

    return f"measured by ddpkit on {date.today()}, torch {torch.__version__}"


def _name(device: str) -> str:
    """The device in words."""
    import torch

    if device != "cpu":
        return str(torch.cuda.get_device_name(device))
    return platform.processor() or platform.machine()
