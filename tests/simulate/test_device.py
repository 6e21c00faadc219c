"""Devices: work runs after its launch, in the order in which it becomes ready, to the nanosecond.

The programs of the first part are the examples of the specification, with their numbers. "L" is the
host's time for a launch, 10 us unless the test says otherwise; K(100) is a kernel of 100 us. On two
ranks and a link of 1 GB/s, an all_reduce of 1 kB takes 1 us (two halves), an all_gather of 1 kB
from each rank takes 1 us, and a reduce_scatter of 1 kB takes half of that.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.simulate import After, Launch, MessageEnd, Program, Work, play_program
from ddpkit.simulate.engine.device import DOWN, UP
from tests.properties import examples
from tests.simulate.hosts import Host, Ran, ran


def alike(write, launch: float = 10, link: str = "1 GB/s") -> Ran:
    """Play one program on two equal ranks."""
    hosts = [Host(rank, 2, launch) for rank in range(2)]
    for host in hosts:
        write(host)
    return ran(*hosts, link=link)


def test_01_a_loop_that_the_launches_limit() -> None:
    """K_i is launched at 10 i and ends 2 later: the device waits for the host."""
    host = Host()
    for i in range(1, 101):
        host.kernel(f"K{i}", 2)
    host.synchronize()
    got = ran(host)
    assert got["K1", "K37", "K100"] == [(10, 12), (370, 372), (1000, 1002)]
    assert got.host == [1002]


def test_02_a_loop_that_the_device_limits() -> None:
    """L = 2: K1 begins at 2, and each next kernel at the end of the one before: K_i ends at 2 +
    10 i."""
    host = Host(launch=2)
    for i in range(1, 101):
        host.kernel(f"K{i}", 10)
    host.synchronize()
    got = ran(host)
    assert got["K1", "K100"] == [(2, 12), (992, 1002)]
    assert got.host == [1002]


def test_03_the_host_reads_a_number_in_each_turn() -> None:
    """Nothing overlaps: a launch of 10, a kernel of 30 and a copy of 5 take 45 a turn."""
    host = Host()
    for i in "123":
        host.kernel("K" + i, 30)
        host.wait(host.kernel("C" + i, 5, place=DOWN))
    got = ran(host)
    assert got["K1", "C1"] == [(10, 40), (40, 45)]
    assert got["K2", "C2"] == [(55, 85), (85, 90)]
    assert got["K3", "C3"] == [(100, 130), (130, 135)]
    assert got.host == [135]


def test_04_two_streams_share_the_device() -> None:
    """A2 follows A1 and is ready at 110; B1 was ready first, at 20."""
    host = Host()
    host.kernel("A1", 100, "a")
    host.kernel("B1", 50, "b")
    host.kernel("A2", 20, "a")
    got = ran(host)
    assert got["A1", "B1", "A2"] == [(10, 110), (110, 160), (160, 180)]
    assert got.host == [30]


def test_05_a_stream_waits_for_a_copy() -> None:
    """The copy engine works beside K1; K2 waits for the copy's event at 170."""
    host = Host()
    host.kernel("K1", 100)
    host.follow(host.kernel("C", 150, "b", UP))
    host.kernel("K2", 50)
    assert ran(host)["K1", "C", "K2"] == [(10, 110), (20, 170), (170, 220)]


def test_06_an_event_is_recorded_again_and_another_one_never() -> None:
    """L = 0. Stream b waits for the event's content at the call, A1; stream c waits for A2 too."""
    host = Host(launch=0)
    host.kernel("A1", 100)
    host.follow(*host.queues.tail(), stream="b")
    host.kernel("A2", 100)
    host.follow(*host.queues.tail(), stream="c")
    host.follow(stream="d")
    for name, stream in (("C1", "b"), ("C2", "c"), ("C3", "d")):
        host.kernel(name, 10, stream, UP)
    assert ran(host)["C1", "C2", "C3"] == [(100, 110), (200, 210), (0, 10)]


