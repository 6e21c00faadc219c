"""Lab 18: modules that keep tensors for their backward, and wrong counts of the kept bytes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.guard import Answer


class Wide(nn.Module):
    """An MLP with a residual path."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(width, hidden), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Any:
        return x + self.narrow(nn.functional.dropout(nn.functional.gelu(self.wide(x)), 0.1))


class TwoTanh(nn.Module):
    """A product y · tanh(y) with y = tanh(x): tanh and the product save the same storages."""

    def forward(self, x: Tensor) -> Any:
        y = x.tanh()
        return y * y.tanh()


class Slices(nn.Module):
    """A product of two views of the input, in which one view is saved twice."""

    def forward(self, x: Tensor) -> Any:
        third = len(x) // 3
        one, other = x[:third], x[third : 2 * third]
        return one * other * one


class Most(nn.Module):
    """A module with dropout, which saves factors, and a maximum, which saves 8-byte indices."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Any:
        hidden: Any = nn.functional.dropout(self.first(x).relu(), 0.25)
        return hidden.max(dim=0).values.square()


class Gated(nn.Module):
    """A product of two views of a layer's output: both views are saved."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.both = nn.Linear(width, 2 * width)

    def forward(self, x: Tensor) -> Any:
        one, other = self.both(x).chunk(2, dim=-1)
        return one * other


class Flat(nn.Module):
    """Two parameters that are views of one flat tensor, after its first 16 elements.

    The parameters of a sharded model lie in memory like this.
    """

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        flat = torch.full((16 + 2 * width * hidden,), 0.1)
        first, second = flat[16:].view(2, width, hidden).unbind()
        self.first, self.second = nn.Parameter(first), nn.Parameter(second)

    def forward(self, x: Tensor) -> Any:
        return (x @ self.first).tanh() @ self.second.T


class Mixed(nn.Module):
    """A module with two inputs, in bfloat16."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, width, dtype=torch.bfloat16)

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return self.layer(x).exp() * y


class BufferedProducts(nn.Module):
    """Eight products with a buffer, which is saved, and sines that save their inputs.

    The inputs have equal sizes, over 200 kB. If an answer does not hold a saved tensor, the address
    of the tensor comes again.
    """

    factors: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("factors", torch.full((width,), 0.9))

    def forward(self, x: Tensor) -> Any:
        for _ in range(8):
            x = (x * self.factors).sin()
        return x


def drawn(rng: random.Random) -> list[tuple[str, nn.Module, tuple[Tensor, ...]]]:
    """Return a name, a module and inputs for each case."""

    def rows() -> int:
        return rng.randrange(5, 60)

    def width() -> int:
        return rng.randrange(3, 40)

    def x(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(*shape, dtype=dtype).add(0.5).requires_grad_()

    w, v, u, t = width(), width(), width(), width()
    r = rows()
    return [
        ("a block of an MLP", Wide(w, rng.randrange(50, 300)), (x(rows(), w),)),
        ("a tensor that two operations save", TwoTanh(), (x(rows(), width()),)),
        ("two slices", Slices(), (x(3 * rows() + 1, width()),)),
        ("dropout and a maximum", Most(v), (x(rows(), v),)),
        ("parameters in one storage", Flat(t, rng.randrange(50, 300)), (x(rows(), t),)),
        ("two halves of an output", Gated(u), (x(rows(), u),)),
        (
            "two inputs in bfloat16",
            Mixed(t),
            (x(r, t, dtype=torch.bfloat16), x(r, t, dtype=torch.bfloat16)),
        ),
        ("eight products with a buffer", BufferedProducts(100), (x(rng.randrange(500, 900), 100),)),
        ("nothing to keep", nn.Identity(), (x(rows(), width()),)),
    ]


def asked(answer: Answer, module: Any, inputs: tuple[Any, ...]) -> Observed:
    """Return the answer's count of bytes, and True if the answer computed no gradient."""
    with torch.random.fork_rng(devices=[]):
        found = answer(module, *inputs)
    gradients = [x.grad for x in (*module.parameters(), *inputs)]
    return {"bytes": found, "forward alone": all(each is None for each in gradients)}


def models(module: nn.Module, inputs: tuple[Tensor, ...]) -> Mapping[str, object]:
    """Return the right count of bytes, and the counts that common mistakes give."""
    own = {p.untyped_storage().data_ptr() for p in module.parameters()}
    saved: list[Tensor] = []
    outputs: list[int] = []

    def note(tensor: Tensor) -> object:
        saved.append(tensor)  # keeps the storage alive, so that no address comes twice
        return tensor

    hooks = [
        part.register_forward_hook(lambda _, __, made: outputs.append(made.nbytes))
        for part in module.modules()
    ]
    with torch.random.fork_rng(devices=[]), saved_tensors_hooks(note, lambda tensor: tensor):
        module(*inputs)
    for hook in hooks:
        hook.remove()
    inner = [t for t in saved if t.untyped_storage().data_ptr() not in own]
    by_storage = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in inner}
    all_storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in saved}
    no_classes = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for t in saved
        if not isinstance(t, nn.Parameter)
    }
    first_views: dict[int, int] = {}
    for t in inner:
        first_views.setdefault(t.untyped_storage().data_ptr(), t.nbytes)
    last_views = {t.untyped_storage().data_ptr(): t.nbytes for t in inner}
    return {
        "right": sum(by_storage.values()),
        "every": [sum(t.untyped_storage().nbytes() for t in inner), sum(t.nbytes for t in inner)],
        "views": [
            sum(first_views.values()),
            sum(last_views.values()),
            sum({t.data_ptr(): t.nbytes for t in inner}.values()),
        ],
        "apart": sum({t.data_ptr(): t.untyped_storage().nbytes() for t in inner}.values()),
        "with_own": [sum(all_storages.values()), sum(no_classes.values())],
        "outputs": [sum(outputs), sum(outputs[:-1])],
        "fours": sum(
            4 * (t.untyped_storage().nbytes() // t.itemsize)
            for t in {t.untyped_storage().data_ptr(): t for t in inner}.values()
        ),
    }
