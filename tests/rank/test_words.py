"""Groups and works in messages have torch's names; no class of the kit appears."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster, RankError
from tests.ways import WAYS, run

pytestmark = pytest.mark.processes
in_every_way = pytest.mark.parametrize("way", WAYS)


def names_groups_and_works() -> None:
    group = dist.new_group([0, 1], group_desc="tp")
    work = dist.all_reduce(torch.ones(2), async_op=True)
    assert repr(dist.group.WORLD) == "<ProcessGroup gloo [0, 1]>"
    assert str(group) == "<ProcessGroup gloo tp [0, 1]>"
    assert repr(work) == "<Work all_reduce>"
    for each in (group, work):
        for wrong in (
            lambda each=each: dist.get_group_rank(group, 7),
            lambda each=each: each.no_such_name,
            lambda each=each: torch.ones(2) + each,
            lambda each=each: pickle.dumps(each),
            lambda each=each: dist.all_reduce(torch.ones(2), op=each),
        ):
            with pytest.raises((ValueError, AttributeError, TypeError)) as caught:
                wrong()
            for name in ("ddpkit", "Recorded", "Emulated"):
                assert name not in str(caught.value)
    work.wait()


@in_every_way
def test_no_class_of_the_kit_is_in_a_message(way: str) -> None:
    run(way, 2, names_groups_and_works)


def returns_its_group() -> dist.ProcessGroup | None:
    return dist.group.WORLD


def test_a_returned_group_is_a_process_group() -> None:
    with pytest.raises(RankError, match="the function returned a ProcessGroup that cannot"):
        Cluster(2).run(returns_its_group)


def trains_a_part_only() -> None:
    class Half(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = self.used(x)
            return result

    model = DistributedDataParallel(Half())
    for _ in range(2):
        model(torch.ones(1, 2)).sum().backward()


@in_every_way
def test_torchs_debug_level_is_the_notebooks(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's message tells the reader to set TORCH_DISTRIBUTED_DEBUG, and the next run obeys."""
    monkeypatch.delenv("TORCH_DISTRIBUTED_DEBUG", raising=False)
    with pytest.raises(RankError) as caught:
        run(way, 2, trains_a_part_only)
    assert "set the environment variable TORCH_DISTRIBUTED_DEBUG" in str(caught.value)
    assert "spare.weight" not in str(caught.value)
    monkeypatch.setitem(os.environ, "TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    with pytest.raises(RankError) as caught:
        run(way, 2, trains_a_part_only)
    assert "spare.weight" in str(caught.value)
