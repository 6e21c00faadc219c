"""A measured machine: the costs of operations on the device at hand, in the form of a machine file.

Each kind of operation is timed over a fixed grid of sizes, as in training: forward and backward,
with fresh outputs, on one thread, and on operands that have left the near caches since they were
made. On the CPU the thread's own CPU time counts, the least of several rounds, so other programs on
the machine matter little. If work of a size takes the time t, the efficiency is size / (peak · (t −
launch)), where the peak is the best measured rate.

The launch is the time of a training step with almost no work, divided by the number of operations
in the step. The time includes torch's modules, autograd and optimizer.
"""

from __future__ import annotations

import itertools
import math
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from typing import Any

from ddpkit.machine import KindCost, MachineModel
from ddpkit.machine_numbers import PHASES

ROUNDS, AT_LEAST = 7, 0.004  # rounds of each piece of work; least seconds of a round
# Cycle through operands of about WORKING_SET bytes, so that caches are as cold as in a real step;
# for small operands at most MOST_SETS sets.
WORKING_SET, MOST_SETS = 16 << 20, 256
# Entries of the next three lists: (rows, inner, columns); (batch, channels, pixels a side, kernel);
# (batch, heads, length, width).
PRODUCTS = [(rows, k, k) for rows in (16, 64, 256, 1024) for k in (32, 128, 384, 768)]
CONVOLUTIONS = [
    (batch, channels, side, kernel)
    for batch in (4, 32)
    for channels, side in ((16, 32), (64, 16), (128, 8))
    for kernel in (1, 3)
]
ATTENTIONS = [(batch, 4, length, 32) for batch in (2, 16) for length in (16, 32, 64, 128, 256)]
ELEMENTS = [4**n for n in range(3, 13)]
# Entries of the next lists: (rows, columns); (rows and columns, adjacent elements).
REDUCTIONS = [(rows, columns) for rows in (16, 128, 1024, 8192) for columns in (32, 128, 512)]
TRANSPOSES = [(n, length) for n in (8, 32, 128) for length in (1, 32, 128)]
# kinds of work with sizes in FLOPs; all other kinds have sizes in bytes
COMPUTING = ("matmul", "convolution", "attention")
PHASE_ROUNDS = 30  # steps in which a phase is timed
NUMBERS = ("flops", "bandwidth", "launch_us", "efficiency", "kinds")
LEAST_NS = 1.0  # least time after subtracting the launch

Work = tuple[float, Callable[[], Any]]  # FLOPs or bytes, and a function that does the work


