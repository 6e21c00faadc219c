"""The six all-reduces of lab 03 in place of torch's: on tensors of all sorts, and inside DDP."""

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, answers
from ddpkit.simulate import ALL_REDUCE
from tests.ddp.demands import small, squared, steps
from tests.ddp.models import ours, torchs

pytestmark = pytest.mark.processes


def tensors():
    """Return tensors of whole numbers: the sums are exact in any order."""
    generator = torch.Generator().manual_seed(dist.get_rank())

    def some(*shape, dtype=torch.float32):
        return torch.randint(-8, 9, shape, generator=generator).to(dtype)

    return {
        "a scalar": some(),
        "nothing": some(0, dtype=torch.int64),
        "one number": some(1),
        "13, which no n divides": some(13, dtype=torch.float64),
        "bfloat16": some(7, dtype=torch.bfloat16),
        "bytes": some(9, dtype=torch.int8),
        "transposed": some(3, 5).t(),
        "every other column": some(4, 6)[:, ::2],
        "expanded": some(3, 1).expand(3, 4),
        "channels last": some(2, 3, 2, 2).to(memory_format=torch.channels_last),
        "a view in the middle": some(20)[5:12],
        "one that needs a gradient": some(6).requires_grad_().detach(),
    }


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_sums_are_torchs(world_size):
    def wrong():
        found = []
        for name in ALL_REDUCE:
            for what, x in tensors().items():
                due, before = x.contiguous().clone(), x.clone()
                dist.all_reduce(due)
                total = answers.get(name)(x)
                if not (total.dtype == due.dtype and torch.equal(total, due)):
                    found.append(f"{name} of {what}")
                if not torch.equal(x, before):
                    found.append(f"{name} changes {what}")
        return found

    assert Cluster(world_size).run(wrong).results == [[]] * world_size


def hook(all_reduce, bucket):
    """Run an all-reduce as a communication hook of torch's DDP."""
    future = torch.futures.Future()
    future.set_result(all_reduce(bucket.buffer() / dist.get_world_size()))
    return future


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_inside_a_ddp_they_train_as_gloos_does(world_size):
    def trained(wrap, name=None):
        def hooked(module, **options):
            ddp = wrap(module, bucket_cap_mb=0.0003, **options)
            if name is not None:
                ddp.register_comm_hook(answers.get(name), hook)
            return ddp

        torch.manual_seed(dist.get_rank())
        return steps(hooked, small(), squared)

    def all_six():
        return trained(torchs), {
            f"{name}, {wrap.__name__}": trained(wrap, name)
            for name in ALL_REDUCE
            for wrap in (ours, torchs)
        }

    for due, found in Cluster(world_size).run(all_six).results:
        assert len(found) == 12
        for tensors_found in found.values():
            torch.testing.assert_close(tensors_found, due, rtol=1e-4, atol=1e-6)
