"""A small classification in float64: trained by an answer on ranks, and by one process.

The one process sees the whole batches. Usual mistakes are trained too, to be known by their values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ddpkit.errors import Deadlock, Mismatch
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.ranks import call
from ddpkit.protocol.per_rank import PerRank

Answer = Callable[..., Any]
Part = tuple[Any, Any]  # images (n, 3) float64, labels (n,) int64
Gradient = Callable[[Any, list[Part]], list[Any]]  # of a model, from all ranks' parts of a batch

LR = 0.5


def model(seed: int) -> Any:
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def _vector(net: Any) -> Any:
    import torch

    return torch.cat([p.detach().flatten() for p in net.parameters()])


Lengths = Sequence[Sequence[int]]  # [step][rank]: of the parts


def batches(lengths: Lengths, seed: int) -> list[list[Part]]:
    """The parts by step and rank."""
    import torch

    generator = torch.Generator().manual_seed(seed)

    def part(length: int) -> Part:
        x = torch.randint(-9, 10, (length, 3), generator=generator).double() / 4
        return x, torch.randint(3, (length,), generator=generator)

    return [[part(length) for length in by_rank] for by_rank in lengths]


def trained(answer: Answer, lengths: Lengths, momentum: float, seed: int) -> Observed:
    """The parameters of all ranks after each step, (ranks, steps, parameters)."""
    import torch

    by_rank = [list(parts) for parts in zip(*batches(lengths, seed), strict=True)]
    mine = PerRank(by_rank), momentum, seed
    did = call(partial(_train, answer), *mine, world_size=len(by_rank))
    steps = [len(each) - 1 for each in did.returned]
    fewest = min(steps)
    after = torch.stack([each[: fewest + 1] for each in did.returned])
    return {
        "steps": fewest,
        "start": "alike" if bool((after[:, 0] == after[0, 0]).all()) else "different",
        "after each": after[:, 1:],
        "ranks": "alike" if bool((after == after[0]).all()) else "different",
    }


@dataclass(frozen=True)
class Training:
    """What one process makes of the same parts."""

    lengths: Lengths
    momentum: float
    seed: int

    @property
    def world_size(self) -> int:
        return len(self.lengths[0])

    def by_one_process(self) -> Any:
        """What `trained` finds if every rank has what one process has, with the whole batches."""
        return self._trained(_whole)

    def hint(self, seen: Observed) -> str | None:
        if "error" in seen:
            if isinstance(seen["error"], Deadlock | Mismatch):
                return (
                    "A rank with an empty part must take part in the step all the same: the others "
                    "wait for it in each all_reduce."
                )
            return None
        if seen["steps"] != len(self.lengths):
            return "Each part is one step, on all ranks: take them all, one after the other."
        if seen["start"] != "alike":
            return "The ranks start from different models: broadcast_parameters(model) comes first."
        got = seen["after each"]
        kept = (got == _vector(model(self.seed))).flatten(2).all(dim=2)  # by rank and step
        if bool(kept.all()):
            return "No step has changed the model: zero_grad() forgets what backward() has made."
        if bool(kept[:, :-1].all()):
            return "When the next part is asked for, nothing has changed: take a part, make a step."
        for hint, wrong in self.wrong_values():
            if _near(got, wrong):
                return hint
        if seen["ranks"] != "alike":
            return "The ranks make different steps: each takes the same mean, and after averaging."
        return (
            "One process starts from rank 0's model. Its gradient is that of the mean over all "
            "images of this step's batch, and its step that of SGD with momentum."
        )

    def wrong_values(self) -> Iterator[tuple[str, Any]]:
        """Where usual mistakes lead, each with its hint."""
        n = self.world_size
        if self.momentum:
            without = self._trained(_whole, momentum=0.0)
            yield "Momentum has no effect: the optimizer needs it, and must live on.", without
        yield "Old gradients are still in .grad: zero_grad() before backward.", self._piled_up()
        if n > 1:
            for hint, gradient in _WRONG:
                yield hint, self._trained(gradient)
            for weighted in (True, False):
                yield "Each rank goes its own way: average before the step.", self._apart(weighted)

    def _trained(self, gradient: Gradient, momentum: float | None = None) -> Any:
        """(ranks, steps, parameters) if each step follows a `gradient`, the same on all ranks."""
        import torch

        net = model(self.seed)
        momentum = self.momentum if momentum is None else momentum
        optimizer, after = torch.optim.SGD(net.parameters(), LR, momentum), []
        for parts in batches(self.lengths, self.seed):
            for p, g in zip(net.parameters(), gradient(net, parts), strict=True):
                p.grad = g
            optimizer.step()
            after.append(_vector(net))
        return torch.stack(after).expand(self.world_size, -1, -1)

    def _piled_up(self) -> Any:
        """Without zero_grad. An average of equal gradients is they themselves."""
        piled: list[Any] = []

        def gradient(net: Any, parts: list[Part]) -> list[Any]:
            new = _whole(net, parts)
            piled[:] = [a + b for a, b in zip(piled, new, strict=True)] if piled else new
            return [g.clone() for g in piled]

        return self._trained(gradient)

    def _apart(self, weighted: bool) -> Any:
        """Every rank follows the loss of its own part."""
        import torch

        def gradient(rank: int, net: Any, parts: list[Part]) -> list[Any]:
            factor = len(parts) / _images(parts) if weighted else 1
            return _gradient(net, _loss(net, parts[rank], "sum" if weighted else "mean") * factor)

        ways = (partial(gradient, rank) for rank in range(self.world_size))
        return torch.stack([self._trained(way)[0] for way in ways])


def _near(got: Any, wanted: Any) -> bool:
    import torch

    return got.shape == wanted.shape and torch.allclose(got, wanted, rtol=1e-6)


def _train(answer: Answer, parts: list[Part], momentum: float, seed: int) -> Any:
    """On a rank: its parameters before the first step and after each, (1 + steps, parameters)."""
    import torch
    import torch.distributed as dist

    net, seen = model(seed + dist.get_rank()), []

    def batches() -> Iterator[Part]:
        for x, y in parts:
            seen.append(_vector(net))
            yield x, y

    answer(net, batches(), LR, momentum)
    return torch.stack([*seen, _vector(net)])


def _loss(net: Any, part: Part, reduction: str = "mean") -> Any:
    import torch

    x, y = part
    return torch.nn.functional.cross_entropy(net(x), y, reduction=reduction)


def _gradient(net: Any, loss: Any) -> list[Any]:
    import torch

    return list(torch.autograd.grad(loss, list(net.parameters())))


def _images(parts: list[Part]) -> int:
    return sum(len(y) for _, y in parts)


def _sums(net: Any, parts: list[Part]) -> Any:
    return sum(_loss(net, part, "sum") for part in parts)


def _whole(net: Any, parts: list[Part]) -> list[Any]:
    """The gradient of the mean over all images."""
    import torch

    x, y = (torch.cat(columns) for columns in zip(*parts, strict=True))
    return _gradient(net, _loss(net, (x, y)))


_WRONG: list[tuple[str, Gradient]] = [
    (
        "A mean of means gives each image of a short part too much weight.",
        lambda net, parts: _gradient(net, sum(_loss(net, p) for p in parts) / len(parts)),
    ),
    (
        "The loss is a mean already: take the sum over the part, and divide that by the images.",
        lambda net, parts: _gradient(net, sum(_loss(net, p) for p in parts) / _images(parts)),
    ),
    (
        "That is the gradient of the summed loss: divide by the images of the whole batch.",
        lambda net, parts: _gradient(net, _sums(net, parts)),
    ),
    (
        "That is the sum over a batch, divided by the number of ranks: and by its images.",
        lambda net, parts: _gradient(net, _sums(net, parts) / len(parts)),
    ),
    (
        "The step is too small by the number of ranks: averaging divides by it already.",
        lambda net, parts: _gradient(net, _sums(net, parts) / _images(parts) / len(parts)),
    ),
    (
        "The step is too large by the number of ranks: gradients are added up, not averaged.",
        lambda net, parts: _gradient(net, _sums(net, parts) / _images(parts) * len(parts)),
    ),
]
