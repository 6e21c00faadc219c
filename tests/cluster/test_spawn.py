"""Spawned ranks, as on macOS and Windows: the same results and explanations, only later."""

import os
import signal

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, RankDied
from ddpkit.cluster.local import launch
from tests.cluster.processes import becomes_true, ranks_alive

pytestmark = pytest.mark.slow


def total():
    x = torch.tensor([1.0 + dist.get_rank()])
    dist.all_reduce(x)
    print("summed")
    return x.item(), torch.rand(1).item()


def vanishes():
    dist.barrier()
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def test_spawned_ranks_do_and_say_the_same(monkeypatch):
    forked = Cluster(2).run(total)
    monkeypatch.setattr(launch, "START", "spawn")
    spawned = Cluster(2).run(total)
    assert spawned.results == forked.results
    assert spawned.output == "[rank 0] summed\n[rank 1] summed"
    assert spawned.traffic.table() == forked.traffic.table()
    with pytest.raises(RankDied, match="SIGKILL") as died:
        Cluster(2).run(vanishes)
    assert "test_spawn.py, line" in str(died.value)
    assert died.value.rank == 1
    assert becomes_true(lambda: ranks_alive() == [])
