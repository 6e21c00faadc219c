"""Every fault ends with a message that names ranks and lines, and leaves the cluster usable."""

import pytest
import torch.distributed as dist

from ddpkit import Cluster
from tests.cluster.faults import FAULTS, Fault

pytestmark = pytest.mark.processes


def healthy():
    return dist.get_rank()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    cluster = Cluster(fault.world_size)
    with pytest.raises(fault.error) as caught:
        cluster.run(fault.function, timeout=fault.timeout or 60)
    if fault.timeout and "was still starting" in str(caught.value):  # on a machine under load
        test_fault(fault.slower())
        return
    assert type(caught.value) is fault.error
    assert not fault.missing(str(caught.value)), str(caught.value)
    assert not fault.wrong_fields(caught.value), vars(caught.value)
    assert caught.value.ranks or fault.error.__name__ == "RunTimeout"
    assert len(caught.value.run.results) == fault.world_size
    assert cluster.run(healthy).results == list(range(fault.world_size))