def measure(device: str = "cpu", say: Callable[[str], None] = lambda _: None) -> MachineModel:
    """Measure a device of this computer, which takes a minute or two; return it as a machine.

    ``say`` is called with each kind of work. Raises torch's RuntimeError if the device is missing.
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
        "matmul": _products,
        "convolution": _convolutions,
        "attention": _attentions,
        "elementwise": _elementwise,
        "copy": _copies,
        "reduction": _reductions,
        "transposed": _transposes,
    }
    say("a step with next to nothing to do")
    launch = 1e9 * _launch(device)
    times: dict[str, list[tuple[float, float]]] = {}
    for kind, grid in works.items():
        say(kind)
        times[kind] = [(size, 1e9 * _seconds(work, device)) for size, work in grid()]
    # the launch of a bare operation, without modules and autograd
    bare = min(ns for _, ns in times["elementwise"])
    rates = {
        kind: [(size, size / max(ns - bare, LEAST_NS)) for size, ns in found]
        for kind, found in times.items()
    }
    peak = max(rate for kind in COMPUTING for _, rate in rates[kind])
    bandwidth = rates["copy"][-1][1]  # the largest copy, far larger than every cache
    kinds = {
        kind: KindCost(launch, _curve(found, peak if kind in COMPUTING else bandwidth))
        for kind, found in rates.items()
    }
    return MachineModel(
        "measured",
        {"float32": 1e9 * peak},
        1e9 * bandwidth,
        None,
        launch,
        kinds=kinds,
        has_device=device != "cpu",
        phases=_phases(device) if device != "cpu" else {},
        title=f"{_name(device)}, one thread" if device == "cpu" else _name(device),
        source=dict.fromkeys(NUMBERS if device == "cpu" else (*NUMBERS, "phases_us"), _said()),
    )


def _curve(rates: list[tuple[float, float]], best: float) -> tuple[tuple[float, float], ...]:
    """Return (size, efficiency) in rising order; measurements of similar sizes are averaged."""
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
    """Return the time of a piece of work: the least mean of several rounds."""
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
    """Return a clock, and a function that waits for the device."""
    import torch

    if device == "cpu":
        return time.thread_time, lambda: None
    return time.perf_counter, torch.cuda.synchronize


def _launch(device: str) -> float:
    """Return the time of a small training step divided by the number of its operations, in seconds.

    The operations are counted on the CPU, because the ranks of an emulated cluster compute on the
    CPU. On the CPU an optimizer needs several operations for each parameter; on a GPU it needs only
    a few for all parameters.
    """
    import torch

    from ddpkit.rank.emulation.counted import OperationCount

    with torch.device("cpu"):
        counted = _SmallStep()
        counted.step()
        operations = OperationCount()
        with operations:
            counted.step()
    return _seconds(_SmallStep().step, device) / operations.number


def _phases(device: str) -> dict[str, float]:
    """Return the host's ns of an operation in each phase of a small training step.

    The time of a phase begins on an idle device, and ends with the last launch. The least of many
    measurements counts.
    """
    from ddpkit.rank.emulation.counted import OperationCount

    clock, finish = _clock(device)
    small, found = _SmallStep(), dict[str, float]()
    small.step()
    for phase in PHASES:
        operations, took = OperationCount(), list[float]()
        for counts in (True, *[False] * PHASE_ROUNDS):
            for each in PHASES:
                finish()
                if each == phase and counts:
                    with operations:
                        small.run(each)
                    continue
                begin = clock()
                small.run(each)
                if each == phase:
                    took.append(clock() - begin)
        found[phase] = 1e9 * min(took) / max(1, operations.number)
    return found


class _SmallStep:
    """A training step with next to nothing to compute."""

    def __init__(self) -> None:
        import torch
        from torch import nn

        layers = [nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()) for _ in range(16)]
        self._net, self._x = nn.Sequential(*layers), torch.ones(8, 8)
        self._y = torch.zeros(8, dtype=torch.long)
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=0.001, momentum=0.9)
        self._loss: Any = None

    def run(self, phase: str) -> None:
        """Run one phase of the step, one of `PHASES`."""
        from torch.nn.functional import cross_entropy

        if phase == "forward":
            self._loss = cross_entropy(self._net(self._x), self._y)
        elif phase == "backward":
            self._loss.backward()
        else:
            self._optimizer.step()
            self._optimizer.zero_grad()

    def step(self) -> None:
        """Run all phases of the step."""
        for phase in PHASES:
            self.run(phase)


def _in_turns(run: Callable[..., Any], *shapes: tuple[int, ...]) -> Callable[[], Any]:
    """Return a function that calls `run` in turn with several sets of tensors of these shapes."""
    import torch

    nbytes = sum(4 * math.prod(shape) for shape in shapes)
    count = max(1, min(MOST_SETS, WORKING_SET // nbytes))
    turns = itertools.cycle([[torch.ones(shape) for shape in shapes] for _ in range(count)])
    return lambda: run(*next(turns))


def _products() -> Iterator[Work]:
    import torch

    for rows, inner, columns in PRODUCTS:
        flops, a, b, g = (
            2.0 * rows * inner * columns,
            (rows, inner),
            (columns, inner),
            (rows, columns),
        )
        yield flops, _in_turns(lambda a, b, c: torch.addmm(c, a, b.t()), a, b, (columns,))
        yield flops, _in_turns(lambda g, a: torch.mm(g.t(), a), g, a)
        yield flops, _in_turns(torch.mm, g, b)


def _convolutions() -> Iterator[Work]:
    import torch

    def backward(pad: int, g: Any, x: Any, w: Any) -> Any:
        return torch.ops.aten.convolution_backward(
            g, x, w, None, [1, 1], [pad, pad], [1, 1], False, [0, 0], 1, [True, True, False]
        )

    for batch, channels, side, kernel in CONVOLUTIONS:
        x, w = (batch, channels, side, side), (channels, channels, kernel, kernel)
        flops, pad = 2.0 * kernel**2 * batch * (channels * side) ** 2, kernel // 2
        yield flops, _in_turns(partial(torch.conv2d, padding=pad), x, w)
        yield 2 * flops, _in_turns(partial(backward, pad), x, x, w)


def _attentions() -> Iterator[Work]:
    """Yield attention on adjacent heads, as a projection makes them."""
    import torch

    def forward(q: Any, k: Any, v: Any) -> Any:
        heads = [each.transpose(1, 2) for each in (q, k, v)]
        return torch.nn.functional.scaled_dot_product_attention(*heads)

    for batch, heads, length, width in ATTENTIONS:
        shape, flops = (batch, length, heads, width), 4.0 * batch * heads * length**2 * width
        yield flops, _in_turns(forward, shape, shape, shape)
        q, k, v = (torch.ones(shape).requires_grad_() for _ in range(3))
        out = forward(q, k, v)
        again = partial(torch.autograd.grad, out, (q, k, v), retain_graph=True)
        yield 2.5 * flops, _in_turns(lambda g, again=again: again(g.transpose(1, 2)), shape)


def _elementwise() -> Iterator[Work]:
    import torch

    for elements in ELEMENTS:
        yield 12.0 * elements, _in_turns(torch.add, (elements,), (elements,))


def _copies() -> Iterator[Work]:
    import torch

    for elements in ELEMENTS:
        yield 8.0 * elements, _in_turns(torch.Tensor.copy_, (elements,), (elements,))


def _reductions() -> Iterator[Work]:
    """Yield sums over rows, softmax, and normalizations of rows and channels, with backwards."""
    import torch

    aten = torch.ops.aten
    for rows, columns in REDUCTIONS:
        x, row, column, size = (rows, columns), (columns,), (rows, 1), 4.0 * rows * columns
        image = (max(1, rows // 64), columns, 8, 8)  # the image has as many numbers as x
        pixels = 4.0 * math.prod(image)
        yield size, _in_turns(partial(torch.sum, dim=0), x)
        yield 2 * size, _in_turns(partial(torch.softmax, dim=1), x)
        yield 3 * size, _in_turns(lambda g, y: aten._softmax_backward_data(g, y, 1, g.dtype), x, x)
        yield (
            2 * size,
            _in_turns(lambda x, w, b: aten.native_layer_norm(x, w.shape, w, b, 1e-5), x, row, row),
        )
        yield (
            3 * size,
            _in_turns(
                lambda g, x, m, r, w: aten.native_layer_norm_backward(
                    g, x, w.shape, m, r, w, w, [True, True, True]
                ),
                *(x, x, column, column, row),
            ),
        )
        yield (
            2 * pixels,
            _in_turns(
                lambda x, w: aten.native_batch_norm(x, w, w, w, w, True, 0.1, 1e-5), image, row
            ),
        )
        yield (
            3 * pixels,
            _in_turns(
                lambda g, x, w: aten.native_batch_norm_backward(
                    g, x, w, w, w, w, w, True, 1e-5, [True, True, True]
                ),
                *(image, image, row),
            ),
        )


def _transposes() -> Iterator[Work]:
    """Yield copies and sums of tensors in another order: heads, images, transposed matrices."""
    for n, length in TRANSPOSES:
        shape, size = (n, n, length), 4.0 * n * n * length
        yield 2 * size, _in_turns(lambda x: x.transpose(0, 1).contiguous(), shape)
        yield 3 * size, _in_turns(lambda x, y: x + y.transpose(0, 1), shape, shape)


def _said() -> str:
    import torch

    return f"measured by ddpkit on {date.today()}, torch {torch.__version__}"


def _name(device: str) -> str:
    """Return the device in words."""
    import torch

    if device != "cpu":
        return str(torch.cuda.get_device_name(device))
    return platform.processor() or platform.machine()
