"""Plans of a mesh: the numbers of replicas, stages and slices, and the numbers of their ranks.

The mesh has three dimensions, and ranks are numbered row by row in the order of `AXES`. Ranks with
neighbouring numbers are slices of the same layers; then come the stages, and the numbers of
replicas are furthest apart. Llama 3 lays out its GPUs in the same way (Meta, 2024, section 3.3.2):
ranks that communicate most are nearest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from ddpkit.asked import not_for
from ddpkit.link import Link
from ddpkit.text import count, size

AXES = ("replica", "stage", "slice")
NUMBER = 4  # bytes of a float32


@dataclass(frozen=True, order=True)
class MeshPlan:
    """A plan: the numbers of replicas, stages and slices, and of each replica's micro-batches.

    With ``shards`` the replicas share the optimizer: each replica keeps the optimizer's state for a
    part of the parameters, and updates only that part.
    """

    replicas: int = 1
    stages: int = 1
    slices: int = 1
    micro: int = 1
    shards: bool = False

    def __post_init__(self) -> None:
        if min(self.replicas, self.stages, self.slices, self.micro) < 1:
            raise ValueError(f"replicas, stages, slices and micro must each be 1 or more: {self!r}")

    @property
    def ranks(self) -> int:
        """The number of ranks in the plan."""
        return self.replicas * self.stages * self.slices

    @property
    def shape(self) -> dict[str, int]:
        """The number of ranks along each dimension; neighbours lie along the last dimension."""
        return dict(zip(AXES, (self.replicas, self.stages, self.slices), strict=True))

    @property
    def strides(self) -> dict[str, int]:
        """The difference between the numbers of neighbouring ranks along each dimension."""
        return dict(zip(AXES, (self.stages * self.slices, self.slices, 1), strict=True))

    def __str__(self) -> str:
        said = f"{self.replicas} × {self.stages} × {self.slices}, {self.micro} micro"
        return said + ", shards" * self.shards


@dataclass(frozen=True)
class MeshModel:
    """A model of equal blocks: x + down(relu(up(x))), without biases, in float32.

    blocks  number of blocks; a stage has a part of them
    width   numbers in each row of a block's input and output
    hidden  numbers in each row inside a block; a slice has a part of them
    batch   rows of a training step, divided among replicas and micro-batches
    """

    blocks: int
    width: int
    hidden: int
    batch: int

    @property
    def parameters(self) -> int:
        """The number of parameters of the model: two matrices for each block."""
        return 2 * self.width * self.hidden * self.blocks

    def check(self, plan: MeshPlan) -> None:
        """Raise ValueError, with the reason, if a plan does not divide the model."""
        for what, whole, among, parts in (
            ("blocks", self.blocks, plan.stages, "stages"),
            ("hidden numbers", self.hidden, plan.slices, "slices"),
            ("rows of the batch", self.batch, plan.replicas * plan.micro, "micro-batches in all"),
        ):
            if whole % among:
                raise ValueError(
                    f"{plan}: {whole} {what} cannot be divided equally among {among} {parts}"
                )


@dataclass(frozen=True)
class MeshMachine:
    """The computers of a mesh: hosts with equal ranks.

    flops      FLOP/s of one rank
    memory     bytes of one rank
    per_host   ranks of a host, which share its link to other hosts
    inside     link of each rank to the other ranks of its host
    between    link of each host
    """

    flops: float
    memory: int
    per_host: int
    inside: str | Link
    between: str | Link

    @property
    def machine(self) -> str:
        """The value for ``Cluster(machine=...)``: FLOP/s and memory; only FLOPs take time."""
        return f"{self.flops / 1e9:.10g} GFLOP/s, {self.memory / 1e6:.12g} MB"

    @property
    def link(self) -> dict[int | str, str | Link | int]:
        """The value for ``Cluster(link=...)``."""
        return {"hosts of": self.per_host, "inside": self.inside, "between": self.between}

    def all_reduce(self, nbytes: int, ranks: int, stride: int) -> float:
        """Return the time in s of a ring all-reduce; the ranks' numbers are ``stride`` apart.

        The ring has 2 (n - 1) rounds, in which each rank sends an n-th of the bytes. Inside a host
        a round takes a message's time. Between hosts some hops are short and some are long, and
        groups share the hosts' links: a round takes the time of a mean hop, or the time for which
        one round of all these groups occupies the shared link, whichever is longer.
        """
        if ranks == 1:
            return 0.0
        near, far, occupied = self._hops(nbytes / ranks, stride)
        crossing = 0.0 if ranks * stride <= self.per_host else 1 / self._together(stride)
        hop = crossing * far + (1 - crossing) * near
        return 2 * (ranks - 1) * max(hop, occupied if crossing else 0.0)

    def message(self, nbytes: int, ranks: int, stride: int) -> float:
        """Return the mean time in s of a message from a rank to the next rank of a line.

        The line has ``ranks`` ranks, whose numbers are ``stride`` apart.
        """
        if ranks == 1:
            return 0.0
        near, far, occupied = self._hops(nbytes, stride)
        crossing = (-(-ranks // self._together(stride)) - 1) / (ranks - 1)
        # the additional wait of the last message on a shared link, compared with the first
        late = occupied - occupied / self._sharing(stride)
        return crossing * (far + late) + (1 - crossing) * near

    def _hops(self, nbytes: float, stride: int) -> tuple[float, float, float]:
        """Return times in s: a message inside a host, a message between hosts, and a shared round.

        The last is the time for which all messages of one round occupy a host's link.
        """
        inside, between = _parsed(self.inside), _parsed(self.between)
        near = inside.latency_ns / 1e9 + nbytes / inside.bytes_per_s
        bytes_s = nbytes / between.bytes_per_s
        return near, between.latency_ns / 1e9 + bytes_s, self._sharing(stride) * bytes_s

    def _sharing(self, stride: int) -> int:
        """Return the number of groups with this stride that have members on one host."""
        return min(stride, self.per_host)

    def _together(self, stride: int) -> int:
        """Return the number of a group's ranks on one host, for this stride."""
        return max(1, self.per_host // stride)

    def __str__(self) -> str:
        return (
            f"{count(self.per_host, 'rank')} a host, {self.flops / 1e9:g} GFLOP/s and "
            f"{size(self.memory)} each; inside {self.inside}, between {self.between}"
        )


_parsed = lru_cache(16)(Link.parse)  # a planner asks for thousands of prices


def mesh_groups(shape: Mapping[str, int]) -> dict[str, list[list[int]]]:
    """Return the groups of ranks along each dimension of a mesh, by the dimension's name.

    Raises ValueError for a dimension without ranks.
    """
    not_for("groups_of")
    if min(shape.values(), default=1) < 1:
        raise ValueError(f"each dimension of a mesh must have 1 rank or more, not {shape}")
    ranks, stride = math.prod(shape.values()), 1
    found: dict[str, list[list[int]]] = {}
    for name in reversed(list(shape)):
        first = [rank for rank in range(ranks) if rank // stride % shape[name] == 0]
        found[name] = [[rank + stride * i for i in range(shape[name])] for rank in first]
        stride *= shape[name]
    return {name: found[name] for name in shape}