@pytest.mark.parametrize("blocking", [True, False])
def test_07_a_collective_on_a_side_stream(blocking: bool) -> None:
    """The links work from 10 to 510 beside K1 to K3; K4 waits for them, in two ways to say so."""

    def write(host: Host) -> None:
        work = host.collective("R", "all_reduce", 500_000, blocking=blocking, on="side")
        for i in "123":
            host.kernel("K" + i, 100)
        host.follow(*(host.queues.tail("side") if blocking else [work]))
        host.kernel("K4", 10)

    got = alike(write)
    assert got["R", "K1", "K3", "K4"] == [(10, 510), (20, 120), (220, 320), (510, 520)]
    assert got.host == [50, 50]


def test_08_a_blocking_collective_holds_its_own_stream() -> None:
    """K1 follows the all_reduce on the default stream, at 510.

    The host is done after 4 launches.
    """

    def write(host: Host) -> None:
        host.collective("R", "all_reduce", 500_000)
        for i in "123":
            host.kernel("K" + i, 100)

    got = alike(write)
    assert got["R", "K1", "K3"] == [(10, 510), (510, 610), (710, 810)]
    assert got.host == [40, 40]


def test_09_an_asynchronous_collective_is_waited_for_late() -> None:
    """The all_reduce follows K0 (110); K1 runs beside it; K2 follows the wait (610)."""

    def write(host: Host) -> None:
        host.kernel("K0", 100)
        work = host.collective("R", "all_reduce", 500_000, blocking=False)
        host.kernel("K1", 100)
        host.follow(work)
        host.kernel("K2", 50)

    got = alike(write)
    assert got["K0", "R", "K1", "K2"] == [(10, 110), (110, 610), (110, 210), (610, 660)]


def test_10_a_communicator_is_one_queue() -> None:
    """The gather is launched at 30 on another stream, but must follow the scatter.

    The scatter has 400 kB; each of two ranks sends 200 kB, which takes 200 us.
    """

    def write(host: Host) -> None:
        host.kernel("K", 100)
        host.collective("S", "reduce_scatter_tensor", 400_000, blocking=False)
        host.collective("G", "all_gather_into_tensor", 50_000, blocking=False, on="side")

    assert alike(write)["K", "S", "G"] == [(10, 110), (110, 310), (310, 360)]


def test_10_a_second_communicator_is_another_queue() -> None:
    """The gather in its own communicator begins at 30, while the scatter waits for K.

    The link has a latency of 50 us and unlimited bandwidth, so neither collective slows the other.
    Five ranks scatter in 4 rounds, in 200 us; two ranks gather in one round, in 50 us.
    """
    hosts = [Host(rank, 5) for rank in range(5)]
    for host in hosts:
        host.kernel("K", 100)
        host.collective("S", "reduce_scatter_tensor", 5, blocking=False)
        if host.rank < 2:
            host.collective(
                *("G", "all_gather_into_tensor", 1),
                blocking=False,
                on="side",
                group="h",
                members=(0, 1),
            )
    assert ran(*hosts, link="50 us")["K", "S", "G"] == [(10, 110), (110, 310), (30, 80)]


def test_11_a_stream_of_high_priority_interrupts() -> None:
    """P runs from 20 to 40 in the middle of K, which therefore ends 20 later."""
    host = Host()
    host.kernel("K", 100)
    host.kernel("P", 20, "high", priority=-1)
    assert ran(host)["K", "P"] == [(10, 130), (20, 40)]


def test_12_the_barrier_of_nccl_holds_the_host() -> None:
    """The barrier follows K1 (110) and takes 5; the host waits for it, and launches K2 10 later."""

    def write(host: Host) -> None:
        host.kernel("K1", 100)
        host.wait(host.collective("B", "all_reduce", 5_000))
        host.kernel("K2", 10)

    got = alike(write)
    assert got["B", "K2"] == [(110, 115), (125, 135)]
    assert got.host == [125, 125]


