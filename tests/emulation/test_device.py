"""Ranks with a device: examples of `tests/simulate/test_device.py` on real ranks, to the
nanosecond.

K(100) is `busy("100 us")`, one kernel on a device; a launch costs 10 us unless a test says
otherwise. `torch.cpu` has the device's streams, as torch's own FSDP2 calls them here. Times are in
us.
"""

import copy
import io
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ddpkit import Cluster, Deadlock, PerRank
from ddpkit.rank.emulation import machine
from ddpkit.rank.emulation.busy import busy
from ddpkit.trace.queues import by_queue, starvation

pytestmark = pytest.mark.processes


def device(ranks: int = 1, launch: float = 10, link: str = "1 GB/s", machine: str = "") -> Cluster:
    machine = machine or f"device of 1 PFLOP/s, {launch} us"
    return Cluster(ranks, link=link, machine=machine)


def kernel(name: str, us: float) -> None:
    busy(f"{us} us", name)


def host_us() -> float:
    return round(time.perf_counter() * 1e6, 3)


def ends(run, rank: int = 0) -> dict[str, float]:
    """Return name -> end of each kernel and collective, in us."""
    return {span.name: span.end_ns / 1000 for span in run.trace.spans if span.rank == rank}


def spans(run, name: str, rank: int = 0) -> list[tuple[float, float]]:
    found = [span for span in run.trace.spans if span.rank == rank and span.name == name]
    return [(span.start_ns / 1000, span.end_ns / 1000) for span in found]


def test_01_and_02_a_loop_that_the_launches_or_the_device_limits() -> None:
    def program(us: float) -> float:
        for i in range(1, 101):
            kernel(f"K{i}", us)
        torch.cpu.synchronize()
        return host_us()

    run = device().run(program, 2)
    assert (ends(run)["K1"], ends(run)["K100"], run.results) == (12, 1002, [1002])
    run = device(launch=2).run(program, 10)
    assert (ends(run)["K1"], ends(run)["K100"], run.results) == (12, 1002, [1002])


def test_03_an_item_lets_the_host_wait_for_its_stream_alone() -> None:
    """The copy of one number takes no time here.

    The kernel of the side stream ends after the host.
    """

    def program() -> list[float]:
        x, side, seen = torch.ones(1), torch.cpu.Stream(), []
        torch.cpu.synchronize()
        began = host_us()
        for i in range(3):
            kernel(f"K{i}", 30)
            x.item()
            seen.append(host_us() - began)
        with torch.cpu.stream(side):
            kernel("S", 500)
        x.item()
        return [began, *seen, host_us() - began]

    run = device().run(program)
    began, *seen = run.results[0]
    found = ends(run)
    assert [found[name] - began for name in ("K0", "K1", "K2", "S")] == [40, 80, 120, 630]
    assert seen == [40, 80, 120, 140]


def test_06_a_second_record_replaces_the_first_and_an_event_without_one_is_over() -> None:
    """The streams have high priority; the first record is the end of A1, the second that of A2."""

    def program() -> None:
        b, c, d = (torch.cpu.Stream(priority=-1) for _ in range(3))
        event, never = torch.cpu.Event(), torch.cpu.Event()
        kernel("A1", 100)
        event.record()
        b.wait_event(event)
        kernel("A2", 100)
        event.record()
        c.wait_event(event)
        d.wait_event(never)
        for name, stream in (("B", b), ("C", c), ("D", d)):
            with torch.cpu.stream(stream):
                kernel(name, 10)

    run = device(machine="device of 1 PFLOP/s").run(program)
    wanted = {"D": 10, "A1": 110, "B": 120, "A2": 220, "C": 230}
    assert {name: ends(run)[name] for name in wanted} == wanted


def test_04_two_streams_share_the_device() -> None:
    def program() -> float:
        a, b = torch.cpu.Stream(), torch.cpu.Stream()
        with torch.cpu.stream(a):
            kernel("A1", 100)
        with torch.cpu.stream(b):
            kernel("B1", 50)
        with torch.cpu.stream(a):
            kernel("A2", 20)
        return host_us()

    run = device().run(program)
    assert [ends(run)[name] for name in ("A1", "B1", "A2")] == [110, 160, 180]
    assert run.results == [30]


