"""Many ranks of which only the first few run: the times of all, repeated values, refusals."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from ddpkit import Cluster, ClusterError, Deadlock, Mismatch, RankError
from ddpkit.protocol import not_computed
from ddpkit.simulate import forecast, what_if

pytestmark = pytest.mark.processes

LINK = "100 Gbit/s, 5 us"
HOSTS = {"hosts of": 4, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"}
CPU, GPU = "1 TFLOP/s, 100 GB/s, 64 GB, 5 us", "A100"
FEW = 48  # elements up to which the tests compute


def cluster(n: int, present: int, machine: str = CPU, link: Any = LINK) -> Cluster:
    return Cluster(n, machine=machine, link=link, values=False, alike=present)


# Programs: each returns the emulated ns at the ends of its steps


def steps_of(model: nn.Module, width: int) -> list[int]:
    optimizer = torch.optim.AdamW(model.parameters())
    ends = []
    for _ in range(4):
        model(torch.randn(8, width)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.cpu.synchronize()
        ends.append(time.perf_counter_ns())
    return ends


def sharded() -> list[int]:
    from torch.distributed.fsdp import fully_shard

    not_computed.SMALL = FEW
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for part in (*model, model):
        fully_shard(part, mesh=mesh)
    return steps_of(model, 64)


def replicated() -> list[int]:
    not_computed.SMALL = FEW
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(3)))
    return steps_of(nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.02), 64)


def sliced() -> list[int]:
    """Run slices of each layer on two ranks, and replicas that sum their gradients."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        RowwiseParallel,
        parallelize_module,
    )

    not_computed.SMALL = FEW
    mesh = init_device_mesh("cpu", (dist.get_world_size() // 2, 2), mesh_dim_names=("dp", "tp"))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ends = []
    for _ in range(2):
        model(torch.randn(8, 64)).sum().backward()
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad.to_local(), group=mesh.get_group("dp"))
        optimizer.step()
        optimizer.zero_grad()
        ends.append(time.perf_counter_ns())
    return ends


def staged() -> list[int]:
    """Run two stages of a pipeline on two ranks, and replicas of each stage."""
    not_computed.SMALL = FEW
    rank, n = dist.get_rank(), dist.get_world_size()
    groups = [dist.new_group(range(stage, n, 2)) for stage in (0, 1)]
    layer, x = nn.Linear(64, 64), torch.randn(8, 64)
    ends = []
    for _ in range(2):
        if rank % 2:
            dist.recv(x, rank - 1)
            dist.send(layer(x).detach(), rank - 1)
        else:
            dist.send(layer(x).detach(), rank + 1)
            dist.recv(x, rank + 1)
        dist.all_reduce(layer.weight.detach(), group=groups[rank % 2])
        ends.append(time.perf_counter_ns())
    return ends


def mixed_calls() -> list[int]:
    """Call every collective without a root, on large tensors, from different starts."""
    not_computed.SMALL = FEW
    n, rank, ends = dist.get_world_size(), dist.get_rank(), []
    whole, part = torch.zeros(16 * n), torch.zeros(16)
    for act in (
        lambda: dist.all_reduce(whole),
        lambda: dist.all_gather_into_tensor(whole, part),
        lambda: dist.reduce_scatter_tensor(part, whole),
        lambda: dist.all_to_all_single(whole, torch.zeros(16 * n)),
        lambda: dist.all_gather([torch.zeros(64) for _ in range(n)], torch.zeros(64)),
        lambda: dist.all_to_all([*torch.zeros(n, 64)], [*torch.zeros(n, 64)]),
        lambda: dist.all_reduce(whole, async_op=True).wait(),
        dist.barrier,
    ):
        if rank % 2:
            whole.mul_(2)
        act()
        ends.append(time.perf_counter_ns())
    return ends


# Times of the whole cluster


@pytest.mark.parametrize("machine", [CPU, GPU])
def test_of_16_ranks_2_4_8_and_16_have_the_same_times(machine):
    runs = {k: cluster(16, k, machine).run(sharded) for k in (2, 4, 8, 16)}
    whole = runs.pop(16)
    assert len(set(whole.results[0])) == 4
    for present, run in runs.items():
        assert run.results == whole.results[:present]
        assert run.trace.memory == {rank: whole.trace.memory[rank] for rank in range(present)}


@pytest.mark.parametrize("program", [sliced, staged, mixed_calls], ids=lambda each: each.__name__)
def test_a_replica_and_its_copies(program: Callable[[], list[int]]):
    whole = cluster(8, 8).run(program)
    for present in (2, 4):
        run = cluster(8, present).run(program)
        assert run.results == whole.results[:present]


def test_hosts_are_alike():
    whole = cluster(8, 8, link=HOSTS).run(sharded)
    assert cluster(8, 4, link=HOSTS).run(sharded).results == whole.results[:4]


def test_steps_of_ddp_are_those_of_the_whole_after_its_broadcasts():
    """DDP's first steps make calls with a root, which end for all ranks at one time."""
    whole, some = (cluster(8, present).run(replicated).results[0] for present in (8, 2))
    assert some[3] - some[2] == pytest.approx(whole[3] - whole[2], rel=1e-4)
    assert some[3] == pytest.approx(whole[3], rel=0.05)


# Values of copies


def values() -> dict[str, Any]:
    n, rank = dist.get_world_size(), dist.get_rank()
    found: dict[str, Any] = {}
    for name, op in (("sum", dist.ReduceOp.SUM), ("max", dist.ReduceOp.MAX)):
        x = torch.tensor([rank + 1.0])
        dist.all_reduce(x, op)
        found[name] = x.item()
    product = torch.tensor([rank + 1])
    dist.all_reduce(product, dist.ReduceOp.PRODUCT)
    found["product"] = product.item()
    mine = torch.tensor([rank])
    lists = [torch.zeros(1, dtype=torch.int64) for _ in range(n)]
    dist.all_gather(lists, mine)
    found["all_gather"] = [each.item() for each in lists]
    tensor = torch.zeros(n, dtype=torch.int64)
    work = dist.all_gather_into_tensor(tensor, mine, async_op=True)
    assert work is not None
    work.wait()
    found["into"] = tensor.tolist()
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, f"rank {rank}")
    found["objects"] = objects
    part = torch.zeros(1, dtype=torch.int64)
    dist.reduce_scatter_tensor(part, torch.arange(n) * (rank + 1))
    found["reduce_scatter"] = part.item()
    exchanged = torch.zeros(n, dtype=torch.int64)
    dist.all_to_all_single(exchanged, torch.arange(n) + 100 * rank)
    found["exchange"] = exchanged.tolist()
    gathered = [torch.zeros(1, dtype=torch.int64) for _ in range(n)] if rank == 0 else None
    dist.gather(mine, gathered)
    found["gather"] = gathered and [each.item() for each in gathered]
    down, before = torch.tensor([rank + 1]), torch.tensor([rank + 1])
    dist.reduce(down, 0)
    found["reduce"] = (down.item(), rank == 0 or bool(down == before))
    news = torch.tensor([rank + 7])
    dist.broadcast(news, 1)
    found["broadcast"] = news.item()
    future = dist.all_gather(lists, mine + 1, async_op=True).get_future()
    found["future"] = [each.item() for each in future.wait()]
    return found


