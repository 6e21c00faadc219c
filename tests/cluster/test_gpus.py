"""Ranks on real GPUs: one rank on NCCL, two ranks on one GPU with gloo, and two ranks on NCCL.

Without GPUs the tests are skipped with a reason. tests/rank/test_gpu.py and test_nccl.py use
stand-ins for CUDA and NCCL; test_devices.py tests the choice of device and backend.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster, Deadlock, RankError
from ddpkit.answers.lab06 import DistributedDataParallel

pytestmark = pytest.mark.gpu


@pytest.fixture(params=["nccl, one rank", "gloo, sharing", "nccl, two ranks"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    gpus = torch.cuda.device_count()
    world_size = 1 if "one" in request.param else 2
    if request.param == "nccl, two ranks" and gpus < 2:
        pytest.skip(f"gpu: needs two, and there is {gpus}")
    if request.param == "gloo, sharing" and gpus > 1:
        world_size = gpus + 1
    found = Cluster(world_size, device="cuda")
    assert (found.place.device, found.place.backend) == ("cuda", request.param[:4])
    return found


def collectives() -> dict[str, list[Any]]:
    """Return the results of collectives in a cell that names no device, as written for a laptop."""
    rank, size = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(5.0) + rank
    assert mine.is_cuda
    every = [torch.zeros(5) for _ in range(size)]
    dist.all_gather(every, mine)
    shard = torch.zeros(2)
    dist.reduce_scatter(shard, [torch.ones(2) * (rank + 1)] * size)
    summed, from_0 = mine.clone(), mine.clone()
    dist.all_reduce(summed)
    dist.broadcast(from_0, src=0)
    on_cpu = torch.ones(3, device="cpu")
    dist.all_reduce(on_cpu, async_op=True).wait()
    dist.barrier()
    others: list[Any] = [None] * size
    dist.all_gather_object(others, {"rank": rank})
    tensors = [*every, shard, summed, from_0, on_cpu]
    return {"tensors": [tensor.tolist() for tensor in tensors], "objects": others}


def test_the_same_cell_on_a_gpu(cluster: Cluster) -> None:
    n = cluster.world_size
    run, total = cluster.run(collectives), float(sum(range(n)))
    for result in run.results:
        *every, shard, summed, from_0, on_cpu = result["tensors"]
        assert every == [[i + float(rank) for i in range(5)] for rank in range(n)]
        assert shard == [n * (n + 1) / 2] * 2
        assert summed == [n * i + total for i in range(5)]
        assert from_0 == [float(i) for i in range(5)]
        assert on_cpu == [float(n)] * 3
        assert result["objects"] == [{"rank": rank} for rank in range(n)]
    assert run.trace.facts["device"] == "cuda"
    assert run.traffic.collectives(0)["all_reduce"].times == 2


def shuffled() -> list[list[int]]:
    """Return numbers that a seed shuffles and draws, by hand and in a DataLoader."""
    generator = torch.Generator().manual_seed(5)
    order = torch.randperm(20, generator=generator)
    drawn = torch.randint(100, (20,), generator=generator)
    loader = torch.utils.data.DataLoader(range(20), batch_size=20, shuffle=True)
    (loaded,) = loader
    assert sorted(loaded.tolist()) == list(range(20))
    return [order.tolist(), drawn.tolist(), torch.arange(20)[order].tolist()]


def test_a_seed_shuffles_as_on_a_laptop(cluster: Cluster) -> None:
    assert cluster.run(shuffled).results == [shuffled()] * cluster.world_size


def exchange() -> list[list[float]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    received = torch.zeros(1000)
    operations = [
        dist.P2POp(dist.isend, torch.full((1000,), float(rank)), right),
        dist.P2POp(dist.irecv, received, left),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    turns = torch.zeros(1)
    if rank == 0:
        dist.send(torch.ones(1), dst=1)
    elif rank == 1:
        dist.recv(turns, src=0)
    return [received[:1].tolist(), turns.tolist()]


def test_messages(cluster: Cluster) -> None:
    if (n := cluster.world_size) == 1:
        pytest.skip("gpu: a message needs two ranks")
    run = cluster.run(exchange)
    for rank, (received, turns) in enumerate(run.results):
        assert received == [float((rank - 1) % n)]
        assert turns == [float(rank == 1)]


def train(wrap: Callable[..., nn.Module]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    ddp = wrap(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 8)), bucket_cap_mb=0.02)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step in range(20):
        optimizer.zero_grad()
        torch.manual_seed(100 * step + dist.get_rank())
        x, y = torch.randn(32, 64), torch.randint(8, (32,))
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
    return [parameter.detach() for parameter in ddp.parameters()]


def test_20_steps_of_lab_06s_ddp_are_torchs(cluster: Cluster) -> None:
    ours = cluster.run(train, DistributedDataParallel)
    torchs = cluster.run(train, nn.parallel.DistributedDataParallel)
    of_three = partial(torch.allclose, atol=1e-6)  # the sum of three terms depends on their order
    same = torch.equal if cluster.world_size <= 2 else of_three
    for one, other in zip(ours.results, torchs.results, strict=True):
        assert all(same(a, b) for a, b in zip(one, other, strict=True))
    for run in (ours, torchs):
        for parts in run.trace.breakdown().values():
            assert parts.compute_only_ns + parts.overlapped_ns > 0
    assert ours.trace.steps == 20


def long_work() -> float:
    """Return the milliseconds that the GPU takes for some work, by the GPU's own events."""
    from ddpkit import span

    x = torch.randn(4096, 4096)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    (x @ x).sum().item()
    begin.record()
    with span("work"):
        for _ in range(20):
            x = x @ x * 1e-4
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)


def test_a_stretch_is_as_long_as_the_gpu_takes_and_not_python(cluster: Cluster) -> None:
    run = cluster.run(long_work)
    for rank, expected in enumerate(run.results):
        (work,) = (span for span in run.trace.of(rank) if span.name == "work")
        assert (work.end_ns - work.start_ns) / 1e6 == pytest.approx(expected, rel=0.1)


def test_ranks_that_wait_for_each_other_are_explained(cluster: Cluster) -> None:
    if cluster.world_size != 2:
        pytest.skip("gpu: needs two ranks, no more and no fewer")

    def both_receive() -> None:
        dist.recv(torch.zeros(4), src=1 - dist.get_rank())

    def and_one_looks() -> float:
        box = torch.zeros(4)
        dist.recv(box, src=1 - dist.get_rank())
        return box.sum().item()

    for stuck in (both_receive, and_one_looks):
        with pytest.raises(Deadlock, match="rank 0 waits"):
            cluster.run(stuck, timeout=120)


def test_a_rank_that_fails_ends_the_others(cluster: Cluster) -> None:
    def fails() -> None:
        if dist.get_rank() == 0:
            raise ValueError("on purpose")
        dist.all_reduce(torch.zeros(4))
        torch.cuda.synchronize()

    with pytest.raises(RankError, match="rank 0 raised ValueError"):
        cluster.run(fails, timeout=120)
