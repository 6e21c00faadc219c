"""A small classification in float64: an answer trains on ranks, and a single process trains too.

The single process uses whole batches. If the single process trains with the wrong loss of a common
mistake, the result equals the parameters of an answer that makes the mistake. So a hint can name
the mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ddpkit.exercises.ranks import Did, Looks

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

    from ddpkit.exercises.guard import Answer

Lengths = Sequence[Sequence[int]]  # [step][rank]: number of images in a rank's part
Part: TypeAlias = "tuple[Tensor, Tensor]"  # images (n, 3) float64, labels (n,) int64

LR = 0.5


def model(seed: int) -> Module:
    """Return two layers that share a weight.

    An optimizer for each module would change this weight twice in a step.
    """
    import torch
    from torch import nn

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    net[2].weight = net[0].weight
    return net


def vector(net: Module) -> Tensor:
    """Join all parameters into one 1-D tensor."""
    import torch

    return torch.cat([p.detach().flatten() for p in net.parameters()])


# On ranks


def steps(
    answer: Answer, net: Module, mine: Sequence[Part], *momentum: float
) -> tuple[Tensor, list[bool]]:
    """Run on a rank: train, and return the parameters before each step and after the last step.

    The parameters have the shape (1 + steps, parameters). A second list holds, for each step, True
    if the model was in training mode. Without `momentum`, the answer's own default applies.
    """
    import torch

    seen, modes = [], []

    def batches() -> Iterator[Part]:
        for x, y in mine:
            seen.append(vector(net))
            yield x, y
            modes.append(net.training)

    answer(net, batches(), LR, *momentum)
    return torch.stack([*seen, vector(net)]), modes


def _by_rank(did: Did) -> Tensor:
    """Return the parameters of all ranks after `steps`, stacked: (ranks, 1 + steps, parameters).

    If ranks made different numbers of steps, the smallest number counts.
    """
    import torch

    found = [parameters for parameters, _ in did.returned]
    fewest = min(map(len, found))
    return torch.stack([each[:fewest] for each in found])


def _alike(by_rank: Tensor) -> str:
    return "alike" if bool((by_rank == by_rank[0]).all()) else "different"


SEE: Looks = {
    "handed in": "handed_in",
    "steps": lambda did: _by_rank(did).shape[1] - 1,
    "start": lambda did: _alike(_by_rank(did)[:, 0]),
    "after each": lambda did: _by_rank(did)[:, 1:],
    "ranks": lambda did: _alike(_by_rank(did)),
    "for training": lambda did: all(all(modes) for _, modes in did.returned),
}


# In a single process


@dataclass(frozen=True)
class Losses:
    """The cross entropy of each rank's part of a batch, for the computation of one rank's loss."""

    sums: list[Tensor]  # the sum over the images of each rank's part
    images: list[int]  # the number of images in each rank's part
    rank: int  # the rank that computes the loss

    @property
    def n(self) -> int:
        return len(self.images)

    @property
    def means(self) -> list[Tensor]:
        return [total / images for total, images in zip(self.sums, self.images, strict=True)]


Loss = Callable[[Losses], Any]


def whole(losses: Losses) -> Any:
    """Return the mean cross entropy over all images of the batch."""
    return sum(losses.sums) / sum(losses.images)


@dataclass(frozen=True)
class Training:
    """The images of all ranks, and the training of a single process on them."""

    lengths: Lengths
    momentum: float
    seed: int  # the seed of the images; the model of rank r has the seed `seed` + r

    @property
    def n(self) -> int:
        """World size."""
        return len(self.lengths[0])

    def batches(self) -> list[list[Part]]:
        """Return the parts of the batches as [step][rank]."""
        import torch

        generator = torch.Generator().manual_seed(self.seed)

        def drawn(length: int) -> Part:
            x = torch.randint(-9, 10, (length, 3), generator=generator).double() / 4
            return x, torch.randint(3, (length,), generator=generator)

        return [[drawn(length) for length in of_ranks] for of_ranks in self.lengths]

    def by_rank(self) -> list[list[Part]]:
        """Return the parts of the batches as [rank][step]."""
        return [list(of_steps) for of_steps in zip(*self.batches(), strict=True)]

    def trained(
        self, loss: Loss = whole, momentum: float | None = None, zero_grad: bool = True
    ) -> Tensor:
        """Return the parameters after each step with `loss`: (ranks, steps, parameters)."""
        import torch

        momentum = self.momentum if momentum is None else momentum
        return torch.stack([self._trained(loss, momentum, zero_grad, r) for r in range(self.n)])

    def _trained(self, loss: Loss, momentum: float, zero_grad: bool, rank: int) -> Tensor:
        import torch

        net = model(self.seed)
        optimizer, after = torch.optim.SGD(net.parameters(), LR, momentum), []
        for of_ranks in self.batches():
            if zero_grad:
                optimizer.zero_grad()
            sums = [
                torch.nn.functional.cross_entropy(net(x), y, reduction="sum") for x, y in of_ranks
            ]
            loss(Losses(sums, [len(y) for _, y in of_ranks], rank)).backward()
            optimizer.step()
            after.append(vector(net))
        return torch.stack(after)