def test_13_one_rank_is_slow() -> None:
    """The all_reduce begins when the slow rank's device reaches it, at 410."""
    hosts = [Host(rank, 2) for rank in range(2)]
    for host, us in zip(hosts, (100, 400), strict=True):
        host.kernel("W", us)
        host.collective("R", "all_reduce", 50_000)
        host.kernel("K", 10)
        host.synchronize()
    got = ran(*hosts)
    assert [got.of(rank, "W")[1] for rank in range(2)] == [110, 410]
    assert [got.of(rank, "R")[1] for rank in range(2)] == [460, 460]
    assert got.of(0, "K") == (460, 470)
    assert got.host == [470, 470]


def two_groups(*, blocking: bool, streams=("default", "default"), on_host: bool = False) -> Ran:
    """Rank 0 posts in group A, then in B; rank 1 in B, then in A.

    Each all_reduce takes two latencies of 50.
    """
    hosts = [Host(rank, 2) for rank in range(2)]
    for host in hosts:
        works = []
        for group, on in zip("AB" if host.rank == 0 else "BA", streams, strict=True):
            works.append(
                host.collective(group, "all_reduce", 2, blocking=blocking, on=on, group=group)
            )
            if on_host:
                host.wait(*works)
        host.follow(*works)
        host.kernel("K", 10)
        host.synchronize()
    return ran(*hosts, link="50 us")


def test_14_two_communicators_in_opposite_order_on_one_stream() -> None:
    """Each collective waits for the other on one rank, so neither ever has both its parts."""
    got = two_groups(blocking=True)
    assert got.unended == {"A", "B", "K"}
    assert {stuck.rank for stuck in got.played.stuck} == {0, 1}


@pytest.mark.parametrize(
    ("blocking", "streams"), [(False, ("default", "default")), (True, ("s", "t"))]
)
def test_15_the_same_but_not_behind_each_other(blocking, streams) -> None:
    """The parts arrive at 10 and at 20, so both all_reduces begin at 20 and take 100.

    Then K runs.
    """
    got = two_groups(blocking=blocking, streams=streams)
    assert [got.of(rank, "K") for rank in range(2)] == [(120, 130), (120, 130)]
    assert got["A"] == (10, 120)  # posted at 10
    assert got.host == [130, 130]


def test_16_the_same_where_hosts_wait_as_for_gloo() -> None:
    got = two_groups(blocking=False, on_host=True)
    assert got.unended == {"A", "B"}
    assert [stuck.step for stuck in got.played.stuck] == [After(("A",)), After(("B",))]


MB = 1_000_000
FREE = {"launch": 0}  # hosts with launches that take no time


class Fsdp:
    """The launches of FSDP2: gathers and scatters share a communicator; streams are as in torch.

    A gather is launched on a stream of its own. The next gather waits until the gather before the
    last is copied out, and in the backward for the last gather's copy. A scatter waits for the
    buffer of the scatter before. Copies in and out take no time here.

    gathers, forwards: MB that a rank sends, and ms of the product, for each layer.

    offload: parameters and gradients cross the bus, which takes 1 ms for each.
    """

    def __init__(self, host: Host, gathers, forwards, *, ahead=0, asks=False, offload=False):
        self.host, self.gathers, self.forwards = host, gathers, forwards
        self.ahead, self.asks, self.offload = ahead, asks, offload
        self.works: dict[int, str] = {}
        self.copied_out = ""  # the copy out of the gather before

    def gather(self, i: int, again: str = "") -> None:
        if i in self.works or i not in range(len(self.gathers)):
            return
        if self.offload:
            upload = self.host.kernel(f"U{i}{again}", 1000, "copy in", UP)
            self.host.follow(upload, stream="gather")
        nbytes = round(self.gathers[i] * MB)
        self.works[i] = self.host.collective(
            f"G{i}{again}", "all_gather_into_tensor", nbytes, blocking=False, on="gather"
        )

    def copy_out(self, i: int, name: str) -> str:
        self.host.follow(self.works.pop(i))
        return self.host.kernel(name, 0)

    def gathers_follow(self, *items: str) -> None:
        self.host.follow(*items, stream="gather")
        self.host.follow(*items, stream="copy in")

    def forward(self) -> None:
        host = self.host
        for i, ms in enumerate(self.forwards):
            self.gather(i)
            if self.copied_out:
                self.gathers_follow(self.copied_out)
            self.copied_out = self.copy_out(i, f"C{i}")
            for j in range(self.ahead):
                self.gather(i + 1 + j)
            host.kernel(f"F{i}", 1000 * ms)
            if self.asks:
                host.wait(host.kernel(f"A{i}", 0, place=DOWN))

    def backward(self) -> None:
        host, scatter = self.host, ()
        self.gathers_follow(self.copied_out)
        for i in reversed(range(len(self.gathers))):
            self.gather(i, "'")
            self.gathers_follow(self.copy_out(i, f"C{i}'"))
            self.gather(i - 1, "'")
            # only the gradient of the weight for layer 0
            host.kernel(f"B{i}", 1000 * self.forwards[i] * (2 if i else 1))
            host.follow(*scatter)
            copied_in = host.kernel(f"I{i}", 0)
            host.follow(copied_in, stream="scatter")
            nbytes = round(2 * self.gathers[i] * MB)
            op = "reduce_scatter_tensor"
            scatter = (host.collective(f"S{i}", op, nbytes, on="scatter"),)
            if self.offload:
                host.kernel(f"D{i}", 1000, "scatter", DOWN)
        host.synchronize()


