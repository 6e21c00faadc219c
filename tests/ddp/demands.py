"""Demands of other courses' tests, and of torch's own tests, on a DistributedDataParallel.

Each demand runs on a rank with a class that wraps models, and returns tensors that must be equal
for torch's class and ours. The demands follow Stanford CS336 assignment 2 (tests/test_ddp*.py) and
PyTorch's test_c10d_common.py, test_c10d_gloo.py and distributed_test.py; no code is taken from
them.
"""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.ddp.models import Wrap

Demand = Callable[[Wrap], list[torch.Tensor]]
DEMANDS: dict[str, Demand] = {}


def demand(name: str) -> Callable[[Demand], Demand]:
    def register(found: Demand) -> Demand:
        DEMANDS[name] = found
        return found

    return register


def rows(step: int = 0, width: int = 10, count: int = 4) -> torch.Tensor:
    """Return a rank's own inputs of a step."""
    generator = torch.Generator().manual_seed(97 * step + dist.get_rank())
    return torch.randn(count, width, generator=generator)


def steps(
    wrap: Wrap,
    module: nn.Module,
    loss_of: Callable[[Any, int], torch.Tensor],
    count: int = 3,
    **options: Any,
) -> list[torch.Tensor]:
    """Run some steps of SGD; return the gradients of each step, and the parameters at the end."""
    ddp = wrap(module, **options)
    optimizer, found = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.5), []
    for step in range(count):
        optimizer.zero_grad()
        loss_of(ddp, step).backward()
        found += [p.grad.clone() for p in ddp.parameters() if p.grad is not None]
        optimizer.step()
    return found + [p.detach().clone() for p in ddp.parameters()]


def squared(ddp: Any, step: int) -> torch.Tensor:
    return ddp(rows(step)).square().mean()


def tensors_in(value: Any) -> Iterable[torch.Tensor]:
    return filter(torch.is_tensor, torch.utils._pytree.tree_leaves(value))


class Frozen(nn.Module):
    """A bias and a parameter that need no gradient, and a parameter of int64."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(10, 10, bias=False), nn.Linear(10, 50)
        self.second.bias.requires_grad_(False)
        self.last = nn.Linear(50, 5, bias=False)
        self.fixed = nn.Parameter(torch.tensor([2.0, 2.0]), requires_grad=False)
        self.counts = nn.Parameter(torch.tensor([2, 2]), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.second(self.first(x).relu()).relu())


class TiedInside(nn.Module):
    """A network in which the second layer is also the fourth: one weight, used twice."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [(10, 10), (10, 50), (50, 10), (10, 50), (50, 5)]
        self.layers = nn.ModuleList(nn.Linear(*size, bias=False) for size in sizes)
        self.layers[3].weight = self.layers[1].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).tanh()
        return x


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 5))


for _model, _cap in itertools.product((Frozen, TiedInside), (0.0016, 0.0001, 0.01)):

    @demand(f"{_model.__name__}, cap {_cap} MB")
    def _(wrap: Wrap, model: Any = _model, cap: float = _cap) -> list[torch.Tensor]:
        return steps(wrap, copy.deepcopy(model()), squared, count=5, bucket_cap_mb=cap)


# Inputs and outputs


