"""The memory of a modelled machine: counts by hand, to the byte; and programs that do not fit."""

import json
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel as DDP

from ddpkit import Cluster, RankError, Trace, busy
from ddpkit.protocol.raised import Raised
from ddpkit.trace import MEMORY_KINDS, MemoryLevel
from ddpkit.trace.memory import inside

pytestmark = pytest.mark.processes

WIDTH, LAYERS, ROWS = 32, 4, 16
PROCESSOR = "20 TFLOP/s, 2 TB/s, 80 GB, 5 us"
LAYER = 4 * (WIDTH * WIDTH + WIDTH)  # bytes
PARAMETERS = LAYERS * LAYER
ACTIVATION = 4 * ROWS * WIDTH


def model(bias: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=bias) for _ in range(LAYERS)))


def at(trace: Trace, rank: int, ns: int) -> dict[str, int]:
    """Return the bytes that a rank held at a time, by kind."""
    level = [each for each in trace.memory[rank] if each.ns <= ns][-1]
    return dict(zip(MEMORY_KINDS, level.nbytes, strict=True))


def now() -> int:
    """Return a time that is not the time of any allocation before or after."""
    busy("1 us")
    ns = time.perf_counter_ns()
    busy("1 us")
    return ns


def forward_and_backward() -> list[int]:
    net, x = model(bias=False), torch.ones(ROWS, WIDTH)
    y = net(x).sum()
    moments = [now()]
    y.backward()
    moments.append(now())
    del x, y
    return [*moments, now()]


def test_activations_are_held_from_forward_to_backward():
    run = Cluster(1, machine="A100").run(forward_and_backward)
    held = [at(run.trace, 0, ns) for ns in run.results[0]]
    parameters = LAYERS * 4 * WIDTH * WIDTH
    assert [each["parameters"] for each in held] == [parameters] * 3
    # Each layer's input, and the sum. Then the first input and the sum, which the caller holds.
    assert [each["activations"] for each in held] == [LAYERS * ACTIVATION + 4, ACTIVATION + 4, 0]
    assert [each["gradients"] for each in held] == [0, parameters, parameters]
    peak = run.trace.peak(0)
    assert peak is not None
    assert peak.total == max(level.total for level in run.trace.memory[0])


def moved() -> int:
    net = model(bias=False).to(torch.bfloat16)  # other storages in the same parameters
    with torch.no_grad():
        net(torch.ones(ROWS, WIDTH, dtype=torch.bfloat16))
    return now()


def test_parameters_that_have_moved_are_parameters():
    run = Cluster(1, machine="A100").run(moved)
    held = at(run.trace, 0, run.results[0])
    assert (held["parameters"], held["activations"]) == (LAYERS * 2 * WIDTH * WIDTH, 0)


def data_parallel(views: bool) -> int:
    net = DDP(model(), bucket_cap_mb=0.005, gradient_as_bucket_view=views)
    for _ in range(3):
        net.zero_grad()
        net(torch.ones(ROWS, WIDTH)).sum().backward()
    return now()


@pytest.mark.parametrize("views", [True, False])
def test_buckets_hold_the_gradients_or_a_copy_of_them(views: bool):
    run = Cluster(2, machine="A100").run(data_parallel, views)
    for rank, ns in enumerate(run.results):
        held = at(run.trace, rank, ns)
        assert held["parameters"] == PARAMETERS
        assert held["buckets"] == PARAMETERS
        assert held["gradients"] == (0 if views else PARAMETERS)


def sharded_optimizer(shards: int) -> int:
    """Train by Adam with its state divided among `shards` ranks, as in ZeRO's first stage."""
    net = model()
    mine = list(net.parameters())[dist.get_rank() % shards :: shards]
    adam = torch.optim.Adam(mine)
    for _ in range(2):
        net.zero_grad()
        net(torch.ones(ROWS, WIDTH)).sum().backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        adam.step()
        for place, parameter in enumerate(net.parameters()):
            dist.broadcast(parameter.detach(), place % shards)
    return now()