def sharded(link: str, gathers=(2, 2, 2), forwards=(1, 1, 1), *, train=True, **options) -> Ran:
    """Play FSDP2 on two ranks with three matrices of 4 MB, half of each on a rank.

    Products of 1 ms.
    """

    def write(host: Host) -> None:
        fsdp = Fsdp(host, gathers, forwards, **options)
        fsdp.forward()
        if train:
            fsdp.backward()
        host.synchronize()

    return alike(write, 0, link)


def in_ms(got: Ran, names: str) -> dict[str, tuple[float, float]]:
    """Return the times of some items, in ms."""
    return {name: (got[name][0] / 1000, got[name][1] / 1000) for name in names.split()}


def test_17_fsdp2_hides_its_gathers() -> None:
    """The link has 4 GB/s: a gather and a scatter take 0.5 ms each.

    Gather 0 of the backward follows scatter 2 in the same communicator. The copy out for F2 lets
    gather 2 begin again at 2.5.
    """
    got = sharded("4 GB/s")
    assert in_ms(got, "F0 F1 F2 G2' B2 G1' S2 B1 G0' S1 B0 S0") == {
        "F0": (0.5, 1.5), "F1": (1.5, 2.5), "F2": (2.5, 3.5), "G2'": (2.5, 3),
        "B2": (3.5, 5.5), "G1'": (3.5, 4), "S2": (5.5, 6), "B1": (5.5, 7.5),
        "G0'": (6, 6.5), "S1": (7.5, 8), "B0": (7.5, 8.5), "S0": (8.5, 9),
    }  # fmt: skip
    assert got.host == [9000, 9000]


def test_18_fsdp2_on_a_link_that_is_too_slow() -> None:
    """3 MB at 2 GB/s take 1.5 ms, and S0 waits for the buffer of S1 until 12.5."""
    got = sharded("2 GB/s", (3, 3, 3))
    assert in_ms(got, "F0 F1 F2 B2 S2 B1 S1 B0 S0") == {
        "F0": (1.5, 2.5), "F1": (3, 4), "F2": (4.5, 5.5), "B2": (6, 8), "S2": (8, 9.5),
        "B1": (8, 10), "S1": (11, 12.5), "B0": (11, 12), "S0": (12.5, 14),
    }  # fmt: skip
    assert got.host == [14_000, 14_000]


@pytest.mark.parametrize(("ahead", "asks", "ms"), [(0, True, 9), (1, True, 7.5), (2, True, 7)])
def test_19_prefetching_helps_where_the_host_waits(ahead: int, asks: bool, ms: float) -> None:
    """Gathers take 0.5, 0.5 and 2, forwards 1, 1 and 4; the host reads a number after each forward.

    0 ahead: all in turn, 9. 1 ahead: G2 is posted at 1.5, and F2 runs from 3.5 to 7.5. 2 ahead: G2
    runs from 1 to 3, and F2 to 7.
    """
    got = sharded("4 GB/s", (2, 2, 8), (1, 1, 4), train=False, ahead=ahead, asks=asks)
    assert got.host == [1000 * ms, 1000 * ms]


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_20_prefetching_changes_nothing_where_the_host_is_ahead(ahead: int) -> None:
    """Gathers run until 0.5, 1 and 3, and F2 from 3 to 7, in every order of launches."""
    got = sharded("4 GB/s", (2, 2, 8), (1, 1, 4), train=False, ahead=ahead)
    assert in_ms(got, "G2 F2")["F2"] == (3, 7)
    assert got.host == [7000, 7000]


