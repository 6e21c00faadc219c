"""An operation on a list of DTensors: its real time grows with the list's length, not its square.

Old code that these tests find: for each element of a list, torch looked through all arguments.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.distributed.tensor import Placement, Replicate, Shard, _sharding_prop
from torch.distributed.tensor.placement_types import _StridedShard

from ddpkit import Cluster
from ddpkit.rank.emulation.sharded_lists import each_argument_seen_once
from ddpkit.torch_private import STRIDED


def looks_of_a_step(layers: int) -> int:
    """Return how often torch goes through an operation's arguments in a step of fused AdamW."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import _op_schema

    model = nn.Sequential(*(nn.Linear(8, 8, bias=False) for _ in range(layers)))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    model(torch.ones(8, 8)).sum().backward()
    schema, looks = _op_schema.OpSchema, 0
    arguments = schema.args_spec.fget  # type: ignore[attr-defined]

    def look(found: object) -> object:
        nonlocal looks
        looks += 1
        return arguments(found)

    schema.args_spec = property(look)  # type: ignore[assignment, method-assign]
    optimizer.step()
    return looks


@pytest.mark.processes
def test_a_step_of_adamw_looks_through_the_arguments_a_fixed_number_of_times() -> None:
    cluster = Cluster(2, machine="A100", link="50 GB/s, 5 us", values=False)
    few, many = (cluster.run(looks_of_a_step, layers).results[0] for layers in (3, 9))
    assert few == many


class Operation:
    """An operation on DTensors that are sharded by `placements`."""

    def __init__(self, *placements: Placement) -> None:
        self.args_spec = [SimpleNamespace(placements=(each,)) for each in placements]


def test_strided_shards_are_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(_sharding_prop, STRIDED, lambda *given: seen.append(given))
    plain = Operation(Replicate(), Shard(0), Shard(1))
    strided = Operation(Shard(0), _StridedShard(0, split_factor=2))
    with each_argument_seen_once():
        for operation in (plain, strided, strided, plain, strided):
            getattr(_sharding_prop, STRIDED)("strategy", operation)
    assert seen == [("strategy", strided)] * 3