def test_the_trace_has_a_row_for_the_host_and_one_for_each_queue() -> None:
    """A launch takes 10, kernels 2: K2 to K100 wait for launches, from the end of K1.

    K1 ends at 12 and K100 at 1002: in each of 99 launches of 10, the device waits 8. The side
    stream's kernel of 500 is launched at 1010, and the host waits until its end at 1510.
    """

    def program() -> None:
        for i in range(1, 101):
            kernel(f"K{i}", 2)
        with torch.cpu.stream(torch.cpu.Stream()):
            kernel("S", 500)
        torch.cpu.synchronize()

    trace = device().run(program).trace
    us = {
        name: [(span.name, span.start_ns / 1000, span.end_ns / 1000) for span in spans]
        for name, spans in by_queue(trace.of(0)).items()
    }
    limit = "the host is the limit: 99 operations of 10 us"
    assert us["starved"] == [(limit, 12, 1002)]
    assert us["host"][:2] == [("K1", 0, 10), ("K2", 10, 20)]
    assert us["host"][-2:] == [("S", 1000, 1010), ("waits: synchronize", 1010, 1510)]
    assert us["stream 1"] == [("S", 1000, 1510), ("1 kernel", 1010, 1510)]
    assert len(us["compute"]) == 100
    found = starvation(trace, 0)
    assert found is not None
    assert (found.waited_ns, found.longest.name) == (99 * 8_000, limit)
    parts = trace.breakdown()[0]
    assert parts.compute_ns == parts.step_ns == 1_510_000  # marked spans last until their ends


def test_spans_of_the_device_carry_their_work_and_launch() -> None:
    """A product of 100 × 100 matrices has 2 · 100³ FLOPs, and moves three matrices of 40 kB."""

    def program() -> int:
        layer, x = nn.Linear(100, 100, bias=False), torch.ones(100, 100)
        torch.cpu.synchronize()
        began = time.perf_counter_ns()
        layer(x)
        return began

    run = device(machine="device of 1 PFLOP/s, 10 us").run(program)
    (linear,) = [span for span in run.trace.row(0, "compute") if span.name == "Linear"]
    assert dict(linear.args) == {
        "launched_ns": run.results[0],
        "own_launches": 1,
        "own_flops": 2_000_000,
        "own_bytes": 120_000,
    }


@pytest.mark.parametrize("blocking", [True, False])
def test_07_a_collective_on_a_side_stream(blocking: bool) -> None:
    def program(blocking: bool) -> float:
        g, side = torch.ones(125_000), torch.cpu.Stream()
        torch.cpu.synchronize()
        began = host_us()
        with torch.cpu.stream(side):
            work = dist.all_reduce(g, async_op=not blocking)
        for i in "123":
            kernel("K" + i, 100)
        if work is not None:
            work.wait()
        torch.cpu.current_stream().wait_stream(side)
        kernel("K4", 10)
        assert g[0].item() == 2
        return began

    run = device(2).run(program, blocking)
    began = run.results[0]
    assert spans(run, "all_reduce") == [(began + 10, began + 510)]
    found = ends(run)
    assert [found[name] - began for name in ("K1", "K3", "K4")] == [120, 320, 520]


def test_08_a_blocking_collective_holds_its_own_stream() -> None:
    def program() -> tuple[float, float]:
        g = torch.ones(125_000)
        torch.cpu.synchronize()
        began = host_us()
        dist.all_reduce(g)
        for i in "123":
            kernel("K" + i, 100)
        return began, host_us()

    run = device(2).run(program)
    began, host = run.results[0]
    assert spans(run, "all_reduce") == [(began + 10, began + 510)]
    assert [ends(run)[name] - began for name in ("K1", "K3")] == [610, 810]
    assert host - began == 40


def test_09_an_asynchronous_collective_is_waited_for_late() -> None:
    def program() -> float:
        g = torch.ones(125_000)
        torch.cpu.synchronize()
        began = host_us()
        kernel("K0", 100)
        work = dist.all_reduce(g, async_op=True)
        kernel("K1", 100)
        work.wait()
        kernel("K2", 50)
        return began

    run = device(2).run(program)
    began = run.results[0]
    assert spans(run, "all_reduce") == [(began + 110, began + 610)]
    assert [ends(run)[name] - began for name in ("K0", "K1", "K2")] == [110, 210, 660]