def ddp(host: Host, *, sync: bool = True, views: bool = True) -> None:
    """Write a step of DDP: two layers, each a bucket of 4 MB; products of 1 ms."""
    host.kernel("F", 2000)
    if not views:
        host.kernel("sum", 50)
    works = []
    for layer, ms in (("1", 2), ("0", 1)):
        host.kernel("B" + layer, 1000 * ms)
        if not views:
            host.kernel("M" + layer, 100)
        if sync:
            works.append(host.collective("R" + layer, "all_reduce", 4 * MB, blocking=False))
    for work in works:
        host.follow(work)
        if not views:
            host.kernel("C" + work[1], 100)
    host.synchronize()


def test_21_ddp_with_two_buckets() -> None:
    """An all_reduce takes 2 ms at 2 GB/s: R1 runs beside B0, R0 follows R1.

    Under no_sync, the step takes 5 ms.
    """
    got = alike(ddp, 0, "2 GB/s")
    assert in_ms(got, "F B1 B0 R1 R0") == {
        "F": (0, 2), "B1": (2, 4), "B0": (4, 5), "R1": (4, 6), "R0": (6, 8),
    }  # fmt: skip
    assert got.host == [8000, 8000]
    assert alike(lambda host: ddp(host, sync=False), 0, "2 GB/s").host == [5000, 5000]


def test_21_ddp_that_copies_its_gradients() -> None:
    """An all_reduce takes 8 ms at 0.5 GB/s.

    Each bucket is filled before (0.1) and copied back after.
    """
    got = alike(lambda host: ddp(host, views=False), 0, "500 MB/s")
    assert in_ms(got, "B1 M1 R1 M0 C1 R0 C0") == {
        "B1": (2.05, 4.05), "M1": (4.05, 4.15), "R1": (4.15, 12.15), "M0": (5.15, 5.25),
        "C1": (12.15, 12.25), "R0": (12.15, 20.15), "C0": (20.15, 20.25),
    }  # fmt: skip


def copying(*, pinned: bool, blocking: bool, place: str = UP) -> Ran:
    """Play K1 (1 ms), a copy of 100 MB and K2 (0.5 ms).

    The copy runs at 25 GB/s, from pageable memory at half of this.
    """
    host = Host()
    host.kernel("K1", 1000)
    if not pinned and place == UP:  # the driver waits for the stream before it stages the copy
        host.wait(*host.queues.tail())
    host.kernel("C", 4000 if pinned else 8000, place=place)
    if blocking or not pinned:
        host.wait("C")
    host.kernel("K2", 500)
    return ran(host)


def test_22_copies_of_pinned_memory() -> None:
    """The copy follows K1 (1.01) and takes 4 ms; a blocking copy holds the host until 5.01."""
    got = copying(pinned=True, blocking=False)
    assert got["C", "K2"] == [(1010, 5010), (5010, 5510)]
    assert got.host == [30]
    assert copying(pinned=True, blocking=True)["C", "K2"] == [(1010, 5010), (5020, 5520)]


def test_22_copies_of_pageable_memory() -> None:
    """To the device: the host waits for K1, launches at 1.02, and waits again.

    To the host: one wait.
    """
    assert copying(pinned=False, blocking=False)["C", "K2"] == [(1020, 9020), (9030, 9530)]
    got = copying(pinned=False, blocking=False, place=DOWN)
    assert got["C", "K2"] == [(1010, 9010), (9020, 9520)]


