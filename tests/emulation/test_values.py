"""The emulated link: right values, never faster than its rules, no deadlock on slow links.

Upper bounds on time would fail on a busy machine, so no test has one.
"""

import math
import time

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster, ClusterError, Deadlock, PerRank, Trace

pytestmark = pytest.mark.processes

LINK = "1 Gbit/s, 200 us"
ALPHA, BETA = 200e-6, 125e6


def test_a_cluster_says_that_its_link_is_emulated():
    cluster = Cluster(2, link=LINK)
    assert repr(cluster) == "2 ranks · gloo · cpu · emulated: 1 Gbit/s, 200 us"
    assert cluster.run(dist.get_rank).trace.facts["emulated"] == LINK


@pytest.mark.parametrize("link", ["fast", "1 Gbit", "", {7: "1 Gbit/s"}, 3])
def test_a_link_that_cannot_be_read_is_one_sentence(link):
    with pytest.raises(ClusterError) as caught:
        Cluster(2, link=link)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) > 20


def every_operation() -> dict[str, object]:
    """Return the results of each operation of torch.distributed on this rank."""
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = torch.arange(6, dtype=torch.float64) + 10 * rank
    parts = list((torch.arange(2.0 * n) + 100 * rank).chunk(n))

    def filled(operation, *outputs):
        operation()
        return [output.clone() for output in outputs]

    x, y, root = mine.clone(), torch.empty(2), n - 1
    many = [torch.empty_like(mine) for _ in range(n)]
    two = [torch.empty(2) for _ in range(n)]
    objects: list[object] = [None] * n
    group = dist.new_group([0, n - 1])
    result = {
        "all_reduce": filled(lambda: dist.all_reduce(x), x),
        "all_reduce max": filled(lambda: dist.all_reduce(x, dist.ReduceOp.MAX), x),
        "broadcast": filled(lambda: dist.broadcast(x, src=root), x),
        "all_gather": filled(lambda: dist.all_gather(many, mine), *many),
        "reduce_scatter": filled(lambda: dist.reduce_scatter(y, parts), y),
        "all_to_all": filled(lambda: dist.all_to_all(two, parts), *two),
        "objects": filled(lambda: dist.all_gather_object(objects, {"rank": rank})) or objects,
        "barrier": dist.barrier(),
    }
    into = many if rank == root else None
    dist.gather(mine, into, dst=root)
    result["gather"] = many if rank == root else None
    dist.scatter(y, parts if rank == 0 else None, src=0)
    result["scatter"] = y.clone()
    z = mine.clone()
    dist.reduce(z, dst=root)
    result["reduce"] = z if rank == root else None
    if rank in (0, n - 1):
        dist.all_reduce(z := mine.clone(), group=group)
        result["sub-group"] = z
    return result


@pytest.mark.parametrize("world_size", [2, 3])
def test_every_operation_gives_what_it_gives_without_a_link(world_size):
    plain = Cluster(world_size).run(every_operation).results
    paced = Cluster(world_size, link="10 Gbit/s, 50 us").run(every_operation).results
    for rank in range(world_size):
        assert plain[rank].keys() == paced[rank].keys()
        for name in plain[rank]:
            assert _same(plain[rank][name], paced[rank][name]), (rank, name)


