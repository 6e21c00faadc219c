"""Lab 10: training with unequal batches, on ranks and in one process.

The batches of the ranks have different lengths, and the ranks have different numbers of batches.
The one process makes each step from all images that the ranks have in the step. With the rule of a
common mistake, the process computes the models that this mistake gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ddpkit.checks.shared.training import LR, Part, model, vector
from ddpkit.exercises.ranks import Did

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ddpkit.exercises.guard import Answer

SMALL = 16  # bytes: enough to exchange the existence and the length of each batch
Lengths = Sequence[Sequence[int]]  # [rank][batch]: images

ABOUT = (  # title, images of each batch by rank
    ("2 ranks, shares of 4 and 1", ((4, 4), (1, 1))),
    ("3 ranks, 3, 1 and 2 batches", ((3, 2, 2), (4,), (1, 3))),
    ("2 ranks, an empty batch", ((3, 0, 2), (2, 3, 1))),
    ("3 ranks, one has none", ((2, 3), (), (4, 1))),
    ("2 ranks, a step without images", ((3, 0, 2), (2, 0, 1))),
)


# On ranks


def steps(answer: Answer, net: Any, mine: Sequence[Part]) -> Any:
    """Run on a rank; return the answer's count of steps, and the parameters over time.

    The parameters are recorded each time the answer reads a batch, and at the end, as one tensor of
    shape (1 + batches, parameters).
    """
    import torch

    seen = []

    def batches() -> Iterator[Part]:
        for x, y in mine:
            seen.append(vector(net))
            yield x, y

    taken = answer(net, batches(), LR)
    return taken, torch.stack([*seen, vector(net)])


def exchanged(did: Did) -> list[tuple[int, int]]:
    """Return, for each rank, the number of small collectives, and the bytes of the large ones."""
    by_rank = []
    for rank in did.trace.ranks:
        sizes = [one.bytes for one in did.trace.of(rank) if one.is_comm and one.bytes]
        few = [size for size in sizes if size <= SMALL]
        by_rank.append((len(few), sum(sizes) - sum(few)))
    return by_rank


# In one process


@dataclass(frozen=True)
class StepSums:
    """The gradients of all ranks in a step, each summed over the rank's images.

    None stands for a rank without a batch.
    """

    sums: list[Any]
    images: list[int]  # the number of images of each rank
    before: Tensor  # the averaged gradient of the previous step

    @property
    def n(self) -> int:
        return len(self.sums)

    @property
    def means(self) -> list[Any]:
        """The mean gradients of the ranks that have images."""
        pairs = zip(self.sums, self.images, strict=True)
        return [total / images for total, images in pairs if images]


Rule = Callable[[StepSums], "Tensor"]  # the gradient of a step


def whole(step: StepSums) -> Any:
    """Return the mean gradient over all images; zeros if there is no image."""
    return sum(each for each in step.sums if each is not None) / max(1, sum(step.images))


@dataclass(frozen=True)
class Unequal:
    """The batches of all ranks, and the training of one process on them."""

    lengths: Lengths
    seed: int

    @property
    def n(self) -> int:
        """World size."""
        return len(self.lengths)

    def model(self) -> Any:
        """Return the model with which all ranks begin."""
        return model(self.seed)

    @property
    def most(self) -> int:
        """The number of steps, which is the largest number of batches of a rank."""
        return max(map(len, self.lengths))

    @property
    def empty(self) -> int:
        """The number of steps in which no rank has an image, so gradients need not be sent."""
        return sum(not any(lengths) for lengths in zip_longest(*self.lengths, fillvalue=0))

    @property
    def sizes(self) -> int:
        """The bytes of the gradients of all parameters."""
        return 8 * len(vector(self.model()))

    def by_rank(self) -> list[list[Part]]:
        """Return the batches of each rank."""
        import torch

        generator = torch.Generator().manual_seed(self.seed)

        def drawn(length: int) -> Part:
            x = torch.randint(-9, 10, (length, 3), generator=generator).double() / 4
            return x, torch.randint(3, (length,), generator=generator)

        return [[drawn(length) for length in lengths] for lengths in self.lengths]

    def trained(self, rule: Rule = whole) -> Any:
        """Return the model after each step of training by this rule: (steps, parameters)."""
        import torch

        net, parts, after = self.model(), self.by_rank(), []
        averaged = torch.zeros_like(vector(net))
        for number in range(self.most):
            of_ranks = [mine[number] if number < len(mine) else None for mine in parts]
            sums = [None if part is None else _gradient(net, part) for part in of_ranks]
            images = [0 if part is None else len(part[1]) for part in of_ranks]
            averaged = rule(StepSums(sums, images, averaged))
            torch.nn.utils.vector_to_parameters(vector(net) - LR * averaged, net.parameters())
            after.append(vector(net))
        return torch.stack(after)

    def as_seen(self, after: Tensor) -> list[object]:
        """Return each rank's models at the times when it reads a batch, and the final model.

        A rank reads its k-th batch after k steps.
        """
        import torch

        whole = torch.cat([vector(self.model())[None], after])
        return [torch.cat([whole[: len(mine)], whole[-1:]]) for mine in self.lengths]


def _gradient(net: nn.Module, part: Part) -> Tensor:
    import torch

    x, y = part
    loss = torch.nn.functional.cross_entropy(net(x), y, reduction="sum")
    return torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))])
