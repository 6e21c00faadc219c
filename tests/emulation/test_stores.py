"""Ranks that wait in a store wait in emulated time, and errors name the key."""

import os
import socket
import threading
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from ddpkit import Cluster, busy
from ddpkit.errors import Deadlock

pytestmark = pytest.mark.processes
COUNTED = {"machine": "1 TFLOP/s", "link": "1 Gbit/s, 20 us"}
FREE = {"link": "1 Gbit/s, 20 us", "speed": float("inf")}
MEASURED = {"link": "1 Gbit/s, 20 us"}
REAL: dict[str, object] = {}
NETWORKS = {"real": REAL, "link": MEASURED, "inf": FREE, "machine": COUNTED}
in_every_time = pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
exactly = pytest.mark.parametrize("network", [FREE, COUNTED], ids=["inf", "machine"])
MS = 1e-3


def of_the_run():
    return dist.distributed_c10d._get_default_store()


def ms_since(begun):
    return (time.perf_counter() - begun) / MS


def waits_for_a_sender():
    """Let rank 1 send, which takes time, and then set the key for which rank 0 waits."""
    rank, store, begun = dist.get_rank(), of_the_run(), time.perf_counter()
    if rank == 0:
        store.wait(["x"], timedelta(seconds=100))
    elif rank == 1:
        busy("5 ms")
        dist.send(torch.ones(125), 2)
        store.set("x", "1")
    else:
        dist.recv(torch.empty(125), 1)
    return ms_since(begun)


@in_every_time
def test_a_rank_that_waits_holds_nobody_up(network):
    times = Cluster(3, **network).run(waits_for_a_sender, timeout=60).results
    if network in (FREE, COUNTED):
        assert times[:2] == pytest.approx([5.004, 5.004], abs=1e-6)  # 500 bytes take 4 us
    assert min(times[:2]) >= 5


WAYS = {
    "get": lambda store: store.get("x"),
    "wait": lambda store: store.wait(["x"]),
    "multi_get": lambda store: store.multi_get(["x", "y"]),
    "queue_pop": lambda store: store.queue_pop("q"),
}


def waits_in(kind, way, folder, port):
    """Let ranks 1 and 2 set the keys for which rank 0 waits, 3 and 7 ms after the start."""
    rank = dist.get_rank()
    if kind == "file":
        store = dist.FileStore(os.path.join(folder, "file"), 3)
    elif kind == "tcp":
        store = dist.TCPStore("localhost", port, 3, is_master=rank == 0)
    else:
        store = of_the_run()
    store = dist.PrefixStore("mine", store)
    begun = time.perf_counter()
    if rank == 0:
        WAYS[way](store)
    else:
        busy(f"{4 * rank - 1} ms")
        if way == "queue_pop":
            if rank == 1:
                store.queue_push("q", "1")
        else:
            store.set("x" if rank == 1 else "y", "1")
    took = ms_since(begun)
    dist.barrier()
    return took


@exactly
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["run's", "file", "tcp"])
def test_a_rank_goes_on_when_another_has_set_its_key(kind, way, network, tmp_path):
    if way == "queue_pop" and kind != "tcp":
        pytest.skip("a FileStore has no queues")
    took = Cluster(3, **network).run(waits_in, kind, way, str(tmp_path), free_port(), timeout=60)
    last = 7 if way == "multi_get" else 3
    assert took.results == pytest.approx([last, 3, 7], abs=1e-9)


def free_port():
    with socket.socket() as found:
        found.bind(("localhost", 0))
        return found.getsockname()[1]


def meets(port):
    """Let the server come last to a store, and to a barrier through the store."""
    rank, begun = dist.get_rank(), time.perf_counter()
    busy("7 ms" if rank == 1 else "1 ms")
    store = dist.TCPStore("localhost", port, 3, is_master=rank == 1)
    made = ms_since(begun)
    if rank == 1:
        busy("10 ms")
    store.barrier("all", 3)
    return made, ms_since(begun)


@exactly
def test_ranks_meet_in_a_store_that_they_make(network):
    for made, met in Cluster(3, **network).run(meets, free_port(), timeout=60).results:
        assert (made, met) == pytest.approx((7, 17), abs=1e-9)


def polls():
    """Let rank 0 look again and again, in three ways; ranks 1 and 2 are late."""
    rank, store, begun = dist.get_rank(), of_the_run(), time.perf_counter()
    if rank:
        busy(f"{3 * rank} ms")
        store.set(f"here{rank}", "yes")
        store.add("count", 1)
        return ms_since(begun)
    times = []
    for looks in (
        lambda: store.check(["here1"]),
        lambda: store.compare_set("here2", "", "no") == b"yes",
        lambda: store.add("count", 0) == 2,
    ):
        while not looks():
            pass
        times.append(ms_since(begun))
    return times