def _same(a, b) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def asynchronous() -> list[torch.Tensor]:
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, left, any_ = torch.full((3,), float(rank)), torch.empty(3), torch.empty(3)
    operations = [
        dist.P2POp(dist.isend, mine, (rank + 1) % n),
        dist.P2POp(dist.irecv, left, (rank - 1) % n),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    sums = [torch.full((4,), float(rank + k)) for k in range(5)]
    works = [dist.all_reduce(each, async_op=True) for each in sums]
    for work in reversed(works):
        work.wait()
    assert all(work.is_completed() for work in works)
    sending = dist.isend(mine, (rank + 1) % n, tag=5)
    source = dist.recv(any_, tag=5)
    sending.wait()
    assert source == (rank - 1) % n
    return [left, any_, *sums]


def test_asynchronous_work():
    for rank, values in enumerate(Cluster(3, link=LINK).run(asynchronous).results):
        left = float((rank - 1) % 3)
        sums = [float(3 + 3 * k) for k in range(5)]
        assert [each[0].item() for each in values] == [left, left, *sums]


def communicate(operation: str, nbytes: int) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    x = torch.ones(nbytes // 4)
    if operation == "all_reduce":
        dist.all_reduce(x)
    elif operation == "broadcast":
        dist.broadcast(x, src=0)
    elif operation == "to rank 0":
        if rank:
            dist.send(x, dst=0)
        else:
            for peer in range(1, n):
                dist.recv(x, src=peer)
    elif operation == "ping-pong" and rank < 2:
        for sender in (0, 1):
            dist.send(x, 1 - rank) if rank == sender else dist.recv(x, 1 - rank)


def seconds_of(trace: Trace) -> float:
    """Return the seconds from the first post to the last end of an operation, over all ranks."""
    return (trace.end_ns - trace.start_ns) / 1e9


@pytest.mark.parametrize(
    ("operation", "seconds"),
    [
        ("all_reduce", lambda n, wire: 2 * (n - 1) * ALPHA + 2 * (n - 1) / n * wire),
        ("broadcast", lambda n, wire: math.ceil(math.log2(n)) * (ALPHA + wire)),
        ("to rank 0", lambda n, wire: ALPHA + (n - 1) * wire),  # rank 0 has only one incoming side
        ("ping-pong", lambda n, wire: 2 * (ALPHA + wire)),
    ],
)
@pytest.mark.parametrize("world_size", [2, 4])
def test_nothing_is_faster_than_the_link(operation, seconds, world_size):
    nbytes = 2_000_000
    run = Cluster(world_size, link=LINK, record=False).run(communicate, operation, nbytes)
    assert seconds_of(run.trace) >= seconds(world_size, nbytes / BETA) * (1 - 1e-6)


def test_a_slow_rank_slows_its_messages_only():
    links = {"default": "10 Gbit/s, 10 us", 2: "100 Mbit/s, 10 us"}
    trace = Cluster(3, link=links).run(to_both).trace
    took = {s.rank: s.end_ns - trace.start_ns for s in trace.spans if s.is_recv}
    assert took[2] >= 80e6  # 1 MB at 12.5 MB/s
    assert took[1] < took[2]


def to_both() -> None:
    """Send 1 MB from rank 0 to each other rank, one after the other."""
    x = torch.ones(250_000)
    if dist.get_rank() == 0:
        for peer in (1, 2):
            dist.send(x, dst=peer)
    else:
        dist.recv(x, src=0)


def train(steps: int, seed: int = 0) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.005)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(dist.get_rank())
    for step in range(steps):
        optimizer.zero_grad()
        if step % 3 == 1:
            with model.no_sync():
                model(torch.randn(16, 64)).sum().backward()
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def test_torch_ddp_runs_on_it_unchanged():
    plain, paced = Cluster(2).run(train, 6), Cluster(2, link=LINK).run(train, 6)
    for rank in (0, 1):
        assert all(map(torch.equal, plain.results[rank], paced.results[rank]))
    collectives = [span for span in paced.trace.of(0) if span.is_collective]
    assert [s.name for s in collectives] == [s.name for s in plain.trace.of(0) if s.is_collective]


def backward_of_a_wide_model() -> None:
    model = nn.Sequential(*(nn.Linear(512, 512) for _ in range(4)))  # 1 MB each
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):  # the first step has one bucket; torch rebuilds the buckets afterwards
        optimizer.zero_grad()
        model(torch.randn(16, 512)).sum().backward()
        optimizer.step()


def test_ddp_posts_its_first_bucket_before_the_last_gradient_is_ready():
    trace = Cluster(2, link=LINK).run(backward_of_a_wide_model).trace.step(-1)
    for rank in (0, 1):
        posted = min(span.start_ns for span in trace.of(rank) if span.is_collective)
        last = max(span.start_ns for span in trace.of(rank) if span.kind == "backward")
        assert posted < last


def cpu_while_waiting() -> tuple[float, float]:
    """Return the CPU and wall seconds of this rank's process during one long all_reduce."""
    x = torch.ones(1_000_000)
    dist.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    dist.all_reduce(x)
    return time.process_time() - cpu, time.perf_counter() - wall


def test_waiting_for_the_link_burns_no_cpu():
    for cpu, wall in Cluster(2, link="16 Mbit/s").run(cpu_while_waiting).results:  # 2 s
        assert wall >= 1.9
        assert cpu < wall / 4  # for the transfer itself, and the agent


@pytest.mark.slow
def test_a_slow_link_is_no_deadlock():
    run = Cluster(2, link="1 Mbit/s").run(communicate, "ping-pong", 250_000)
    assert seconds_of(run.trace) > 3.9  # for 2 s at a time, nothing moves


def crossed(first: int) -> None:
    x, other = torch.ones(1), 1 - dist.get_rank()
    dist.recv(x, src=other)
    dist.send(x, dst=other)


def test_a_deadlock_on_a_link_is_explained():
    with pytest.raises(Deadlock, match="recv\\(src=1\\)"):
        Cluster(2, link=LINK).run(crossed, PerRank([0, 1]))