def test_small_values_of_a_copy_are_the_originals():
    first, second = cluster(6, 2).run(values).results
    turns = [0, 1, 0, 1, 0, 1]
    assert first["sum"] == second["sum"] == 9
    assert (first["max"], first["product"]) == (2, 8)
    for name in ("all_gather", "into", "gather"):
        assert first[name] == turns
    assert first["future"] == [1, 2, 1, 2, 1, 2]
    assert first["objects"] == [f"rank {rank}" for rank in turns]
    assert (first["reduce_scatter"], second["reduce_scatter"]) == (0, 9)
    assert first["exchange"] == [0, 100, 0, 100, 0, 100]
    assert second["exchange"] == [1, 101, 1, 101, 1, 101]
    assert first["reduce"] == (9, True)
    assert second["reduce"] == (2, True)
    assert first["broadcast"] == second["broadcast"] == 8


def test_the_trace_says_so_and_models_of_it_have_all_ranks():
    run = cluster(8, 2).run(replicated)
    assert run.trace.world_size == len(run.results) == 2
    assert run.trace.job_size == 8
    assert str(run.trace.facts["alike"]).startswith("2 of 8 ranks ran")
    reduced = [span for span in run.trace.spans if span.name == "all_reduce"]
    assert {span.args["group_size"] for span in reduced} == {8}
    assert all(span.ready_ns is not None for span in reduced)
    assert forecast(run.trace).world_size == 8
    assert what_if(run.trace, link="10 Gbit/s, 5 us").world_size == 8
    assert repr(cluster(8, 2)).startswith("8 ranks, 2 of them run")


