"""Training steps in turns on the same ranks, for `benchmarks.ddp`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

WARM = 4  # steps: buckets are rebuilt after the first
Windows = dict[str, list[tuple[int, int]]]  # variant -> the (start, end) of its steps, in ns


def in_turns(model: str, batch: int, caps: Mapping[str, float], steps: int) -> Windows:
    """Take steps of each variant in turns, on a rank; return the times of the steps.

    A variant is "alone" (no communication), "naive" (an all_reduce for each parameter, after
    backward), "torch", or "ours", with or without a further word, as in "ours 0.5".

    caps  variant -> its `bucket_cap_mb`
    """
    import torch
    import torch.distributed as dist

    torch.manual_seed(0)
    make, rows = MODELS[model]
    x, y = rows(batch)
    run = {name: _variant(name.split()[0], make(), x, y, cap) for name, cap in caps.items()}
    windows: Windows = {name: [] for name in run}
    for step in range(WARM + steps):
        for name in _turned(list(run), step):
            _end_of_work()
            dist.barrier()
            start = time.perf_counter_ns()
            run[name]()
            _end_of_work()
            if step >= WARM:
                windows[name].append((start, time.perf_counter_ns()))
    return windows


def _end_of_work() -> None:
    """Wait for the GPU, which executes work later than Python launches the work."""
    import torch

    if torch.cuda.is_initialized():
        torch.cuda.synchronize()


def _turned(names: list[str], by: int) -> list[str]:
    return [*names[by % len(names) :], *names[: by % len(names)]]


def _variant(kind: str, model: Any, x: Any, y: Any, cap: float) -> Callable[[], None]:
    """Return a whole step: zero_grad, forward, backward with its communication, optimizer."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from ddpkit import answers

    n = dist.get_world_size()
    if kind == "torch":
        wrapped = DistributedDataParallel(model, bucket_cap_mb=cap, gradient_as_bucket_view=True)
    elif kind == "ours":
        wrapped = answers.get("DistributedDataParallel")(model, bucket_cap_mb=cap)
    else:
        wrapped = model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(wrapped(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        if kind == "naive":
            for p in model.parameters():
                dist.all_reduce(p.grad.div_(n))
        optimizer.step()

    return step


def wide() -> Any:
    from torch import nn

    hidden = [layer for _ in range(6) for layer in (nn.Linear(384, 384), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(384, 10))


def conv() -> Any:
    from torch import nn

    layers: list[nn.Module] = []
    for before, after in ((3, 64), (64, 64), (64, 128), (128, 128), (128, 128), (128, 128)):
        stride = 2 if before != after else 1
        layers += [nn.Conv2d(before, after, 3, stride, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10))


def transformer() -> Any:
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(256, 128)
            layer = nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
            self.head = nn.Linear(128, 10)

        def forward(self, tokens: Any) -> Any:
            return self.head(self.layers(self.embed(tokens)).mean(1))

    return Classifier()


def device(layers: int, width: int, forward_s: float, backward_s: float) -> Any:
    """Return layers that sleep in place of computing, so the cores are free, as beside a GPU."""
    import torch
    from torch import nn

    class Compute(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: Any) -> Any:  # type: ignore[override]
            time.sleep(forward_s)
            return x.clone()

        @staticmethod
        def backward(_: Any, gradient: Any) -> Any:  # type: ignore[override]
            time.sleep(backward_s)
            return gradient

    class Layer(nn.Linear):
        def forward(self, x: Any) -> Any:
            return Compute.apply(super().forward(x))  # type: ignore[no-untyped-call]

    return nn.Sequential(*(Layer(width, width) for _ in range(layers)))


def _rows(shape: tuple[int, ...], whole: bool = False) -> Callable[[int], tuple[Any, Any]]:
    def make(batch: int) -> tuple[Any, Any]:
        import torch

        x = torch.randint(256, (batch, *shape)) if whole else torch.randn(batch, *shape)
        return x, torch.randint(10, (batch,))

    return make


MODELS: dict[str, tuple[Callable[[], Any], Callable[[int], tuple[Any, Any]]]] = {
    "wide MLP": (wide, _rows((384,))),
    "conv net": (conv, _rows((3, 16, 16))),
    "transformer": (transformer, _rows((32,), whole=True)),
    "emulated device": (partial(device, 8, 384, 0.005, 0.010), _rows((384,))),
    "balanced device": (partial(device, 16, 400, 0.0005, 0.005), _rows((400,))),
}