@exactly
def test_a_loop_that_looks_ends(network):
    (first, *_), one, two = Cluster(3, **network).run(polls, timeout=60).results
    assert (one, two) == pytest.approx((3, 6), abs=1e-9)
    assert 3 <= first < 3.1


def sees_in_order():
    """Look for a key at emulated times before and after the set, and late in real time."""
    rank, store = dist.get_rank(), of_the_run()
    if rank == 1:
        busy("2 ms")
        store.set("x", "1")
        return []
    time.sleep(1 * MS)
    real_pause()
    found = [store.check(["x"])]
    busy("2 ms")
    return [*found, store.check(["x"])]


def real_pause():
    """Wait in real time, so that the peer comes first."""
    threading.Event().wait(0.3)


@exactly
def test_a_key_is_there_from_its_time_on(network):
    assert Cluster(2, **network).run(sees_in_order, timeout=60).results[0] == [False, True]


def counts(names):
    """Draw numbers from a counter on all ranks, at equal and at different times."""
    rank, store, drawn = dist.get_rank(), of_the_run(), []
    for name in names:
        drawn.append(store.add(name, 1))
        busy(f"{1 + (rank * 7 + len(drawn)) % 3} us")
    return drawn


def test_the_order_at_a_counter_is_the_same_in_every_run():
    results = [Cluster(4, **COUNTED).run(counts, ["a", "b", "a", "a"]).results for _ in range(4)]
    assert results[1:] == results[:-1]
    # at equal times, in the order of ranks
    assert [drawn[0] for drawn in results[0]] == [1, 2, 3, 4]


def waits_at_most():
    begun, rank = time.perf_counter(), dist.get_rank()
    with pytest.raises(RuntimeError, match="timeout"):
        of_the_run().wait(["never"], timedelta(seconds=40 + rank))
    return ms_since(begun)


@exactly
def test_a_limit_counts_in_emulated_time(network):
    begun = time.monotonic()
    assert Cluster(2, **network).run(waits_at_most).results == pytest.approx([40_000, 41_000])
    assert time.monotonic() - begun < 39  # real seconds


def in_a_thread():
    store, begun = dist.HashStore(), time.perf_counter()

    def sets():
        busy("3 ms")
        store.set("x", "1")

    thread = threading.Thread(target=sets)
    thread.start()
    store.get("x")
    took = ms_since(begun)
    thread.join()
    return took


@exactly
def test_a_thread_of_the_rank_may_set_it(network):
    assert Cluster(2, **network).run(in_a_thread).results == pytest.approx([3, 3], abs=1e-9)


def from_outside():
    """Let a child of rank 1, outside of emulated time, set the key for which rank 0 waits."""
    store = of_the_run()
    if dist.get_rank() == 0:
        return store.get("x")
    if os.fork() == 0:
        real_pause()
        store.set("x", "seen")
        os._exit(0)
    return None


@in_every_time
def test_a_key_may_come_from_outside(network):
    assert Cluster(2, **network).run(from_outside, timeout=60).results[0] == b"seen"


def waits_for_ever():
    rank = dist.get_rank()
    if rank == 0:
        of_the_run().get("model")
    elif rank == 1:
        dist.recv(torch.empty(1), 0)


@in_every_time
def test_a_key_that_nobody_sets_is_named(network):
    with pytest.raises(Deadlock) as caught:
        Cluster(3, **network).run(waits_for_ever, timeout=60)
    error = caught.value
    assert error.cause == "key"
    assert error.waiting[0].call.keys == ("model",)
    assert error.returned == {2}
    assert "Why: rank 0 waits for the key 'model', which nobody has set." in str(error)
    assert "rank 0 waits in get('model') of a store\n" in str(error)


def all_wait():
    of_the_run().wait(["a", "b"] if dist.get_rank() else ["a"])


@in_every_time
def test_ranks_that_all_wait_for_keys_are_told(network):
    with pytest.raises(Deadlock) as caught:
        Cluster(3, **network).run(all_wait, timeout=60)
    says = " ".join(str(caught.value).split())
    assert (
        "rank 0 waits for the key 'a', which nobody has set; ranks 1, 2 wait for the keys 'a', "
        "'b', which nobody has set." in says
    )
