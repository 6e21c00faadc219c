"""Counted compute: equal times in every run, the values of a normal run, and the counted work."""

import hashlib
import math
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpkit import Cluster, Trace, busy
from ddpkit.machine import MachineModel

pytestmark = pytest.mark.processes

LINK = "10 Gbit/s, 5 us"
UNIT = "1 GFLOP/s, 1 GB/s, 1 us"  # a FLOP and a byte take a ns each, a launch takes 1000 ns


def digest(trace: Trace) -> str:
    """Return a digest of all that a trace holds.

    The order of the ranks' replies does not matter.
    """
    spans = sorted(map(repr, trace.spans))
    return hashlib.sha256(repr((spans, sorted(trace.facts.items()))).encode()).hexdigest()


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(48, 48), nn.ReLU()) for _ in range(6)))


def steps(net: Any, optimizer: Any, count: int = 4) -> list[int]:
    """Train, and return the ns of each step."""
    torch.manual_seed(dist.get_rank())
    took = []
    for _ in range(count):
        begin = time.perf_counter_ns()
        optimizer.zero_grad()
        net(torch.randn(16, 48)).square().mean().backward()
        optimizer.step()
        took.append(time.perf_counter_ns() - begin)
    return took


def train(views: bool = False) -> tuple[list[int], list[torch.Tensor]]:
    net = DDP(model(), bucket_cap_mb=0.02, gradient_as_bucket_view=views)
    took = steps(net, torch.optim.Adam(net.parameters()))
    return took, [parameter.detach() for parameter in net.parameters()]


@pytest.mark.parametrize("views", [False, True])
def test_torchs_ddp_takes_the_same_time_in_every_run_and_step(views):
    cluster = Cluster(2, link=LINK, machine="A100")
    first, second = cluster.run(train, views), cluster.run(train, views)
    assert digest(first.trace) == digest(second.trace)
    times = [took for took, _ in first.results]
    assert times == [took for took, _ in second.results]
    # the buckets are rebuilt, and rank 0 has announced them, from the third step on
    assert len({took for rank in times for took in rank[2:]}) == 1


def test_values_are_those_of_a_run_without_a_machine():
    counted = Cluster(2, link=LINK, machine="T4").run(train).results
    measured = Cluster(2, link=LINK).run(train).results
    for (_, ours), (_, theirs) in zip(counted, measured, strict=True):
        assert all(map(torch.equal, ours, theirs))


def cost(work: Any) -> int:
    """Return the ns that a piece of work takes on the rank's clock."""
    begin = time.perf_counter_ns()
    work()
    return time.perf_counter_ns() - begin


def operations() -> dict[str, int]:
    """Return the cost of single operations on a machine with one FLOP and one byte per ns."""
    a, b = torch.ones(8, 16), torch.ones(16, 4)
    table, rows = torch.ones(1000, 10), torch.tensor([3, 5])
    double, many = torch.ones(8, dtype=torch.float64), [torch.ones(5), torch.ones(7)]
    work = {
        "matmul": lambda: a @ b,
        "add": lambda: a + a,
        "add in place": lambda: a.add_(1),
        "fill": lambda: a.zero_(),
        "copy": lambda: a.copy_(a.clone()),
        "views": lambda: a.view(-1).detach().chunk(4)[1].unsqueeze(0).expand(3, -1),
        "allocate": lambda: torch.empty(1000),
        "embedding": lambda: nn.functional.embedding(rows, table),
        "double": lambda: double * double,
        "foreach": lambda: torch._foreach_add_(many, 1.0),
        "python": lambda: sum(range(1000)),
        "item": lambda: many[0][0].item(),
    }
    for each in work.values():
        each()
    return {name: cost(each) for name, each in work.items()}


def test_an_operation_costs_a_launch_and_the_more_of_flops_and_bytes():
    (found,) = Cluster(1, machine=UNIT).run(operations).results
    nbytes = 4 * 8 * 16
    assert found == {
        "matmul": 1000 + max(2 * 8 * 16 * 4, nbytes + 4 * 16 * 4 + 4 * 8 * 4),
        "add": 1000 + 3 * nbytes,
        "add in place": 1000 + 2 * nbytes,
        "fill": 1000 + nbytes,
        "copy": 2000 + 4 * nbytes,
        "views": 0,
        "allocate": 0,
        "embedding": 1000 + 2 * 8 + 2 * 80,  # two rows, and not the table of 40,000 bytes
        "double": 1000 + 3 * 64,
        "foreach": 1000 + 2 * 4 * 12,  # one launch for all
        "python": 0,
        "item": 0,
    }