def test_10_a_communicator_is_one_queue() -> None:
    def program() -> float:
        big, small = torch.ones(100_000), torch.ones(12_500)
        part, whole = torch.empty(50_000), torch.empty(25_000)
        side = torch.cpu.Stream()
        torch.cpu.synchronize()
        began = host_us()
        kernel("K", 100)
        works = [dist.reduce_scatter_tensor(part, big, async_op=True)]
        with torch.cpu.stream(side):
            works.append(dist.all_gather_into_tensor(whole, small, async_op=True))
        for work in works:
            work.wait()
        return began

    run = device(2).run(program)
    began = run.results[0]
    assert spans(run, "reduce_scatter_tensor") == [(began + 110, began + 310)]
    assert spans(run, "all_gather_into_tensor") == [(began + 310, began + 360)]


def test_11_a_stream_of_high_priority_interrupts() -> None:
    def program() -> None:
        kernel("K", 100)
        with torch.cpu.stream(torch.cpu.Stream(priority=-1)):
            kernel("P", 20)

    run = device().run(program)
    assert (ends(run)["K"], ends(run)["P"]) == (130, 40)


def test_12_the_barrier_of_nccl_holds_the_host() -> None:
    """No byte moves here, so the barrier takes only its launch: the host waits until 110."""

    def program() -> float:
        kernel("K1", 100)
        dist.barrier()
        kernel("K2", 10)
        return host_us()

    run = device(2).run(program)
    assert spans(run, "barrier") == [(110, 110)]
    assert (ends(run)["K2"], run.results) == (130, [120, 120])


def test_13_one_rank_is_slow() -> None:
    def program(us: float) -> tuple[float, float]:
        g = torch.ones(12_500)
        torch.cpu.synchronize()
        began = host_us()
        kernel("W", us)
        dist.all_reduce(g)
        kernel("K", 10)
        torch.cpu.synchronize()
        return began, host_us()

    run = device(2).run(program, PerRank([100, 400]))
    began = run.results[0][0]
    assert [spans(run, "all_reduce", rank)[0][1] - began for rank in range(2)] == [460, 460]
    assert [end - began for _, end in run.results] == [470, 470]


def two_groups(blocking: bool, streams: bool) -> float:
    groups = {name: dist.new_group([0, 1], group_desc=name) for name in "AB"}
    tensors = {name: torch.ones(2) for name in "AB"}
    default = torch.cpu.current_stream()
    on = [torch.cpu.Stream(), torch.cpu.Stream()] if streams else [default, default]
    torch.cpu.synchronize()
    began = host_us()
    works = []
    for name, stream in zip("AB" if dist.get_rank() == 0 else "BA", on, strict=True):
        with torch.cpu.stream(stream):
            works.append(dist.all_reduce(tensors[name], group=groups[name], async_op=not blocking))
    for work, stream in zip(works, on, strict=True):
        if work is not None:
            work.wait()
        default.wait_stream(stream)
    kernel("K", 10)
    torch.cpu.synchronize()
    assert [tensors[name][0].item() for name in "AB"] == [2, 2]
    return began


@pytest.mark.parametrize(("blocking", "streams"), [(False, False), (True, True)])
def test_15_two_communicators_in_opposite_order_on_two_streams(blocking, streams) -> None:
    """Parts arrive at 10 and 20, and each all_reduce takes two latencies of 50; then K runs."""
    run = device(2, link="50 us").run(two_groups, blocking, streams)
    for rank, began in enumerate(run.results):
        assert ends(run, rank)["K"] - began == 130
        assert max(end for _, end in spans(run, "all_reduce", rank)) - began == 120


def test_14_two_communicators_in_opposite_order_on_one_stream() -> None:
    with pytest.raises(Deadlock) as caught:
        device(2, link="50 us").run(two_groups, True, False)
    assert caught.value.cause == "streams"
    assert set(caught.value.waiting) == {0, 1}
    assert "each call waits behind another call" in " ".join(str(caught.value).split())


def test_27_a_backward_runs_on_the_streams_of_its_forward() -> None:
    """Two products of 1 ms in each direction; the second layer is on a side stream.

    The backward has three products: two of layer 2, then the weight's of layer 1.
    """

    def program() -> list[str]:
        net, x = Net(100, 100, 100), torch.zeros(100, 100)
        side, default, seen = torch.cpu.Stream(), torch.cpu.current_stream(), []
        y = net.layers[0](x)
        side.wait_stream(default)
        with torch.cpu.stream(side):
            z = net.layers[1](y)
        default.wait_stream(side)
        device_of_rank = machine.current().device
        launch = device_of_rank._tell

        def noted(item):
            stream = "side" if item[:1] == device_of_rank.queues.tail(side)[-1][:1] else "default"
            if item[3] == 1_000_000:
                seen.append(stream)
            launch(item)

        device_of_rank._tell = noted
        z.sum().backward()
        return seen

    assert device(machine=MS).run(program).results == [["side", "side", "default"]]


