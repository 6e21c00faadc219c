"""Every fault ends with a message that names ranks and lines, and leaves the cluster usable."""

import pytest
import torch.distributed as dist

from ddpkit import Cluster
from ddpkit.errors import Mismatch
from tests.cluster.explained import ends_explained
from tests.cluster.faults import FAULTS, Fault

pytestmark = pytest.mark.processes


def healthy():
    return dist.get_rank()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    cluster = Cluster(fault.world_size)
    error = ends_explained(fault, cluster)
    assert error.ranks or fault.error.__name__ == "RunTimeout"
    assert len(error.run.results) == fault.world_size
    assert cluster.run(healthy).results == list(range(fault.world_size))


def test_groups_that_have_one_number_are_told_apart():
    """torch alone would connect the wrong members of such groups, and then wait or worse."""

    def by_halves():
        half = [0, 1] if dist.get_rank() < 2 else [2, 3]
        group = dist.new_group(half)
        dist.barrier(group)

    with pytest.raises(Mismatch, match="Group number 1 has different members") as caught:
        Cluster(4).run(by_halves, timeout=60)
    assert caught.value.kind == "members"
