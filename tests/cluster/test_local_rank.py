"""The hosts of an emulated cluster are nodes to torchrun, in a Cluster and under `ddpkit run`."""

from __future__ import annotations

import os

import pytest

from ddpkit import Cluster
from ddpkit.commands.run import launched
from tests.ways import SCRIPT

LINK = {"hosts of": 2, "inside": "300 GB/s, 3 us", "between": "10 Gbit/s, 10 us"}
NAMES = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")


def knows_its_host() -> None:
    rank, local_rank, on_host, host = (int(os.environ[name]) for name in NAMES)
    assert (local_rank, host) == (rank % 2, rank // 2)
    assert on_host == (2 if host == 0 else 1)


@pytest.mark.processes
@pytest.mark.parametrize("machine", [None, "1 TFLOP/s"])
def test_the_ranks_of_hosts(machine: str | None) -> None:
    cluster = Cluster(3, link=LINK, machine=machine, device="cpu")
    cluster.run(knows_its_host)
    words = (knows_its_host.__module__, knows_its_host.__name__, "gloo")
    cluster.run(launched(str(SCRIPT), words, False, cluster))
