"""`DistributedDataParallel` under the tests of others: it returns the same as torch's class."""

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster
from tests.ddp.demands import DEMANDS
from tests.ddp.models import equal, ours, torchs

pytestmark = pytest.mark.processes


def put(name):
    """Return the results of a demand with each class, on a rank."""
    found = []
    for wrap in (ours, torchs):
        torch.manual_seed(dist.get_rank())
        found.append([t.detach().clone() for t in DEMANDS[name](wrap)])
    return found


def put_all():
    return {name: put(name) for name in DEMANDS}


@pytest.fixture(scope="module")
def answered(by_value):
    """Return a function from a number of ranks to the results of all demands in one run."""
    runs = {}

    def by(world_size):
        if world_size not in runs:
            runs[world_size] = Cluster(world_size).run(put_all).results
        return runs[world_size]

    return by


@pytest.mark.parametrize("name", DEMANDS)
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_what_torchs_gives_ours_gives(answered, world_size, name):
    """Results are bitwise equal on 1 and 2 ranks.

    With more ranks, gloo's order of addition depends on buckets.
    """
    for result in answered(world_size):
        one, other = result[name]
        assert len(one) == len(other) > 0
        if world_size <= 2:
            assert equal(one, other)
        for mine, theirs in zip(one, other, strict=True):
            coarse = mine.dtype == torch.bfloat16
            torch.testing.assert_close(
                mine, theirs, rtol=0.05 if coarse else 1e-4, atol=0.05 if coarse else 1e-6
            )
