"""Training programs with counted compute, made of torch's own parts; each returns its steps' ns.

Tests and the benchmark of machines run the programs again and again, and compare whole traces.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from typing import Any

from ddpkit import Trace

STEPS, ROWS, WIDTH, LAYERS = 4, 16, 32, 8


def digest(trace: Trace) -> str:
    """Return a hash of the content of a trace; the order of the ranks' replies does not count."""
    spans = sorted(map(repr, trace.spans))
    held = (spans, sorted(trace.memory.items()), sorted(trace.facts.items()), trace.world_size)
    return hashlib.sha256(repr(held).encode()).hexdigest()[:16]


def layers(width: int = WIDTH, count: int = LAYERS) -> Any:
    """Return a model of equal layers, the same on all ranks."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(count)))


def train(net: Any, optimizer: Any, steps: int = STEPS) -> list[int]:
    """Train on rows that each rank draws, and return the ns of each step."""
    import torch
    import torch.distributed as dist

    torch.manual_seed(dist.get_rank())
    took = []
    for _ in range(steps):
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        net(torch.randn(ROWS, WIDTH)).square().mean().backward()
        optimizer.step()
        took.append(time.perf_counter_ns() - begin)
    return took


def of_torch(hook: str = "", views: bool = True) -> list[int]:
    """Train with torch's DDP, with one of its communication hooks."""
    import torch
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
    from torch.nn.parallel import DistributedDataParallel

    net = DistributedDataParallel(layers(), bucket_cap_mb=0.01, gradient_as_bucket_view=views)
    if hook == "fp16":
        net.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "PowerSGD":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=1, start_powerSGD_iter=2, min_compression_rate=1
        )
        net.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))


def of_lab_06() -> list[int]:
    """Train with the class that a reader writes in lab 06."""
    import torch

    from ddpkit import answers

    net = answers.get("DistributedDataParallel")(layers(), bucket_cap_mb=0.01)
    return train(net, torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9))


def sharded() -> list[int]:
    """Train with FSDP2, sharded layer by layer."""
    import torch
    from torch.distributed.fsdp import fully_shard

    net = layers()
    for layer in net:
        fully_shard(layer)
    fully_shard(net)
    return train(net, torch.optim.AdamW(net.parameters(), lr=0.01))


def pipelined(schedule: str) -> list[int]:
    """Train with torch's pipeline, a stage on each rank; `schedule` is "GPipe" or "1F1B"."""
    import torch
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

    rank, n = dist.get_rank(), dist.get_world_size()
    net = layers(count=n)
    stage = PipelineStage(net[rank], rank, n, torch.device("cpu"))
    kinds = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
    plan = kinds[schedule](stage, 2 * n, loss_fn=lambda out, _: out.square().mean())
    x = torch.ones(2 * n * ROWS, WIDTH)
    took = []
    for _ in range(STEPS):
        begin = time.perf_counter_ns()
        if rank == 0:
            plan.step(x)
        else:
            plan.step(target=x, losses=[]) if rank == n - 1 else plan.step()
        took.append(time.perf_counter_ns() - begin)
    return took


def served() -> list[int]:
    """Run an asynchronous server on rank 0; return the senders and the times of its messages.

    The work of the workers is unequal. Workers return an empty list.
    """
    import torch
    import torch.distributed as dist

    rank, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    x, weight, came = torch.zeros(WIDTH, WIDTH), torch.eye(WIDTH), []
    if rank == 0:
        for _ in range((n - 1) * 10):
            source = dist.recv(x)
            weight -= 0.01 * x
            came += [source, time.perf_counter_ns()]
            dist.send(weight, source)
        return came
    rows = torch.randn(ROWS * 2**rank, WIDTH)
    for _ in range(10):
        dist.send(rows.T @ (rows @ weight) / len(rows), 0)
        dist.recv(weight, 0)
    return came