def test_23_a_pipeline_of_two_stages() -> None:
    """L = 0, F takes 100, B 200, a message 50. A receive follows its rank's current stream.

    Therefore activation 1 moves when rank 1 has done F0, at 250, and gradient 1 after rank 0's B0.
    """
    first, last = hosts = [Host(rank, 2, 0) for rank in range(2)]
    for i in "01":
        first.kernel("F" + i, 100)
        first.message("a" + i, "isend", 1, 50_000)
    for i in "01":
        first.follow(first.message("g" + i, "irecv", 1, 50_000))
        first.kernel("B" + i, 200)
    for i in "01":
        last.follow(last.message("a" + i, "irecv", 0, 50_000))
        last.kernel("F" + i, 100)
    for i in "01":
        last.kernel("B" + i, 200)
        last.message("g" + i, "isend", 0, 50_000)
    got = ran(*hosts)
    assert [got.of(1, name) for name in ("F0", "a1", "F1", "B0", "B1")] == [
        (150, 250), (250, 300), (300, 400), (400, 600), (600, 800)
    ]  # fmt: skip
    assert got["B0", "g1", "B1"] == [(650, 850), (850, 900), (900, 1100)]


@pytest.mark.parametrize(("asks", "us"), [(False, 1100), (True, 1125)])
def test_24_a_scaler_asks_before_the_optimizer(asks: bool, us: float) -> None:
    """20 × 50 from 10 on, and 3 × 30 give 1100.

    With unscale: 1020, copy 1025, launch 1035, end 1125.
    """
    host = Host()
    for i in range(20):
        host.kernel(f"B{i}", 50)
    if asks:
        host.kernel("unscale", 10)
        host.wait(host.kernel("found_inf", 5, place=DOWN))
    for i in "123":
        host.kernel("step" + i, 30)
    host.synchronize()
    assert ran(host).host == [us]


@pytest.mark.parametrize(("us", "elapsed"), [(100, 510), (2, 52)])
def test_25_events_around_kernels(us: float, elapsed: float) -> None:
    """An event on an idle stream happens when it is recorded, at 0.

    The last kernel ends at 5 × 10 + 2, or at 10 + 5 × 100.
    """
    host = Host()
    for i in range(5):
        host.kernel(f"K{i}", us)
    assert ran(host)["K4"][1] == elapsed


def test_26_fsdp2_with_its_parameters_on_the_host() -> None:
    """A shard takes 1 ms up, and a gradient 1 ms down, on a bus of 2 GB/s.

    The shard is copied before its gather. The gradient is copied after its scatter, and the
    scatter's stream is busy until then.
    """
    got = sharded("4 GB/s", offload=True)
    assert in_ms(got, "U0 U1 U2 F0 F1 F2 U2' B2 U1' G1' U0' B1 D2 D1 B0 S0 D0") == {
        "U0": (0, 1), "U1": (1, 2), "U2": (2, 3), "F0": (1.5, 2.5), "F1": (2.5, 3.5),
        "F2": (3.5, 4.5), "U2'": (3.5, 4.5), "B2": (5, 7), "U1'": (5, 6), "G1'": (6, 6.5),
        "U0'": (7, 8), "B1": (7, 9), "D2": (7.5, 8.5), "D1": (9.5, 10.5),
        "B0": (9, 10), "S0": (10.5, 11), "D0": (11, 12),
    }  # fmt: skip
    assert got.host == [12_000, 12_000]


def test_28_a_pair_of_ranks_is_one_queue() -> None:
    """Both ranks send first and then receive: each send waits for a receive that follows it."""
    hosts = [Host(rank, 2) for rank in range(2)]
    for host in hosts:
        host.message("send", "isend", 1 - host.rank, 1000)
        host.follow(host.message("receive", "irecv", 1 - host.rank, 1000))
        host.kernel("K", 10)
    assert ran(*hosts).unended == {"send", "receive", "K"}


# Further rules


def test_launches_are_not_served_in_their_order() -> None:
    """The cast after a scatter is launched before the next products, which do not wait for it."""

    def write(host: Host) -> None:
        host.kernel("B2", 100)
        host.follow("B2", stream="scatter")
        host.collective("S", "reduce_scatter_tensor", 600_000, on="scatter")
        host.kernel("cast", 5, "scatter")
        host.kernel("B1", 100)

    assert alike(write)["S", "B1", "cast"] == [(110, 410), (110, 210), (410, 415)]