def test_28_messages_in_both_directions_need_a_batch() -> None:
    """The pair of ranks has one queue: each send waits for a receive that follows it."""

    def program(batched: bool) -> list[float]:
        peer, x, y = 1 - dist.get_rank(), torch.ones(2), torch.zeros(2)
        if batched:
            ops = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, peer)]
            works = dist.batch_isend_irecv(ops)
        else:
            works = [dist.isend(x, peer), dist.irecv(y, peer)]
        for work in works:
            work.wait()
        return y.tolist()

    assert device(2).run(program, True).results == [[1, 1], [1, 1]]
    with pytest.raises(Deadlock) as caught:
        device(2).run(program, False)
    assert caught.value.cause == "streams"


# A product of 100 x 100 x 100 takes 1 ms. Sizes are smaller than in the examples, at the same
# times: a tenth of the layers' width, a thousandth of the FLOP/s, and a hundredth of the bytes/s.
MS = "device of 2 GFLOP/s"


class Net(nn.Module):
    """Layers without bias; with ``asks``, each layer's forward ends with an `.item()`."""

    def __init__(self, *widths: int, asks: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in pairwise(widths))
        self.asks = asks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
            if self.asks:
                x[0, 0].item()
        return x


def sharded(*widths: int, ahead: int = 0, asks: bool = False, train: bool = True) -> float:
    """Run torch's FSDP2; return the ms of the third step, or forward, on the device."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    net = Net(*widths, asks=asks)
    layers = list(net.layers)
    mesh = init_device_mesh("cpu", (2,))
    for part in (*layers, net):
        fully_shard(part, mesh=mesh)
    for i, layer in enumerate(layers):
        layer.set_modules_to_forward_prefetch(layers[i + 1 : i + 1 + ahead])
    x = torch.zeros(100, widths[0])
    for _ in range(3):
        torch.cpu.synchronize()
        began = time.perf_counter_ns()
        with torch.set_grad_enabled(train):
            y = net(x)
            if train:
                y.sum().backward()
                net.zero_grad()
        torch.cpu.synchronize()
    return (time.perf_counter_ns() - began) / 1e6


@pytest.mark.parametrize(("link", "ms"), [("40 MB/s", 9.0), ("106.6666666666666 Mbit/s", 14.0)])
def test_17_and_18_fsdp2_hides_its_gathers(link: str, ms: float) -> None:
    run = device(2, link=link, machine=MS).run(sharded, 100, 100, 100, 100)
    assert [round(each, 6) for each in run.results] == [ms, ms]


def test_19_and_20_prefetching_in_fsdp2() -> None:
    """With `.item()` after each layer, prefetching helps.

    A host that never waits is far ahead anyway.
    """

    def program() -> dict[bool, list[float]]:
        return {
            asks: [
                sharded(100, 100, 100, 400, ahead=ahead, asks=asks, train=False)
                for ahead in range(3)
            ]
            for asks in (True, False)
        }

    run = device(2, link="40 MB/s", machine=MS).run(program)
    assert run.results == [{True: [9, 7.5, 7], False: [7, 7, 7]}] * 2


def replicated(sync: bool = True, views: bool = True) -> float:
    """Run torch's DDP with two layers, each a bucket; return the ms of the third step."""
    net = nn.parallel.DistributedDataParallel(
        Net(100, 100, 100), bucket_cap_mb=0.03, gradient_as_bucket_view=views
    )
    x = torch.zeros(100, 100)
    for _ in range(3):
        torch.cpu.synchronize()
        began = time.perf_counter_ns()
        with nullcontext() if sync else net.no_sync():
            net(x).sum().backward()
            net.zero_grad()
        torch.cpu.synchronize()
    return (time.perf_counter_ns() - began) / 1e6


def test_21_ddp_with_two_buckets() -> None:
    def program() -> list[float]:
        return [replicated(), replicated(sync=False)]

    run = device(2, link="20 MB/s", machine=MS).run(program)
    assert run.results == [[8.0, 5.0]] * 2
    slow = device(2, link="5 MB/s", machine=MS + ", 800 MB/s")
    results = slow.run(replicated, views=False).results
    assert [round(ms, 4) for ms in results] == [20.25, 20.25]  # three scalars take 5 ns each