def test_sharding_divides_the_optimizers_state():
    run = Cluster(4, machine=PROCESSOR, link="10 Gbit/s, 5 us").run(sharded_optimizer, 4)
    bytes_of = [4 * WIDTH * WIDTH, 4 * WIDTH] * LAYERS
    for rank, ns in enumerate(run.results):
        mine = bytes_of[rank::4]
        held = at(run.trace, rank, ns)
        assert held == {
            "parameters": PARAMETERS,
            "gradients": PARAMETERS,
            "optimizer": 2 * sum(mine) + 4 * len(mine),  # two moments, and the number of the step
            "buckets": 0,
            "activations": 0,
        }


def test_the_same_training_fits_on_four_ranks_and_not_on_one():
    need = 4 * PARAMETERS - 2000  # two copies, and Adam's two; the weights alone are 4 kB each
    machine = f"1 TFLOP/s, 100 GB/s, {need} B, 5 us"
    Cluster(4, machine=machine).run(sharded_optimizer, 4)
    with pytest.raises(RankError) as raised:
        Cluster(1, machine=machine).run(sharded_optimizer, 1)
    said = " ".join(str(raised.value).split())
    assert "rank 0 raised OutOfMemoryError" in said
    assert "The memory would hold: parameters 16.9 kB, gradients 16.9 kB, optimizer" in said
    assert "sharding divides parameters, gradients and optimizer state" in said
    assert "(in sharded_optimizer)" in said
    assert raised.value.run.trace.memory[0]
    full = raised.value.raised[0].full
    assert full == raised.value.__cause__.full
    assert (full.machine, full.rank, full.limit) == (machine, 0, need)
    assert full.used <= full.limit < full.used + full.asked
    assert 0 < sum(full.alive.values()) <= full.used + full.asked
    assert full.alive["parameters"] == full.alive["gradients"] == PARAMETERS
    assert Raised.from_json(json.loads(json.dumps(raised.value.raised[0].to_json()))).full == full


def test_shards_without_an_optimizer_are_parameters_in_a_full_memory():
    """No module has the shards in the first forward, and the error called them activations."""

    def forward() -> None:
        mesh = init_device_mesh("cpu", (2,))
        layers = nn.Sequential(nn.Linear(100, 100, bias=False), nn.Linear(100, 100, bias=False))
        for layer in layers:
            fully_shard(layer, mesh=mesh)
        fully_shard(layers, mesh=mesh)
        layers(torch.ones(100, 100))

    with pytest.raises(RankError) as raised:
        Cluster(2, machine="1 TFLOP/s, 100 GB/s, 180 kB, 5 us").run(forward)
    shards, gathered = 2 * 20_000, 40_000
    assert raised.value.raised[0].full.alive["parameters"] == shards + gathered


def test_a_rank_may_catch_that_its_memory_is_full():
    def job() -> str:
        try:
            torch.ones(1000)
        except torch.OutOfMemoryError:
            return f"{torch.ones(10).sum():.0f}"
        return "no limit"

    assert Cluster(1, machine="1 GFLOP/s, 1 kB").run(job).results == ["10"]


def gathers_and_forgets(times: int) -> None:
    """Call collectives; the program drops some tensors at once, and some later."""
    for _ in range(times):
        mine = torch.ones(1000) * dist.get_rank()
        parts = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, mine)
        joined = torch.cat(parts) * 2
        del parts, mine
        work = dist.all_reduce(joined, async_op=True)
        work.wait()
        del work, joined


def test_what_gloo_has_carried_is_freed_by_the_program():
    """Levels are equal in all runs, and the peak is the most that the program holds at a time.

    gloo's threads release the tensors of a collective a moment after its wait is over.
    """
    cluster = Cluster(3, link="1 Gbit/s, 10 us", machine="laptop core")
    times = 20
    first, *others = (cluster.run(gathers_and_forgets, times).trace for _ in range(4))
    whole = 4000
    # three parts, the rank's own part, and the joined tensor with its double: all ranks make these
    # before any is dropped
    assert [first.peak(rank).total for rank in range(3)] == [whole * (1 + 3 + 3 + 3)] * 3
    for other in others:
        assert other.memory == first.memory