def test_equal_priorities_do_not_interrupt() -> None:
    host = Host()
    host.kernel("A", 100, "a", priority=-1)
    host.kernel("B", 20, "b", priority=-1)
    assert ran(host)["A", "B"] == [(10, 110), (110, 130)]


def test_what_was_interrupted_goes_on_before_what_came_later() -> None:
    """P begins at 20, and L is launched at 30: K has 90 left at 40 and ends at 130; then L runs."""
    host = Host()
    host.kernel("K", 100, "a")
    host.kernel("P", 20, "p", priority=-1)
    host.kernel("L", 10, "b")
    assert ran(host)["K", "P", "L"] == [(10, 130), (20, 40), (130, 140)]


def test_an_interruption_is_interrupted() -> None:
    """K begins at 10, P at 20, Q runs from 30 to 40. Then P runs until 60, and K until 150."""
    host = Host()
    host.kernel("K", 100, "k")
    host.kernel("P", 30, "p", priority=-1)
    host.kernel("Q", 10, "q", priority=-2)
    assert ran(host)["K", "P", "Q"] == [(10, 150), (20, 60), (30, 40)]


def test_an_interruption_at_the_end_of_an_item_interrupts_nothing() -> None:
    """K ends at 20, when P becomes ready: ends come first."""
    host = Host()
    host.kernel("K", 10, "k")
    host.kernel("P", 30, "p", priority=-1)
    got = ran(host)
    assert got["K", "P"] == [(10, 20), (20, 50)]


def test_of_those_that_are_ready_at_one_time_the_first_launch_is_first() -> None:
    """B and C become ready when A ends; C was launched first."""
    host = Host()
    host.kernel("A", 100)
    for name in "CB":
        host.follow("A", stream=name)
        host.kernel(name, 10, name)
    assert ran(host)["C", "B"] == [(110, 120), (120, 130)]


def test_the_higher_priority_starts_where_both_become_ready_at_one_time() -> None:
    """H was launched later and starts first: nothing starts before all ready items are known."""
    host = Host()
    host.kernel("A", 100)
    host.follow("A", stream="low")
    host.follow("A", stream="high")
    host.kernel("L", 10, "low")
    host.kernel("H", 10, "high", priority=-1)
    assert ran(host)["H", "L"] == [(110, 120), (120, 130)]


def test_items_that_take_no_time_hold_nobody_up() -> None:
    host = Host(launch=0)
    for i in range(4):
        host.kernel(f"Z{i}", 0, f"s{i % 2}")
        host.follow(f"Z{i}")
    host.kernel("K", 5)
    assert ran(host)["Z0", "Z3", "K"] == [(0, 0), (0, 0), (0, 5)]


def test_both_copy_engines_work_beside_kernels() -> None:
    """Two copies up share an engine on any streams; the copy down has its own engine."""
    host = Host()
    host.kernel("K", 100)
    host.kernel("U1", 50, "a", UP)
    host.kernel("D", 50, "b", DOWN)
    host.kernel("U2", 50, "c", UP)
    assert ran(host)["U1", "D", "U2"] == [(20, 70), (30, 80), (70, 120)]


def test_double_buffering_lets_the_host_be_two_steps_ahead() -> None:
    """The host waits for the step before the last one; steps take 100.

    K0 runs from 10 to 110, and K1 is launched at 20. The host waits for K0, and launches K2 at 120
    and K3 at 220.
    """
    host = Host()
    for i in range(4):
        if i > 1:
            host.wait(f"K{i - 2}")
        host.kernel(f"K{i}", 100)
    got = ran(host)
    assert got["K0", "K1", "K2", "K3"] == [(10, 110), (110, 210), (210, 310), (310, 410)]
    assert got.host == [220]


def test_a_kernel_follows_the_later_of_two_streams() -> None:
    host = Host()
    host.kernel("A", 30, "a", UP)
    host.kernel("B", 200, "b", DOWN)
    host.follow("A", "B")
    host.kernel("K", 10)
    assert ran(host)["K"] == (220, 230)


