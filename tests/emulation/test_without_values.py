"""Ranks without values: equal times, bytes and levels to a run that computes everything."""

from __future__ import annotations

import copy
import itertools
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from benchmarks._counted import PROGRAMS, layers, train
from ddpkit import Cluster, ClusterError, RankError, Run, stated
from ddpkit.cluster.local import run as local
from ddpkit.errors import Interrupted
from ddpkit.protocol import not_computed
from tests.cluster.explained import ends_explained
from tests.cluster.faults import FAULTS, Fault
from tests.cluster.processes import becomes_true, ranks_alive

pytestmark = pytest.mark.processes

LINK = "10 Gbit/s, 5 us"
CPU, GPU = "1 TFLOP/s, 100 GB/s, 64 GB, 5 us", "A100"
FEW = 48  # elements up to which the tests compute, because the models are small


def with_few(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function on a rank that computes only few elements."""
    not_computed.SMALL = FEW
    return function(*args)


def with_and_without(function: Callable[..., Any], *args: Any, n: int = 2, machine: str = CPU):
    """Run a function with values, and then without."""
    known = Cluster(n, link=LINK, machine=machine).run(function, *args)
    unknown = Cluster(n, link=LINK, machine=machine, values=False).run(with_few, function, *args)
    assert unknown.trace.facts["values"] == "not computed"
    return known, unknown


def assert_equal(known: Run[Any], unknown: Run[Any]) -> None:
    assert len(known.trace.spans) > 5
    assert sorted(map(repr, unknown.trace.spans)) == sorted(map(repr, known.trace.spans))
    assert unknown.traffic == known.traffic
    assert unknown.trace.memory == known.trace.memory


# Programs


def convolutions() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.1)),
        *(nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(8, 10)),
    )
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(3):
        for last in (False, True):
            x, y = torch.randn(6, 3, 16, 16), torch.randint(10, (6,))
            net.require_backward_grad_sync = last
            F.cross_entropy(net(x.contiguous(memory_format=torch.channels_last)), y).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def transformer() -> None:
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    embedding, last = nn.Embedding(50, 32), nn.Linear(32, 50)
    layers = [
        nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True) for _ in range(2)
    ]
    net = nn.ModuleList([embedding, *layers, last])
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(3):
        ids = torch.randint(50, (4, 12))
        with torch.autocast("cpu", torch.bfloat16):
            x = embedding(ids)
            for layer in layers:
                x = checkpoint(layer, x, use_reentrant=False)
            loss = F.cross_entropy(last(x).float().flatten(0, 1), ids.flatten())
        scaler.scale(loss).backward()
        for parameter in net.parameters():
            dist.all_reduce(parameter.grad)
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert {int(state["step"]) for state in optimizer.state.values()} == {3}  # no step was skipped


def foreach_and_plain() -> None:
    for foreach in (False, True):
        net = nn.Sequential(*(nn.Linear(20, 20) for _ in range(4)))
        optimizer = torch.optim.AdamW(net.parameters(), foreach=foreach)
        for _ in range(2):
            net(torch.randn(5, 20)).square().mean().backward()
            optimizer.step()


def losses() -> None:
    x = torch.randn(20, 10, requires_grad=True)
    y, label = torch.rand(20, 10), torch.randint(10, (20,))
    for reduction in ("mean", "sum"):
        total = F.cross_entropy(x, label, reduction=reduction)
        for loss in (F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss):
            total = total + loss(x, y, reduction=reduction)
        for loss in (F.poisson_nll_loss, F.kl_div, F.binary_cross_entropy_with_logits):
            total = total + loss(x, y, reduction=reduction)
        total = total + F.binary_cross_entropy(x.sigmoid(), y, reduction=reduction)
        total.backward()


def layers_of_all_kinds() -> None:
    images = torch.randn(2, 4, 12, 12, requires_grad=True)
    for layer in (
        *(nn.Conv2d(4, 8, 3, padding=1), nn.ConvTranspose2d(4, 4, 2, 2), nn.MaxPool2d(2)),
        *(nn.AvgPool2d(2), nn.InstanceNorm2d(4), nn.Upsample(scale_factor=2, mode="bilinear")),
        *(nn.SiLU(), nn.Mish(), nn.Softplus(), nn.LeakyReLU(), nn.ReflectionPad2d(1), nn.GLU(1)),
    ):
        layer(images).sum().backward()
    words = torch.randn(3, 7, 16, requires_grad=True)
    # torch's fake LSTM on a CPU lacks the memory in which oneDNN works (docs/emulation.md)
    nn.GRU(16, 8, batch_first=True)(words)[0].sum().backward()
    nn.MultiheadAttention(16, 2, batch_first=True)(words, words, words)[0].sum().backward()
    for layer in (nn.LayerNorm(16), nn.RMSNorm(16), nn.Softmax(-1), nn.LogSoftmax(-1)):
        layer(words).sum().backward()
    half = words.detach().to(torch.bfloat16).requires_grad_()
    for layer in (nn.LayerNorm(16), nn.RMSNorm(16), nn.Linear(16, 16)):
        layer.to(torch.bfloat16)(half).sum().backward()
    ids = torch.randint(30, (4, 9))
    table = nn.Embedding(30, 8, sparse=True)
    table(ids).sum().backward()
    torch.optim.SGD(table.parameters(), lr=0.1).step()
    torch.einsum("bij,bkj->bik", words, words).tril().sum().backward()
    words.topk(3).values.cumsum(-1).std().backward()
    (words.sort(-1).values.var(0).logsumexp(1).norm() + words.amax()).backward()


def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    torch.manual_seed(0)
    net = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)))
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
    for _ in range(2):
        net(torch.randn(5, 40)).square().mean().backward()
        optimizer.step()


def mixed_shards() -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    net = nn.Sequential(*(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(4)))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in (*net, net):
        fully_shard(layer, mp_policy=policy)
    train(net, torch.optim.AdamW(net.parameters(), fused=True))


def every_call() -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for size in (4, 200):  # a size that is carried, and a size that is not
        x = torch.ones(size) * rank
        parts = [torch.zeros(size) for _ in range(n)]
        dist.all_reduce(x)
        dist.all_reduce(x, async_op=True).wait()
        dist.broadcast(x, 0)
        dist.reduce(x, n - 1)
        dist.all_gather(parts, x)
        dist.gather(x, parts if rank == 0 else None, dst=0)
        dist.scatter(x, parts if rank == 0 else None, src=0)
        dist.reduce_scatter(x, parts)
        dist.all_to_all(parts, [x.clone() for _ in range(n)])
        many = torch.zeros(n * size)
        dist.all_gather_into_tensor(many, x)
        dist.reduce_scatter_tensor(x, many)
        dist.all_to_all_single(many, many.clone())
        uneven = torch.zeros(sum(range(1, n + 1)) * size)
        mine = torch.zeros((rank + 1) * n * size)
        takes = [(r + 1) * size for r in range(n)]
        dist.all_to_all_single(uneven, mine, takes, [(rank + 1) * size] * n)
        other = (rank + 1) % n
        operations = [dist.P2POp(dist.isend, x, other), dist.P2POp(dist.irecv, parts[0], rank - 1)]
        operations[1] = dist.P2POp(dist.irecv, parts[0], (rank - 1) % n)
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        if rank:
            dist.send(x, 0, tag=3)
        else:
            for _ in range(n - 1):
                dist.recv(x, tag=3)
        future = dist.all_reduce(x, async_op=True).get_future()
        future.then(lambda done: done.value()[0].div_(n)).wait()
        objects = [{"text": "a" * 3000 * size, "rank": rank} for _ in range(n)]
        dist.broadcast_object_list(objects, src=0)
        assert objects[0]["rank"] == 0
        everyone: list[Any] = [None] * n
        dist.all_gather_object(everyone, ("a" * 3000 * size, rank))
        assert [number for _, number in everyone] == [*range(n)]
        dist.barrier()


def functional_calls(side: int = 36) -> None:
    """Call each functional collective, on a contiguous tensor and on a strided one."""
    from torch.distributed import _functional_collectives as functional

    group = dist.group.WORLD
    warnings.filterwarnings(
        "ignore", category=FutureWarning
    )  # for newer names, which older versions of torch lack
    for x in (torch.ones(side, side), torch.ones(side, side).t()):
        for y in (
            functional.all_reduce(x, "sum", group),
            functional.broadcast(x, 0, group),
            functional.all_gather_tensor(x, 0, group),
            functional.reduce_scatter_tensor(x, "sum", 0, group),
            functional.all_to_all_single(x, None, None, group),
            *functional.all_reduce_coalesced([x, x], "sum", group),
            *functional.all_gather_into_tensor_coalesced([x, x], group),
            *functional.reduce_scatter_tensor_coalesced([x, x], "sum", [0, 0], group),
        ):
            assert functional.wait_tensor(y).is_contiguous()


HERE: dict[str, Callable[[], Any]] = {
    "functional calls": functional_calls,
    "convolutions": convolutions,
    "transformer": transformer,
    "foreach": foreach_and_plain,
    "losses": losses,
    "layers": layers_of_all_kinds,
    "ZeRO": zero,
    "FSDP2 in bfloat16": mixed_shards,
    "every call": every_call,
}


@pytest.mark.parametrize("machine", [CPU, GPU], ids=["cpu", "device"])
@pytest.mark.parametrize("program", [*PROGRAMS, *HERE])
def test_times_bytes_and_levels_are_equal(program: str, machine: str):
    n = 3 if program == "every call" else 2
    assert_equal(*with_and_without((PROGRAMS | HERE)[program], n=n, machine=machine))


def test_the_shared_programs_are_not_computed():
    """The comparisons above would show nothing if the ranks computed the layers."""

    def layer_is_computed() -> bool:
        return not not_computed.is_marked(layers()(torch.randn(16, 32)))

    unknown = Cluster(1, machine=CPU, values=False).run(with_few, layer_is_computed)
    assert unknown.results == [False]
    assert Cluster(1, machine=CPU).run(layer_is_computed).results == [True]


# Values


def reading() -> tuple[Any, ...]:
    large = torch.randn(300, 300)
    total = large.sum()
    value = total.item()  # a read
    row = large[0].tolist()  # a read
    known = torch.arange(5.0).sum().item()
    finite = bool(torch.isfinite(large).all())  # a read
    return value, set(row), known, finite, large.mean(0).max().item()  # a read


def test_a_value_that_was_not_computed_is_zero_and_its_reads_are_told():
    run = Cluster(2, machine=CPU, values=False).run(reading)
    assert run.results == [(0.0, {0.0}, 10.0, True, 0.0)] * 2
    first = reading.__code__.co_firstlineno
    lines = str(run.trace.facts["reads"])
    assert [f"line {first + k} (2 reads)" in lines for k in (3, 4, 6, 7)] == [True] * 4
    assert f"line {first + 5} " not in lines


def test_torchs_own_reads_are_not_told():
    run = Cluster(2, machine=CPU, values=False).run(with_few, transformer)
    reads = str(run.trace.facts["reads"])  # the read at the end of the program
    texts = enumerate(Path(__file__).read_text("utf-8").splitlines(), 1)
    line = next(number for number, text in texts if "no step was skipped" in text)
    assert reads.startswith(f"line {line} (")
    assert "," not in reads


def masked(state: bool) -> list[float]:
    scores = torch.randn(300, 300)
    row = scores[0] > 0
    if state:
        row = stated(row, [True] * 100 + [False] * 200)
    return scores[0][row].shape


@pytest.mark.parametrize(
    "call",
    [
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.masked_select(x, x > 0),
        lambda x: torch.unique(x),
    ],
)
def test_a_shape_that_depends_on_values_is_one_sentence(call):
    def shaped() -> None:
        call(torch.randn(300, 300))

    with pytest.raises(RankError, match="depends on values, and this run computes none") as caught:
        Cluster(1, machine=CPU, values=False).run(shaped)
    assert "ddpkit.stated" in str(caught.value)
    assert f"line {shaped.__code__.co_firstlineno + 1}" in str(caught.value)


def test_stated_values_are_used_without_values_and_only_there():
    assert Cluster(1, machine=CPU, values=False).run(masked, True).results == [(100,)]
    (shape,) = Cluster(1, machine=CPU).run(masked, True).results
    assert 100 < shape[0] < 200
    x = torch.ones(3)
    assert stated(x, 5) is x

    def wrong() -> None:
        stated(torch.ones(3), [1.0, 2.0])

    with pytest.raises(RankError, match=r"the shape \[3\], and the values have \[2\]"):
        Cluster(1, machine=CPU, values=False).run(wrong)


def test_known_values_of_any_size_give_shapes():
    def known() -> int:
        data = torch.frombuffer(bytearray(range(200)) * 1000, dtype=torch.uint8)
        return len(data.nonzero())

    assert Cluster(1, machine=CPU, values=False).run(known).results == [199_000]


def exchange_views() -> tuple[float, float]:
    large = torch.empty(1 << 20)
    large.normal_()
    small = large[5:9]
    dist.all_reduce(small)
    other = torch.full((4,), 7.0)
    if dist.get_rank():
        dist.send(small, 0)
    else:
        dist.recv(other, 1)
    return float(small.sum()), float(other.sum())


def test_a_message_of_a_small_view_carries_zeros():
    results = Cluster(2, machine=CPU, values=False).run(exchange_views).results
    assert results == [(0.0, 0.0), (0.0, 28.0)]


# Memory and files


def grown() -> int:
    """Return the MB by which a model of 4 GB, and a step of the model, make the process grow."""
    torch.randn(300, 300).softmax(0).sum()
    before = resident()
    net = nn.Sequential(*(nn.Linear(8192, 8192, bias=False) for _ in range(4)))
    net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    for _ in range(2):
        net(torch.randn(4096, 8192)).square().mean().backward()
        optimizer.step()
    state = copy.deepcopy(net.module.state_dict())
    net.module.load_state_dict(state)
    return (resident() - before) >> 20


def resident() -> int:
    text = Path("/proc/self/statm").read_text("ascii")
    return int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_the_process_does_not_grow_with_the_model():
    run = Cluster(2, machine=CPU, values=False).run(grown)
    assert max(run.results) < 150
    assert max(level.total for level in run.trace.memory[0]) > 4 * 8192**2 * 4 * 4


def peak_of_functional_calls() -> int:
    import resource

    functional_calls()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB on Linux
    functional_calls(4096)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss has another unit elsewhere")
def test_functional_collectives_touch_no_memory():
    run = Cluster(2, machine=CPU, values=False).run(peak_of_functional_calls)
    assert max(run.results) < 4096**2 * 4 >> 20  # MiB of one tensor


def in_safetensors(folder: Path) -> tuple[int, int, bool, float, bool, float]:
    from safetensors.torch import load, load_file, save, save_file, save_model

    net, file = nn.Linear(2000, 2000), folder / f"net{dist.get_rank()}.safetensors"
    with torch.no_grad():
        net.bias.fill_(3.0)
    save_file(net.state_dict(), file, metadata={"made": "here"})
    found, same = load_file(file), load(save(net.state_dict()))
    net.load_state_dict(found)
    save_model(net, str(folder / f"model{dist.get_rank()}.safetensors"))
    return (
        file.stat().st_size,
        found["weight"].numel(),
        not_computed.is_marked(found["weight"]) and not_computed.is_marked(same["weight"]),
        found["bias"].sum().item(),
        same["weight"].shape == found["weight"].shape,
        (net.weight @ torch.ones(2000)).sum().item(),
    )


def test_files_of_safetensors_hold_shapes_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    library = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    run = Cluster(2, machine=CPU, values=False).run(in_safetensors, tmp_path)
    printed = capsys.readouterr().out
    assert "files get the shapes of large tensors only" in printed
    assert f"{Path(__file__).name}:" in printed
    for nbytes, elements, marked, total, alike, product in run.results:
        assert nbytes < 20_000
        assert (elements, marked, total, alike, product) == (2000**2, True, 6000.0, True, 0.0)
    assert set(library.load_file(tmp_path / "net0.safetensors")) == {"bias"}  # outside of a run
    known = Cluster(1, machine=CPU).run(in_safetensors, tmp_path).results[0]
    assert known[0] > 2000**2 * 4
    assert not known[2]


def test_files_hold_shapes_and_are_small(tmp_path: Path):
    def saved(folder: Path) -> tuple[int, bool, float]:
        import torch.distributed.checkpoint as dcp

        net, file = nn.Linear(2000, 2000), folder / "net.pt"
        with torch.no_grad():
            net.bias.fill_(3.0)
        torch.save(net.state_dict(), file)
        with torch.no_grad():
            net.bias.fill_(0.0)
        net.load_state_dict(torch.load(file))
        dcp.save(net.state_dict(), checkpoint_id=folder / "parts")
        dcp.load(net.state_dict(), checkpoint_id=folder / "parts")
        files = [file, *(folder / "parts").iterdir()]
        total = (net.weight @ torch.ones(2000)).sum().item()
        return (
            sum(each.stat().st_size for each in files),
            net.weight.is_meta,
            net.bias[0].item() + total,
        )

    run = Cluster(1, machine=CPU, values=False).run(saved, tmp_path)
    size, is_meta, value = run.results[0]
    assert size < 200_000
    assert not is_meta
    assert value == 3.0
    assert "files get the shapes" in run.output
    state = torch.load(tmp_path / "net.pt")
    assert state["weight"].is_meta
    assert state["weight"].shape == (2000, 2000)
    assert state["bias"].tolist() == [3.0] * 2000


def test_a_large_tensor_in_an_object_arrives_as_its_shape():
    def exchanged() -> tuple[bool, float, tuple[int, ...]]:
        objects = [{"rows": torch.randn(300, 300)} if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(objects, src=0)
        rows = objects[0]["rows"]
        return rows.is_meta, rows.sum().item(), tuple(rows.shape)

    run = Cluster(2, machine=CPU, values=False).run(exchanged)
    assert run.results == [(False, 0.0, (300, 300))] * 2


def test_real_weights_are_loaded(tmp_path: Path):
    torch.save(torch.ones(500, 500), tmp_path / "w.pt")

    def loaded(file: Path) -> float:
        return float(torch.load(file)[7, 7])

    assert Cluster(1, machine=CPU, values=False).run(loaded, tmp_path / "w.pt").results == [1.0]


def test_a_large_result_comes_back_as_its_shape():
    (result,) = Cluster(1, machine=CPU, values=False).run(lambda: torch.randn(300, 300)).results
    assert result.is_meta
    assert result.shape == (300, 300)


# Failures


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_faults_are_explained_as_with_values(fault: Fault):
    cluster = Cluster(fault.world_size, link=LINK, machine=CPU, values=False)
    ends_explained(fault, cluster, "emulated")


def test_a_mismatch_of_sizes_is_one_without_values_too():
    def differs() -> None:
        dist.all_reduce(torch.ones(10 if dist.get_rank() else 1 << 20))

    texts = []
    for values in (True, False):
        run = Cluster(2, link=LINK, machine=CPU, values=values).run(differs, expect_error=True)
        texts.append(f"{type(run.error).__name__}: {run.error}")
    assert texts[0] == texts[1]
    assert texts[0].startswith("Mismatch")


def test_sizes_that_gloo_refuses_are_refused():
    def differs() -> None:
        dist.all_gather_into_tensor(torch.ones(3 << 20), torch.ones(1 << 20))

    texts = []
    for values in (True, False):
        run = Cluster(2, link=LINK, machine=CPU, values=values).run(differs, expect_error=True)
        texts.append(f"{type(run.error).__name__}: {run.error}")
    assert texts[0] == texts[1]


def test_out_of_memory_is_raised_and_told():
    def fills() -> None:
        nn.Linear(40_000, 40_000)

    texts = []
    for _ in range(2):
        machine = "1 TFLOP/s, 100 GB/s, 4 GB, 5 us"
        run = Cluster(2, machine=machine, values=False).run(fills, expect_error=True)
        texts.append(str(run.error))
    assert "OutOfMemoryError" in texts[0]
    assert "6.4 GB more do not fit" in texts[0]


def test_no_values_need_a_machine():
    with pytest.raises(ClusterError, match=r'give one, as in machine="A100"'):
        Cluster(2, link=LINK, values=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of address space is Linux's")
def test_refused_address_space_is_one_sentence():
    def asks() -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
        torch.zeros(1 << 32)

    with pytest.raises(RankError, match="refuses .* of address space"):
        Cluster(1, machine="1 TFLOP/s, 100 GB/s, 400 GB, 5 us", values=False).run(asks)


# Parameters that torch swaps


def sliced_from_meta() -> list[int]:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    parallelize_module(model, init_device_mesh("cpu", (2,)), {"0": ColwiseParallel()})
    model.to_empty(device="cpu")
    for _ in range(2):
        model(torch.ones(4, 8)).sum().backward()
        model.to(torch.float64).to(torch.float32)
    return [*model[0].weight.to_local().shape]


@pytest.mark.parametrize(
    "how",
    [{}, {"link": LINK}, {"machine": CPU}, {"machine": GPU}, {"machine": GPU, "values": False}],
)
def test_parameters_of_dtensor_move_from_meta(how: dict[str, Any]) -> None:
    """torch swaps such parameters, and refuses if a weak reference to one exists."""
    run = Cluster(2, **how).run(sliced_from_meta)
    assert run.results == [[4, 8], [4, 8]]
    backwards = [span for span in run.trace.spans if span.kind == "backward"]
    assert len(backwards) >= 4


def compiled() -> int:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    for _ in range(2):
        model = torch.compile(model)
        model(torch.randn(64, 64)).sum().backward()
    return time.perf_counter_ns()


def uncompiled() -> int:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    for _ in range(2):
        model(torch.randn(64, 64)).sum().backward()
    return time.perf_counter_ns()


@pytest.mark.parametrize("values", [True, False])
def test_compiled_code_runs_eagerly_and_the_run_says_so_once(
    values: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster = Cluster(2, machine=CPU, values=values)
    found = cluster.run(compiled).results
    assert capfd.readouterr().out.count("all code runs eagerly") == 1
    assert found == cluster.run(uncompiled).results


@pytest.mark.parametrize("alike", [None, 2])
def test_the_stop_button_says_where_the_ranks_are(
    alike: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "ANSWER", 60.0)

    def trains_for_ever() -> None:
        model = nn.parallel.DistributedDataParallel(nn.Linear(4096, 4096))
        for number in itertools.count():
            model(torch.randn(4096, 4096)).sum().backward()
            if number == 2:
                (tmp_path / str(dist.get_rank())).touch()

    def interrupt() -> None:
        becomes_true(lambda: len(list(tmp_path.iterdir())) == 2, 120)
        os.kill(os.getpid(), signal.SIGINT)

    n = 2 if alike is None else 8
    cluster = Cluster(n, link=LINK, machine=CPU, values=False, alike=alike)
    reader = threading.Thread(target=interrupt)
    reader.start()
    with pytest.raises(Interrupted) as caught:
        cluster.run(trains_for_ever)
    reader.join()
    assert caught.value.doing.keys() == {0, 1}
    assert "test_without_values.py, line" in str(caught.value)
    assert becomes_true(lambda: not ranks_alive())
