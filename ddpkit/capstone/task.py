"""Lab 15's task: two hosts with two ranks each, a language in four shards, the wanted model."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ddpkit.capstone.language import DIALECTS, Language, Letters
from ddpkit.capstone.model import TextModel
from ddpkit.link import LinkSpec
from ddpkit.machine import machines_of

if TYPE_CHECKING:
    from torch import Tensor

RANKS = DIALECTS  # each rank has text of one dialect
LINK: LinkSpec = {"hosts of": 2, "inside": "10 Gbit/s, 20 us", "between": "100 Mbit/s, 200 us"}
MACHINE = "2 GFLOP/s, 8 GB/s, 1 GB, 3 us"
GIVEN_MS = 2290.0  # counted time of the given script, the same in every run
GIVEN_SENT, GIVEN_PEAK = (
    41.6e6,
    3.72e6,
)  # costs of the given script: bytes of all messages, and the largest peak of a rank in bytes
MEMORY = 3e6  # bytes: the largest peak of a rank that still gets all points
STEPS, RATE = 8, 0.01  # steps and learning rate of AdamW
# lengths of the stretches of a step: LONG on the last rank, SHORT on all other ranks
SHORT, LONG = [32] * 8, [64, 32, 32] * 2
HELD_OUT = 64  # stretches of each dialect for the held-out loss
TABLES = 2  # the first two parameters are embeddings: look-ups without a matrix product


@dataclass(frozen=True)
class TextTask:
    """A language, a shard of text for each rank, and an untrained model."""

    seed: int

    @cached_property
    def language(self) -> Language:
        """The language of this seed."""
        return Language(self.seed)

    def shard(self, rank: int) -> list[list[Tensor]]:
        """Return a rank's stretches of text, a list for each step; each is int64 (length + 1,)."""
        import torch

        lengths = LONG if rank == RANKS - 1 else SHORT
        made = {
            each: [torch.from_numpy(row.copy()) for row in self._rows(rank, each, lengths)]
            for each in set(lengths)
        }
        return [[made[each].pop() for each in lengths] for _ in range(STEPS)]

    def _rows(self, rank: int, length: int, lengths: list[int]) -> Letters:
        return self.language.stretches(rank, STEPS * lengths.count(length), length + 1, 0)

    @property
    def shards(self) -> list[list[list[Tensor]]]:
        """The stretches of all ranks."""
        return [self.shard(rank) for rank in range(RANKS)]

    def model(self) -> TextModel:
        """Return an untrained model. The state of torch's own generator does not change."""
        import torch

        with torch.random.fork_rng(devices=()):
            torch.manual_seed(self.seed)
            return TextModel()

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.model().parameters())

    @cached_property
    def trained(self) -> Tensor:
        """The wanted parameters, float32 (n,): the result of one process trained on all shards."""
        return _trained(self.seed)

    def off(self, parameters: Tensor) -> float:
        """Return the distance from `parameters` to the wanted ones; 1 for the untrained model."""
        whole = float((self.trained - _flat(self.model())).norm())
        return float((parameters - self.trained).norm()) / whole

    def loss(self, parameters: Any) -> float:
        """Return the held-out loss of a model with `parameters`, in nats per letter.

        parameters  float32 (n,); raises ValueError for a wrong shape
        """
        import torch

        model = self.model()
        sizes = [p.numel() for p in model.parameters()]
        if parameters.shape != (sum(sizes),):
            raise ValueError(
                f"the model has {sum(sizes)} parameters, but the tensor given has the shape "
                f"{list(parameters.shape)}"
            )
        texts = [self.language.stretches(each, HELD_OUT, 33, 1) for each in range(DIALECTS)]
        windows = torch.from_numpy(np.concatenate(texts))
        with torch.no_grad():
            for p, new in zip(model.parameters(), parameters.split(sizes), strict=True):
                p.copy_(new.view_as(p))
            return float(model(windows[:, :-1], windows[:, 1:]))


def _flat(model: TextModel) -> Tensor:
    import torch

    return torch.cat([p.detach().flatten() for p in model.parameters()])


@lru_cache(32)
def _trained(seed: int) -> Tensor:
    import torch

    task = TextTask(seed)
    model, shards = task.model(), task.shards
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    for number in range(STEPS):
        stretches = [each for shard in shards for each in shard[number]]
        every = sum(len(each) - 1 for each in stretches)
        optimizer.zero_grad()
        for length in {len(each) for each in stretches}:
            rows = torch.stack([each for each in stretches if len(each) == length])
            share = rows[:, 1:].numel() / every
            (model(rows[:, :-1], rows[:, 1:]) * share).backward()
        optimizer.step()
    return _flat(model)


@cache
def floor_flops() -> int:
    """Return the FLOPs of a training's matrix products, forward and backward, over all letters."""
    import torch

    with torch.device("meta"):
        shapes = [tuple(p.shape) for p in TextModel().parameters()]
    products = sum(prod(shape) for shape in shapes[TABLES:] if len(shape) == 2)
    return 6 * products * STEPS * (sum(SHORT) * (RANKS - 1) + sum(LONG))


def floor_ms() -> float:
    """Return a lower bound of a training's time, in ms: `floor_flops` shared by all ranks."""
    (machine,) = machines_of(MACHINE, 1)
    peak = machine.cost_ns("matmul", 10**12, 0, "float32") / 10**12
    return floor_flops() / RANKS * peak / 1e6