def test_a_send_leaves_when_its_kernel_is_done() -> None:
    """The receiver's host has posted at 10 and goes on; its next kernel follows the bytes."""
    there, here = hosts = [Host(rank, 2) for rank in range(2)]
    there.kernel("K", 100)
    there.message("m", "isend", 1, 40_000)
    here.follow(here.message("m", "irecv", 0, 40_000))
    here.kernel("use", 10)
    got = ran(*hosts)
    assert (got.of(0, "m"), got.of(1, "m"), got.of(1, "use")) == ((110, 150), (10, 150), (150, 160))
    assert got.host == [20, 20]


def test_devices_do_not_share_places() -> None:
    hosts = [Host(rank, 2) for rank in range(2)]
    for host in hosts:
        host.kernel("K", 100)
    got = ran(*hosts)
    assert [got.of(rank, "K") for rank in range(2)] == [(10, 110)] * 2


def test_an_item_may_follow_a_step_of_another_lane() -> None:
    """A lane works on the host, and an item of another lane waits for this work."""
    lanes = {
        "host": [Launch(50, "K", follows=("read",), handle="K"), After(("K",))],
        "loader": [Work(300, "read", handle="read")],
    }
    played = play_program(Program("two lanes", (lanes,)), "unlimited")
    assert played.ns == 350
    assert [(span.name, span.start_ns, span.end_ns) for span in played.spans] == [
        ("read", 0, 300),
        ("K", 300, 350),
    ]


def test_what_never_ends_is_told() -> None:
    """A receive without a sender, and the kernel after it, never end; the host has returned."""
    lane = [
        MessageEnd("irecv", 1, 8, handle="m"),
        Launch(10, "K", follows=("m",), handle="K"),
        Launch(10, "free"),
    ]
    played = play_program(Program.of_lanes("no answer", [lane, []]), "unlimited")
    assert [(each.rank, each.step) for each in played.unended] == [(0, lane[0]), (0, lane[1])]
    assert played.stuck == ()


Asked = tuple[int, int, int, int]  # an item: its launch in us, stream, us, and place


def by_ticks(asked: list[Asked]) -> list[tuple[int, int]]:
    """Return starts and ends by looking at every microsecond; stream 2 has high priority."""
    left = [us for _, _, us, _ in asked]
    starts, ends = [-1] * len(asked), [-1] * len(asked)
    ready: dict[int, int] = {}
    now = 0
    while -1 in ends:
        for i, (launched, stream, _, _) in enumerate(asked):
            before = [j for j in range(i) if asked[j][1] == stream]
            if launched <= now and i not in ready and all(ends[j] != -1 for j in before):
                ready[i] = now
        for place in {place for *_, place in asked}:
            there = [i for i in ready if left[i] and asked[i][3] == place]
            begun = [i for i in there if starts[i] != -1]
            if there:
                order = {i: (-(asked[i][1] == 2), i not in begun, ready[i], i) for i in there}
                chosen = min(there, key=lambda i: order[i])
                starts[chosen] = now if starts[chosen] == -1 else starts[chosen]
                left[chosen] -= 1
        now += 1
        for i in ready:
            if not left[i] and ends[i] == -1:
                ends[i] = now
    return list(zip(starts, ends, strict=True))


@examples(200)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(1, 6), st.integers(0, 1)),
        max_size=9,
    )
)
def test_the_engine_serves_as_looking_at_each_microsecond_does(drawn: list[Asked]) -> None:
    """Launches are at random distances, on three streams and two places.

    One stream has priority -1.
    """
    launched, asked = 0, []
    for later, stream, us, place in drawn:
        launched += later
        asked.append((launched, stream, us, place))
    host = Host(launch=0)
    for i, (later, stream, us, place) in enumerate(drawn):
        host.steps.append(Work(later * 1000))
        host.kernel(str(i), us, f"s{stream}", ("compute", UP)[place], -(stream == 2))
    got = ran(host)
    assert [got[str(i)] for i in range(len(asked))] == by_ticks(asked)