def test_a_collective_that_is_over_still_answers():
    cluster = Cluster(2, link="1 Gbit/s, 10 us", machine="laptop core")
    assert cluster.run(asks_after_the_wait).results == [[3.0, True, True, True]] * 2


def asks_after_the_wait() -> list[object]:
    x = torch.tensor([1.0 + dist.get_rank()])
    work = dist.all_reduce(x, async_op=True)
    work.wait()
    (value,) = work.get_future().wait()
    return [value.item(), work.is_completed(), work.is_success(), work.result()[0] is not None]


def test_a_file_keeps_what_was_held(tmp_path: Path):
    trace = Cluster(2, machine="A100").run(data_parallel, True).trace
    path = tmp_path / "run.json.gz"
    trace.save(path)
    assert Trace.load(path).memory == trace.memory
    trace.to_chrome(tmp_path / "all.json")
    text = (tmp_path / "all.json").read_text()
    shown = [inside(trace.memory[rank], *trace.window_of(rank)) for rank in trace.ranks]
    assert text.count('"ph": "C"') == sum(map(len, shown)) > 100


def test_the_peak_of_a_window_is_that_of_its_levels():
    levels = tuple(MemoryLevel(ns, (ns, 0, 0, 0, 0)) for ns in (10, 20, 30))
    trace = Trace((), 1, memory={0: levels})
    assert trace.window(15, 25).peak(0) == levels[1]
    assert trace.window(31, 32).peak(0) == levels[2]
    assert trace.window(0, 5).peak(0) is None
    assert Trace((), 1).peak(0) is None
    assert levels[0].of("parameters") == levels[0].total == 10


class Rows(torch.utils.data.Dataset):
    """Rows that one of two workers is slow to make, in real time."""

    def __init__(self, slow: int) -> None:
        self.slow = slow

    def __len__(self) -> int:
        return 6

    def __getitem__(self, k: int) -> torch.Tensor:
        time.sleep(0.2 * (k % 2 == self.slow))
        return torch.full((WIDTH,), float(k))


def train_with_workers(slow: int) -> float:
    net, total = model(), 0.0
    for x in torch.utils.data.DataLoader(Rows(slow), num_workers=2):
        total += net(x).sum().item()
    return total


def test_batches_of_workers_count_when_the_program_has_them():
    """Workers finish in an order of real time; a batch that came early does not count yet."""
    runs = [Cluster(1, machine="A100").run(train_with_workers, slow) for slow in (0, 1)]
    assert runs[0].results == runs[1].results
    assert runs[0].trace.memory == runs[1].trace.memory
    assert "order" not in runs[0].trace.facts


def a_sparse_gradient() -> int:
    table = nn.Embedding(100, 8, sparse=True)
    table(torch.tensor([1, 2, 3])).sum().backward()
    moment = now()
    del table
    return moment


def test_a_sparse_gradient_counts_its_indices_and_values():
    run = Cluster(1, machine="A100").run(a_sparse_gradient)
    held = at(run.trace, 0, run.results[0])
    assert held["parameters"] == 4 * 100 * 8
    assert held["gradients"] == 3 * 8 + 3 * 4 * 8  # three indices, and three rows of 8 numbers


def a_fused_step_of_shards() -> tuple[int, int]:
    net = model(bias=False)
    for layer in (*net, net):
        fully_shard(layer)
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    net(torch.ones(ROWS, WIDTH)).sum().backward()
    before = now()
    optimizer.step()
    return before, now()


def test_the_fake_tensors_of_dtensor_hold_nothing():
    """DTensor computes the shapes of a step's results by fake tensors of the whole size."""
    run = Cluster(2, machine="A100").run(a_fused_step_of_shards)
    before, after = run.results[0]
    most = max(level.total for level in run.trace.memory[0] if before <= level.ns <= after)
    shard = LAYERS * 4 * WIDTH * WIDTH // 2
    assert 4 * shard <= most < 4 * shard + 100  # parameters, gradients, moments; a few counters