# Refused


def sends_to_an_absent_rank() -> None:
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 5)


def receives_from_an_absent_rank() -> None:
    if dist.get_rank() == 0:
        dist.recv(torch.ones(1), 5)


def broadcasts_from_an_absent_rank() -> None:
    dist.broadcast(torch.ones(1), 7)


def makes_a_group_that_does_not_repeat() -> None:
    dist.new_group([0, 5])


def makes_an_uneven_group() -> None:
    dist.new_group([0, 1, 4])


def makes_a_copy_of_nothing() -> None:
    dist.new_group([4, 5])
    dist.barrier()


def exchanges_unequal_parts() -> None:
    n = dist.get_world_size()
    parts = [1, 3, *[2] * (n - 2)]
    dist.all_to_all_single(torch.zeros(2 * n), torch.zeros(2 * n), parts, parts)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (sends_to_an_absent_rank, "send names rank 5, which does not run: with alike=2"),
        (receives_from_an_absent_rank, "recv names rank 5, which does not run"),
        (broadcasts_from_an_absent_rank, "broadcast names rank 7, which does not run"),
        (makes_a_group_that_does_not_repeat, r"the group \[0, 5\] does not repeat"),
        (makes_an_uneven_group, r"the group \[0, 1, 4\] does not repeat"),
        (makes_a_copy_of_nothing, r"the group \[4, 5\] does not repeat"),
        (exchanges_unequal_parts, "unequal parts, but only 2 of the 8 ranks run"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_program_that_is_not_alike_is_refused(program, said):
    with pytest.raises(RankError, match=said):
        cluster(8, 2).run(program)


def test_copies_may_be_made_before_what_they_repeat():
    def makes_groups() -> float:
        groups = [dist.new_group([first, first + 1]) for first in (6, 4, 2, 0)]
        x = torch.ones(1)
        dist.all_reduce(x, group=groups[-1])
        return x.item()

    assert cluster(8, 2).run(makes_groups).results == [2, 2]


def test_groups_that_only_members_make():
    def makes_groups() -> tuple[float, int]:
        first = dist.get_rank() // 2 * 2
        group = dist.new_group([first, first + 1], use_local_synchronization=True)
        x = torch.ones(1)
        dist.all_reduce(x, group=group)
        return x.item(), dist.get_world_size()

    assert cluster(8, 4).run(makes_groups).results == [(2, 8)] * 4


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"alike": 3}, "alike=3 of 8 ranks: give a divisor of 8"),
        ({"alike": 2, "values": True}, "add values=False and a machine"),
        ({"alike": 2, "link": HOSTS}, "alike=2 on hosts of 4 ranks: give a multiple of 4"),
        (
            {"alike": 2, "speed": {3: 0.5}},
            "makes rank 3 a copy of rank 1, but the ranks have different speeds",
        ),
        ({"alike": 2, "link": {"default": LINK, 4: "1 Gbit/s"}}, "different links"),
        ({"alike": 2, "machine": {"default": CPU, 5: GPU}}, "different machines"),
        ({"alike": True}, "alike= takes a whole number of ranks, not True"),
        ({"alike": 0}, "Cluster"),
    ],
)
def test_ranks_that_are_not_alike_are_refused(given, said):
    with pytest.raises(ClusterError, match=said):
        Cluster(8, **{"machine": CPU, "link": LINK, "values": False, **given})


# Errors are explained as usual


def test_a_deadlock_names_ranks_that_run():
    def waits() -> None:
        if dist.get_rank() == 0:
            dist.all_reduce(torch.ones(4))

    with pytest.raises(Deadlock) as caught:
        cluster(8, 2).run(waits)
    assert caught.value.waiting.keys() == {0}
    assert caught.value.returned == {1}
    assert "rank 4" not in str(caught.value)


def test_a_mismatch_names_ranks_that_run():
    def differs() -> None:
        dist.all_reduce(torch.ones(4 + dist.get_rank()))

    with pytest.raises(Mismatch) as caught:
        cluster(8, 2).run(differs)
    assert set(caught.value.ranks) == {0, 1}
