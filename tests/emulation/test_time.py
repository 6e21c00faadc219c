"""The time that the user's code sees on an emulated machine, and the speed of the machine."""

import asyncio
import math
import threading
import time
import timeit
from time import perf_counter, perf_counter_ns, sleep

import pytest
import torch.distributed as dist

from ddpkit import Cluster, ClusterError, busy

pytestmark = pytest.mark.processes

LINK = "1 Gbit/s, 200 us"


def seen() -> dict[str, float]:
    """Return the length of two seconds of sleep on each clock."""
    clocks = {
        "time": time.time,
        "time_ns": lambda: time.time_ns() / 1e9,
        "monotonic": time.monotonic,
        "monotonic_ns": lambda: time.monotonic_ns() / 1e9,
        "perf_counter": time.perf_counter,
        "perf_counter_ns": lambda: time.perf_counter_ns() / 1e9,
        "imported by name": perf_counter,
        "imported by name, ns": lambda: perf_counter_ns() / 1e9,
        "timeit": timeit.default_timer,
        "clock_gettime": lambda: time.clock_gettime(time.CLOCK_MONOTONIC),
        "clock_gettime_ns": lambda: time.clock_gettime_ns(time.CLOCK_REALTIME) / 1e9,
    }
    before = {name: clock() for name, clock in clocks.items()}
    cpu = time.process_time()
    time.sleep(1)
    sleep(1)
    after = {name: clock() - before[name] for name, clock in clocks.items()}
    return {**after, "cpu": time.process_time() - cpu}


def test_all_clocks_are_the_machines():
    (found,) = Cluster(1, link=LINK, speed=math.inf).run(seen).results
    assert found.pop("cpu") < 1  # nothing sleeps, and CPU time stays real
    # A double holds the date to 0.2 us. If compute is free, many looks at the clock cost a little.
    assert found == pytest.approx(dict.fromkeys(found, 2.0), abs=1e-4)


def test_without_a_link_clocks_are_real():
    run = Cluster(1).run(lambda: (time.sleep(0.01), time.time())[1])
    assert abs(run.results[0] - time.time()) < 60


def others() -> dict[str, float]:
    """Return the emulated seconds of other ways to sleep."""

    async def several() -> None:
        await asyncio.gather(*(asyncio.sleep(k) for k in range(3)))
        await asyncio.sleep(1)

    found, begin = {}, time.perf_counter()
    asyncio.run(several())
    found["asyncio"] = time.perf_counter() - begin
    found["timeit"] = timeit.timeit("time.sleep(0.5)", "import time", number=4)

    def in_a_thread() -> None:
        begin = time.perf_counter()
        time.sleep(5)
        found["thread"] = time.perf_counter() - begin

    begin, thread = time.perf_counter(), threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    found["beside the thread"] = time.perf_counter() - begin
    return found


def test_asyncio_timeit_and_threads_sleep_in_emulated_time():
    (found,) = Cluster(1, link=LINK, speed=math.inf).run(others).results
    assert found["asyncio"] == pytest.approx(3, abs=0.01)
    assert found["timeit"] == pytest.approx(2, abs=0.01)
    assert found["thread"] == pytest.approx(5, abs=0.01)
    assert found["beside the thread"] < 1  # the thread's sleep moves only its own clock


def a_look_that_waits() -> float:
    """Loop around a clock that stands still: the loop must end too."""
    begin = time.perf_counter()
    while time.perf_counter() < begin + 0.05:
        pass
    return time.perf_counter() - begin


def test_a_loop_around_the_time_ends_where_compute_is_free():
    (found,) = Cluster(1, link=LINK, speed=math.inf).run(a_look_that_waits).results
    assert 0.05 <= found < 0.052


def burn(seconds: float) -> float:
    """Return the emulated seconds of this much CPU time."""
    begin, until = time.perf_counter(), time.thread_time() + seconds
    while time.thread_time() < until:
        pass
    return time.perf_counter() - begin


def test_a_slower_machine_takes_longer_and_a_stated_stretch_does_not():
    speed = {0: 1, 1: 0.5, 2: 4, 3: math.inf}
    cluster = Cluster(4, link=LINK, speed=speed)
    burnt = cluster.run(burn, 0.2).results
    assert burnt[:3] == pytest.approx([0.2, 0.4, 0.05], rel=0.05)
    assert burnt[3] == 0
    for took in cluster.run(stated).results:
        assert 0.25 <= took < 0.27


def stated() -> float:
    begin = time.perf_counter()
    busy("200 ms")
    busy(0.05)
    return time.perf_counter() - begin


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"speed": 0.5}, "add a link"),
        ({"speed": 0, "link": LINK}, "a number above 0"),
        ({"speed": -1, "link": LINK}, "a number above 0"),
        ({"speed": math.nan, "link": LINK}, "a number above 0"),
        ({"speed": "fast", "link": LINK}, "a number above 0"),
        ({"speed": True, "link": LINK}, "a number above 0"),
        ({"speed": {2: 1.0}, "link": LINK}, "a key is a rank from 0 to 1"),
        ({"speed": {"0": 1.0}, "link": LINK}, "a key is a rank from 0 to 1"),
        ({"speed": {0: 0}, "link": LINK}, "a number above 0"),
    ],
)
def test_a_speed_that_is_none_is_one_sentence(arguments, said):
    with pytest.raises(ClusterError, match=said) as caught:
        Cluster(2, **arguments)
    assert "\n" not in str(caught.value)


def test_the_trace_says_that_its_time_is_emulated():
    trace = Cluster(2, link="unlimited", speed={1: 0.5}).run(dist.barrier).trace
    assert trace.facts["time"] == "emulated"
    assert trace.facts["emulated"] == "unlimited"
    assert "0.5" in str(trace.facts["speed"])
    assert "time" not in Cluster(2).run(dist.barrier).trace.facts


def test_an_emulated_rank_shares_its_pages_as_others_do() -> None:
    """Regression: searching a rank for functions of `time` touched every object, and copied
    37 MB."""

    def faults() -> int:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    plain, emulated = (Cluster(2, link=link) for link in (None, "unlimited"))
    plain.run(faults)  # starts the forkserver
    assert max(emulated.run(faults).results) < 1.5 * max(plain.run(faults).results)