class Outputs(nn.Module):
    """Two heads, returned as a dict with a list and objects that are no tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.one, self.two = nn.Linear(10, 8), nn.Linear(8, 2), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0, pair: Any = None) -> dict[str, Any]:
        x = self.body(x).tanh() * scale
        if pair is not None:
            x = x + pair.a[:, :8] * pair.b[:, :8]
        return {"one": self.one(x), "more": [self.two(x), "text"], "fixed": x.detach(), "n": 3}


Pair = namedtuple("Pair", "a b")


@demand("nested outputs, a namedtuple and keywords as inputs")
def nested(wrap: Wrap) -> list[torch.Tensor]:
    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        out = ddp(rows(step), scale=0.5, pair=Pair(rows(step + 10), rows(step + 20)))
        return sum((t.square().mean() for t in tensors_in(out)), torch.zeros(()))

    return steps(wrap, Outputs(), loss_of)


@demand("a head whose output is not used")
def unused_head(wrap: Wrap) -> list[torch.Tensor]:
    """A parameter is unused only if forward does not compute with it.

    A head that the loss omits is still in the graph of the output, so it counts as used: torch
    would wait for its gradient.
    """

    class Half(Outputs):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:  # type: ignore[override]
            return (self.one(self.body(x)),)

    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        return ddp(rows(step))[0].square().mean()

    return steps(wrap, Half(), loss_of, find_unused_parameters=True)


@demand("forwards without a backward between the steps")
def ignored_outputs(wrap: Wrap) -> list[torch.Tensor]:
    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        for other in range(3):
            ddp(rows(100 + other))
        return squared(ddp, step)

    return steps(wrap, small(), loss_of)


@demand("evaluation between the steps, with and without no_grad")
def evaluation(wrap: Wrap) -> list[torch.Tensor]:
    """Each rank has running means of its own.

    Under no_grad, torch's DDP would send those of rank 0.
    """
    seen = []

    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        ddp.eval()
        with torch.no_grad():
            seen.append(ddp(rows(step + 50)))
        seen.append(ddp(rows(step + 60)).detach())
        ddp.train()
        return squared(ddp, step)

    net = nn.Sequential(nn.Linear(10, 8), nn.BatchNorm1d(8), nn.Dropout(0.0), nn.Linear(8, 2))
    return steps(wrap, net, loss_of, broadcast_buffers=False) + seen


@demand("a leaf that needs a gradient goes in")
def input_gradient(wrap: Wrap) -> list[torch.Tensor]:
    inputs = [rows(step).requires_grad_() for step in range(3)]
    found = steps(wrap, small(), lambda ddp, step: ddp(inputs[step]).square().mean())
    return found + [x.grad for x in inputs if x.grad is not None]


# Parameters of other kinds


@demand("a scalar, no elements, complex, and half beside double")
def kinds(wrap: Wrap) -> list[torch.Tensor]:
    class Kinds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(1.5))
            self.none = nn.Linear(10, 0)
            self.complex = nn.Parameter(torch.randn(10, 3, dtype=torch.complex64))
            self.brain = nn.Linear(10, 4).bfloat16()
            self.exact = nn.Linear(10, 4).double()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            parts = [
                x * self.scale,
                self.none(x),
                (x + 0j).matmul(self.complex).abs(),
                self.brain(x.bfloat16()),
                self.exact(x.double()),
            ]
            return torch.stack([part.sum().float() for part in parts])

    return steps(wrap, Kinds(), squared)


@demand("channels last")
def channels_last(wrap: Wrap) -> list[torch.Tensor]:
    net = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 2), nn.Flatten())

    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        x = rows(step, width=2 * 36).view(4, 2, 6, 6).to(memory_format=torch.channels_last)
        return ddp(x).square().mean()

    return steps(wrap, net.to(memory_format=torch.channels_last), loss_of)


@demand("buffers that are put in anew, and a mean that only rank 0 changes")
def buffers(wrap: Wrap) -> list[torch.Tensor]:
    net = small()
    net.register_buffer("offset", torch.zeros(5))
    net.register_buffer("count", torch.tensor(0), persistent=False)
    seen = []

    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        if dist.get_rank() == 0:
            ddp.module.offset = ddp.module.offset + 1
            ddp.module.count += 2
        loss = (ddp(rows(step)) + ddp.module.offset).square().mean()
        seen.extend([ddp.module.offset.clone(), ddp.module.count.clone()])
        return loss

    return steps(wrap, net, loss_of) + seen


# Ways to call backward


@demand("autocast to bfloat16")
def autocast(wrap: Wrap) -> list[torch.Tensor]:
    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return ddp(rows(step)).float().square().mean()

    return steps(wrap, small(), loss_of)


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.body, self.last = nn.Linear(10, 10), small(), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = checkpoint(self.body, self.first(x), use_reentrant=False)
        return self.last(x)


@demand("a part under activation checkpointing")
def checkpointing(wrap: Wrap) -> list[torch.Tensor]:
    return steps(wrap, Checkpointed(), squared)


@demand("a recurrent net")
def recurrent(wrap: Wrap) -> list[torch.Tensor]:
    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        return ddp(rows(step, count=12).view(2, 6, 10))[0].square().mean()

    return steps(wrap, nn.LSTM(10, 6, num_layers=2, batch_first=True), loss_of)


@demand("a penalty on the input's gradient")
def penalty(wrap: Wrap) -> list[torch.Tensor]:
    def loss_of(ddp: Any, step: int) -> torch.Tensor:
        x = rows(step).requires_grad_()
        loss = squared(lambda _: ddp(x), step)
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        return loss + gradient.square().sum()

    return steps(wrap, small(), loss_of)


@demand("the same graph twice")
def same_graph_twice(wrap: Wrap) -> list[torch.Tensor]:
    """The second backward belongs to no forward: it adds this rank's own gradients."""
    ddp = wrap(small())
    loss = squared(ddp, 0)
    loss.backward(retain_graph=True)
    loss.backward()
    return [p.grad for p in ddp.parameters()]


@demand("other layers on each rank, first in no_sync")
def conditional(wrap: Wrap) -> list[torch.Tensor]:
    layers = nn.ModuleList(nn.Linear(10, 1) for _ in range(4))

    class Conditional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor, again: bool) -> torch.Tensor:
            return self.layers[2 * (dist.get_rank() > 0) + again](x).sum()

    ddp = wrap(Conditional(), find_unused_parameters=True)
    with ddp.no_sync():
        ddp(rows(0), False).backward()
    ddp(rows(1), True).backward()
    return [torch.empty(0) if p.grad is None else p.grad for p in ddp.parameters()]


@demand("two optimizers with groups of their own")
def groups(wrap: Wrap) -> list[torch.Tensor]:
    ddp = wrap(small())
    weights = [p for p in ddp.parameters() if p.dim() > 1]
    biases = [{"params": [p], "lr": 0.01 * p.numel()} for p in ddp.parameters() if p.dim() == 1]
    optimizers = [torch.optim.AdamW(weights, lr=0.01), torch.optim.SGD(biases)]
    for step in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        squared(ddp, step).backward()
        for optimizer in optimizers:
            optimizer.step()
    return list(ddp.parameters())


# Copies


@demand("copies, deep and pickled, train as the first does")
def deep_copy(wrap: Wrap) -> list[torch.Tensor]:
    ddp = wrap(small())
    squared(ddp, 0).backward()
    copies, found = [copy.deepcopy(ddp), pickle.loads(pickle.dumps(ddp))], []
    for each in (*copies, ddp, *copies):
        each.zero_grad()
        squared(each, 1).backward()
        found += [p.grad.clone() for p in each.parameters()]
    return found


@demand("saved, and loaded into another")
def state(wrap: Wrap) -> list[torch.Tensor]:
    file = io.BytesIO()
    torch.save(wrap(small()).state_dict(), file)
    file.seek(0)
    return steps(lambda module, **options: _loaded(wrap(module, **options), file), small(), squared)


def _loaded(ddp: Any, file: io.BytesIO) -> Any:
    ddp.load_state_dict(torch.load(file))
    return ddp