def test_23_a_pipeline_of_two_stages() -> None:
    """L = 0, F takes 100, B 200, a message 50; a receive follows its rank's current stream."""

    def program() -> None:
        box = [torch.zeros(12_500) for _ in range(4)]
        torch.cpu.synchronize()
        for stage in "FB":
            for i in range(2):
                first, us = dist.get_rank() == 0, 100 if stage == "F" else 200
                receives = first == (stage == "B")
                if receives:
                    dist.irecv(box[i], 1 - dist.get_rank()).wait()
                kernel(f"{stage}{i}", us)
                if not receives:
                    dist.isend(box[2 + i], 1 - dist.get_rank())

    run = device(2, launch=0, machine="device of 1 PFLOP/s").run(program)
    assert [ends(run, 1)[name] for name in ("F0", "F1", "B0", "B1")] == [250, 400, 600, 800]
    assert [ends(run, 0)[name] for name in ("F0", "F1", "B0", "B1")] == [100, 200, 850, 1100]


def trained_by_fsdp2() -> float:
    """Run two steps of torch's FSDP2 with AdamW, beside a collective on a stream of its own."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(0)
    net = Net(64, 64, 64, 64)
    mesh = init_device_mesh("cpu", (2,))
    for part in (*net.layers, net):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    x, side = torch.randn(64, 64), torch.cpu.Stream()
    for _ in range(2):
        with torch.cpu.stream(side):
            total = torch.ones(1000)
            work = dist.all_reduce(total, async_op=True)
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        work.wait()
    return loss.item() + total[0].item()


def test_runs_are_equal() -> None:
    """gloo holds tensors for some real time, which must change neither spans nor memory."""
    cluster = device(2, link="10 Gbit/s, 5 us", machine="device of 1 TFLOP/s, 100 GB/s, 5 us")
    runs = [cluster.run(trained_by_fsdp2) for _ in range(4)]
    first = runs[0]
    assert len(first.trace.spans) > 50
    assert all(len(levels) > 50 for levels in first.trace.memory.values())
    for run in runs[1:]:
        assert run.results == first.results
        assert run.trace.spans == first.trace.spans
        assert run.trace.memory == first.trace.memory


def test_a_rank_that_waits_for_a_key_has_told_of_its_launches() -> None:
    """Rank 1 sets the key when its kernel is done: 10 + 300. Rank 0's kernel is shorter."""

    def program() -> float:
        store = dist.PrefixStore("own", dist.distributed_c10d._get_default_store())
        torch.cpu.synchronize()
        began = host_us()
        if dist.get_rank() == 0:
            kernel("K", 100)
            store.wait(["ready"])
        else:
            kernel("K", 300)
            torch.cpu.synchronize()
            store.set("ready", "")
        return host_us() - began

    run = device(2).run(program)
    assert run.results == [310, 310]
    assert [ends(run, rank)["K"] for rank in (0, 1)] == [110, 310]


def test_an_uneven_exchange_follows_the_stream() -> None:
    """Rank 0 sends 300 kB and gets 100 kB: 300 us at 1 GB/s, after a kernel of 100."""

    def program() -> tuple[float, list[float]]:
        rank = dist.get_rank()
        mine = ([25_000, 75_000], [25_000, 25_000])[rank]
        theirs = ([25_000, 25_000], [75_000, 25_000])[rank]
        sent = torch.full((sum(mine),), float(rank))
        got = torch.empty(sum(theirs))
        torch.cpu.synchronize()
        began = host_us()
        kernel("K0", 100)
        work = dist.all_to_all_single(got, sent, theirs, mine, async_op=True)
        kernel("K1", 50)
        work.wait()
        kernel("K2", 10)
        return began, [got[0].item(), got[-1].item()]

    run = device(2).run(program)
    assert [each for _, each in run.results] == [[0, 1], [0, 1]]
    for rank, (began, _) in enumerate(run.results):
        assert spans(run, "all_to_all_single", rank) == [(began + 110, began + 410)]
        assert ends(run, rank)["K1"] - began == 160
        assert ends(run, rank)["K2"] - began == 420


def test_a_call_that_gloo_refuses_holds_up_nothing() -> None:
    """The second call begins after the kernel, although gloo refused a call in between."""

    def program() -> tuple[float, str, float]:
        x, part = torch.ones(125_000), torch.ones(1)
        torch.cpu.synchronize()
        began = host_us()
        kernel("K0", 100)
        said = ""
        try:
            dist.broadcast(part, 2)
        except RuntimeError as error:
            said = str(error)
        dist.all_reduce(x)
        kernel("K1", 10)
        return began, said, x[0].item()

    run = device(2).run(program)
    for rank, (began, said, value) in enumerate(run.results):
        assert "invalid root rank" in said
        assert value == 2
        assert spans(run, "all_reduce", rank) == [(began + 110, began + 610)]
        assert ends(run, rank)["K1"] - began == 620


