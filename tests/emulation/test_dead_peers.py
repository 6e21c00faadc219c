"""A peer of torch's DDP dies on an emulated cluster: the survivors do not crash in C++."""

from __future__ import annotations

import os
import signal

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

from ddpkit import Cluster
from ddpkit.errors import RankDied

pytestmark = pytest.mark.processes

HOOKS = {
    "none": lambda model: None,
    "Python": lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook),
}


def trains_until_the_last_dies(hook: str) -> None:
    last = dist.get_world_size() - 1
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    HOOKS[hook](model)
    for step in range(4):
        if step == 2 and dist.get_rank() == last:
            os.kill(os.getpid(), signal.SIGKILL)
        model(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize(("world_size", "machine"), [(2, None), (3, "A100")])
def test_only_the_dead_rank_is_said_to_have_died(
    world_size: int, machine: str | None, hook: str
) -> None:
    cluster = Cluster(world_size, link="1 Gbit/s, 200 us", machine=machine)
    with pytest.raises(RankDied) as caught:
        cluster.run(trains_until_the_last_dies, hook, timeout=60)
    assert [*caught.value.ranks] == [world_size - 1]
    assert caught.value.deaths[world_size - 1].cause == "signal"
