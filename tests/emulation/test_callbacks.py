"""Callbacks of futures on an emulated cluster run at the end of the operation that they follow."""

import math
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

from ddpkit import Cluster
from ddpkit.simulate import cost

pytestmark = pytest.mark.processes

LINK = "1 GB/s, 10 us"
STEPS = 5
RANK = 2  # rank of a gradient that is the mean of two ranks' outer products


def trained(hook: str | None) -> list[torch.Tensor]:
    """Return the parameters after some steps of DDP with several buckets, one example on each
    rank."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(48, 48) for _ in range(4)))
    ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.01)
    if hook == "powerSGD":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=RANK, start_powerSGD_iter=2, min_compression_rate=1
        )
        ddp.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook:
        ddp.register_comm_hook(dist.group.WORLD, getattr(default_hooks, hook))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    torch.manual_seed(1 + dist.get_rank())
    for _ in range(STEPS):
        optimizer.zero_grad()
        (ddp(torch.randn(1, 48)) - torch.randn(1, 48)).square().mean().backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


@pytest.mark.parametrize(
    ("hook", "tolerance"),
    [("allreduce_hook", 1e-7), ("fp16_compress_hook", 1e-3), ("powerSGD", 1e-4)],
)
def test_torchs_hooks_are_right_and_equal_on_all_ranks(hook: str, tolerance: float):
    plain = Cluster(2).run(trained, None).results[0]
    for speed in (1, math.inf):
        here, there = Cluster(2, link=LINK, speed=speed).run(trained, hook).results
        assert all(map(torch.equal, here, there))
        for ours, right in zip(here, plain, strict=True):
            torch.testing.assert_close(ours, right, atol=tolerance, rtol=0)


def built_in(kind: str) -> list[tuple[list[torch.Tensor], int]]:
    """Return (parameters, time) after some steps with a C++ hook, and with the same hook of
    Python."""
    found, pythons = [], {"ALLREDUCE": "allreduce_hook", "FP16_COMPRESS": "fp16_compress_hook"}
    for name in (None, pythons[kind]):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(4)))
        group = dist.new_group([*range(dist.get_world_size())])
        ddp = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1e-3, process_group=group)
        if name is None:
            ddp._register_builtin_comm_hook(getattr(dist.BuiltinCommHookType, kind))
        else:
            ddp.register_comm_hook(group, getattr(default_hooks, name))
        torch.manual_seed(1 + dist.get_rank())
        dist.barrier()
        begin = time.perf_counter_ns()
        for _ in range(3):
            ddp(torch.randn(4, 16)).square().sum().backward()
        took = time.perf_counter_ns() - begin
        found.append(([p.grad for p in model.parameters()], took))
    return found


@pytest.mark.parametrize("kind", ["ALLREDUCE", "FP16_COMPRESS"])
@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_hooks_of_c_plus_plus_give_gloos_values_at_the_price_of_pythons(world_size: int, kind: str):
    emulated = Cluster(world_size, link=LINK, machine="A100").run(built_in, kind, timeout=60)
    plain = Cluster(world_size).run(built_in, kind, timeout=60)
    for (ours, pythons), (gloos, _) in zip(emulated.results, plain.results, strict=True):
        assert all(map(torch.equal, ours[0], gloos[0]))
        assert all(map(torch.equal, ours[0], pythons[0]))
        assert ours[1] == pythons[1] > 0


def chained() -> tuple[list[float], int]:
    """Run a chain of callbacks; the second posts an all-reduce and waits for it."""
    dist.barrier()
    begin = time.perf_counter_ns()
    x = torch.full((250,), 1.0)

    def doubled(future):
        return future.value()[0] * 2

    def again(future):
        y = future.value()
        dist.all_reduce(y)
        return y

    future = dist.all_reduce(x, async_op=True).get_future().then(doubled).then(again)
    y = future.wait()
    return y[:2].tolist(), time.perf_counter_ns() - begin


@pytest.mark.parametrize("n", [2, 3])
def test_what_a_callback_posts_departs_when_its_operation_is_done(n: int):
    for values, took in Cluster(n, link=LINK, speed=math.inf).run(chained).results:
        assert values == [2.0 * n * n] * 2
        if n == 2:
            assert took == 2 * cost("ring", 2, 1000, LINK)


def uneven(divide_by_initial: bool) -> list[torch.Tensor]:
    """Return the parameters after `join`; the last rank has more steps."""
    torch.manual_seed(0)
    ddp = nn.parallel.DistributedDataParallel(nn.Linear(8, 8))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    rank = dist.get_rank()
    with ddp.join(divide_by_initial_world_size=divide_by_initial):
        for step in range(2 + 2 * rank):
            optimizer.zero_grad()
            ddp(torch.full((1, 8), float(step + rank))).sum().backward()
            optimizer.step()
    return [p.detach() for p in ddp.module.parameters()]


@pytest.mark.parametrize("divide_by_initial", [True, False])
def test_join_is_what_it_is_without_a_link(divide_by_initial: bool):
    plain = Cluster(3).run(uneven, divide_by_initial).results
    ours = Cluster(3, link=LINK, speed=math.inf).run(uneven, divide_by_initial).results
    for mine, right in zip(ours, plain, strict=True):
        assert all(map(torch.equal, mine, right))