def test_the_first_collective_of_a_thread_ends() -> None:
    """A thread's first question starts another thread, which reads answers.

    Starting it is an event too.
    """

    def run() -> list[object]:
        gathered: list[object] = [None, None]
        with ThreadPoolExecutor(1) as pool:
            pool.submit(dist.all_gather_object, gathered, dist.get_rank()).result()
        return gathered

    assert Cluster(2, machine="A100").run(run, timeout=60).results == [[0, 1], [0, 1]]


def test_a_thread_that_is_joined_waits_for_the_main_threads_launches() -> None:
    """The main thread blocks in `join` before its launch has been sent."""

    def program() -> list[float]:
        seen: list[float] = []
        kernel("K", 100)

        def waits() -> None:
            torch.cpu.current_stream().synchronize()
            seen.append(host_us())

        thread = threading.Thread(target=waits)
        thread.start()
        thread.join()
        return seen

    assert device().run(program).results == [[110]]


def read_in_all_ways(tensor: torch.Tensor, way: str) -> float:
    if way == "pickle":
        return pickle.loads(pickle.dumps(tensor))[0].item()
    if way == "save":
        file = io.BytesIO()
        torch.save({"weight": tensor}, file)
        file.seek(0)
        return torch.load(file)["weight"][0].item()
    if way == "deepcopy":
        return copy.deepcopy(tensor)[0].item()
    if way == "dlpack":
        return torch.from_dlpack(tensor)[0].item()
    if way == "repr":
        return float(repr(tensor)[len("tensor([") :].split(",")[0])
    read = {"tolist": tensor.tolist, "numpy": tensor.numpy, "cpu": tensor.cpu}.get(way)
    return float(next(iter(tensor)) if read is None else read()[0])


WAYS = "pickle", "save", "deepcopy", "dlpack", "repr", "tolist", "numpy", "cpu", "iter"


def test_all_ways_of_reading_wait_for_gloos_bytes() -> None:
    """Rank 0 posts late in real time: the other host has gone on when the bytes come."""

    def program() -> dict[str, float]:
        found = {}
        for way in WAYS:
            x = torch.full((100,), 1.0 - dist.get_rank())
            until = time.process_time() + 0.05  # real CPU time, which costs no emulated time
            while dist.get_rank() == 0 and time.process_time() < until:
                pass
            dist.broadcast(x, 0)
            found[way] = read_in_all_ways(x, way)
        return found

    assert device(2).run(program).results == [dict.fromkeys(WAYS, 1.0)] * 2


def test_operations_outside_modules_are_stretches_of_one_stream() -> None:
    """Products take 1 ms. The side stream's product is ready first, and runs from 0.01 to 1.01.

    The all_reduce takes 2 ms. The stream waits, so its next product belongs to another stretch. A
    module and a marked span end a stretch.
    """

    def program() -> int:
        x, g, side = torch.ones(100, 100), torch.ones(50), torch.cpu.Stream()
        layer = nn.Linear(100, 100, bias=False)
        torch.cpu.synchronize()
        began = time.perf_counter_ns()
        kernel("K0", 10)
        y = x @ x @ x
        work = dist.all_reduce(g, async_op=True)
        with torch.cpu.stream(side):
            x @ x
        work.wait()
        y @ y
        layer(x)
        x @ x
        kernel("K1", 10)
        return began

    run = device(2, machine=MS, link="100 kB/s").run(program)
    began = run.results[0]
    found = [
        (span.name, (span.start_ns - began) / 1e6, (span.end_ns - began) / 1e6)
        for span in sorted(run.trace.of(0), key=lambda span: (span.start_ns, span.end_ns))
        if span.start_ns >= began and span.kind != "host" and span.name != "1 kernel"
    ]
    assert found == [
        ("K0", 0, 0.01),
        ("mm", 0, 1.01),
        ("mm", 0.01, 3.01),
        ("all_reduce", 3.01, 5.01),
        ("mm", 5.01, 6.01),
        ("Linear", 6.01, 7.01),
        ("mm", 7.01, 8.01),
        ("K1", 8.01, 8.02),
    ]