def phases() -> dict[str, int]:
    net = nn.Linear(32, 64, bias=False)
    x = torch.ones(16, 32)
    net(x).sum().backward()
    found = {"forward": cost(lambda: net(x))}
    loss = net(x).sum()
    net.weight.grad = None
    found["backward"] = cost(loss.backward)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    found["optimizer"] = cost(sgd.step)
    return found


def test_backward_and_optimizer_are_counted():
    (found,) = Cluster(1, machine="1 GFLOP/s").run(phases).results
    flops = 2 * 16 * 32 * 64
    assert found["forward"] == flops
    assert found["backward"] == flops  # only of the weight: the input needs no gradient
    assert found["optimizer"] == 0  # without a bandwidth, only FLOPs take time


def checkpointed() -> int:
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False))
    x = torch.ones(8, 32, requires_grad=True)
    return cost(lambda: checkpoint(net, x, use_reentrant=False).sum().backward())


def test_what_checkpointing_computes_again_is_counted():
    (found,) = Cluster(1, machine="1 GFLOP/s").run(checkpointed).results
    products = 2 + 1 + 4  # the forward; again, up to the last layer's input; the backward
    assert found == products * 2 * 8 * 32 * 32


def compiled() -> int:
    net = torch.compile(nn.Linear(16, 16, bias=False))
    x = torch.ones(4, 16)
    return cost(lambda: net(x))


def test_what_is_compiled_runs_eagerly_and_is_counted():
    assert Cluster(1, machine="1 GFLOP/s").run(compiled).results == [2 * 4 * 16 * 16]


def local_parts() -> tuple[int, bool]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    a, b = torch.randn(8, 16), torch.randn(16, 8)
    left = distribute_tensor(a, mesh, [Shard(0)])
    right = distribute_tensor(b, mesh)
    left @ right
    took = cost(lambda: left @ right)
    return took, torch.equal((left @ right).full_tensor(), a @ b)


def test_of_a_dtensor_the_local_part_is_counted_once():
    for took, right in Cluster(4, machine="1 GFLOP/s").run(local_parts).results:
        assert took == 2 * 2 * 16 * 8  # a quarter of the rows
        assert right


def of_a_thread() -> tuple[int, int]:
    found = []
    a = torch.ones(10, 10)
    busy("1 ms")
    thread = threading.Thread(target=lambda: found.append((cost(lambda: a @ a), time.time())))
    begin = time.time()
    thread.start()
    thread.join()
    took, now = found[0]
    return took, round((now - begin) * 1e6)


def test_a_thread_counts_on_a_clock_of_its_own_from_where_it_was_started():
    assert Cluster(1, machine="1 GFLOP/s").run(of_a_thread).results == [(2000, 2)]


def looks() -> float:
    begin = time.perf_counter()
    while time.perf_counter() < begin + 0.05:
        pass
    return time.perf_counter() - begin


def test_a_loop_around_the_time_ends():
    (found,) = Cluster(1, machine="A100").run(looks).results
    assert 0.05 <= found < 0.052


def one_product() -> int:
    a = torch.ones(100, 100)
    return cost(lambda: a @ a)


def test_each_rank_has_its_machine_and_its_speed():
    fast, slow = MachineModel.parse("2 GFLOP/s"), "1 GFLOP/s"
    run = Cluster(
        4, machine={"default": slow, 1: fast}, speed={2: 0.5, 3: math.inf}, link=LINK
    ).run(one_product)
    assert run.results == [2_000_000, 1_000_000, 4_000_000, 0]
    assert run.trace.facts["machine"] == "1 GFLOP/s; rank 1: 2 GFLOP/s"
    assert run.trace.facts["time"] == "emulated"


def an_all_reduce() -> int:
    x = torch.ones(1000)
    dist.barrier()
    return cost(lambda: dist.all_reduce(x))


def test_without_a_link_the_network_takes_no_time():
    cluster = Cluster(2, machine="A100")
    assert "emulated: unlimited" in repr(cluster)
    assert "machine A100" in repr(cluster)
    assert Cluster(2, machine="1 TFLOP/s").run(an_all_reduce).results == [0, 0]