PROGRAMS: dict[str, Callable[[], list[int]]] = {
    "torch's DDP": of_torch,
    "torch's DDP, no views": lambda: of_torch(views=False),
    "DDP, fp16 hook": lambda: of_torch("fp16"),
    "DDP, PowerSGD hook": lambda: of_torch("PowerSGD"),
    "lab 06's DDP": of_lab_06,
    "FSDP2": sharded,
    "GPipe": lambda: pipelined("GPipe"),
    "1F1B": lambda: pipelined("1F1B"),
    "server": served,
}


# Models for measured steps


def mlp() -> Any:
    """Return lab 06's model."""
    from torch import nn

    return nn.Sequential(*(nn.Linear(128, 128) for _ in range(48)))


def resnet() -> Any:
    """Return a small residual network for images of 16 × 16: three stages of two blocks."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, before: int, after: int) -> None:
            super().__init__()
            stride = 1 if before == after else 2
            self.one, self.two = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
            self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
            self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
            self.down = nn.Conv2d(before, after, 1, stride, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner = torch.relu(self.one(self.first(x)))
            return torch.relu(self.two(self.second(inner)) + self.down(x))

    widths = [(32, 32), (32, 32), (32, 64), (64, 64), (64, 128), (128, 128)]
    blocks = [Block(before, after) for before, after in widths]
    ends = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)]
    return nn.Sequential(nn.Conv2d(3, 32, 3, 1, 1), *blocks, *ends)


def stepped(name: str) -> Callable[[], None]:
    """Return a training step of one of the benchmark's models."""
    import torch

    from benchmarks._ddp import transformer

    torch.manual_seed(0)
    if name == "ResNet":
        net, x = resnet(), torch.randn(16, 3, 16, 16)
    elif name == "transformer":
        net, x = transformer(), torch.randint(256, (16, 32))
    else:
        net, x = mlp(), torch.randn(256, 128)
    y = torch.randint(10, (len(x),))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def training(name: str, steps: int, clock: Callable[[], int] | None = None) -> list[int]:
    """Return the ns of each step of a model on one thread, by `clock` or by the rank's clock."""
    import torch

    torch.set_num_threads(1)
    now, step, took = clock or time.perf_counter_ns, stepped(name), []
    for _ in range(steps):
        begin = now()
        step()
        took.append(now() - begin)
    return took


def cost_of_counting() -> float:
    """Return the real µs of CPU time for counting one operation, in a step of small operations."""
    from torch.utils._python_dispatch import _disable_current_modes

    step = stepped("lab 06's MLP")
    operations = counted_operations(step)
    counted = min(_cpu_ns(step) for _ in range(10))
    with _disable_current_modes():
        bare = min(_cpu_ns(step) for _ in range(10))
    return (counted - bare) / 1e3 / operations


def _cpu_ns(step: Callable[[], None]) -> int:
    begin = time.thread_time_ns()
    step()
    return time.thread_time_ns() - begin


def counted_operations(step: Callable[[], object]) -> int:
    """Return the number of counted operations in a step."""
    from ddpkit.rank.emulation.counted import OperationCount

    operations = OperationCount()
    with operations:
        step()
    return operations.number


def steps_of_class() -> None:
    """Take a few steps of lab 06's model with lab 06's class, without a pause between steps."""
    import torch

    from ddpkit import answers

    torch.manual_seed(0)
    net, x = answers.get("DistributedDataParallel")(mlp(), bucket_cap_mb=0.5), torch.randn(256, 128)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()


def class_against_torch(kind: str) -> tuple[int, int]:
    """Return the ns and the counted operations of a step of lab 06's model.

    kind  "ours" for lab 06's class, "torch" for torch's DDP
    """
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from ddpkit import answers

    torch.manual_seed(0)
    net, x = mlp(), torch.randn(256, 128)
    if kind == "ours":
        net = answers.get("DistributedDataParallel")(net, bucket_cap_mb=0.5)
    else:
        net = DistributedDataParallel(net, bucket_cap_mb=0.5, gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step() -> int:
        dist.barrier()
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        return time.perf_counter_ns() - begin

    took = [step() for _ in range(STEPS)]
    return took[-1], counted_operations(step)
