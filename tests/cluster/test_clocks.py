"""Clocks of several hosts become one: tests by arithmetic, with clocks of known errors."""

import random
import time

import pytest

from ddpkit import Cluster
from ddpkit.cluster.torchrun.clocks import ClockShift, Reading, read, reading
from ddpkit.trace import Span

SECOND = 1_000_000_000


def pings(offset: int, rng: random.Random) -> list[tuple[int, int, int]]:
    """Return round trips of 20 to 300 us to a clock that is `offset` ns ahead.

    The ways there and back take different times.
    """
    now, trips = 0, []
    for _ in range(32):
        there, back = rng.randrange(10_000, 150_000), rng.randrange(10_000, 150_000)
        trips.append((now, now + there + offset, now + there + back))
        now += SECOND
    return trips


@pytest.mark.parametrize("offset", [0, 86_400 * SECOND, -5 * SECOND])
def test_the_shortest_round_trip_bounds_the_error(offset: int) -> None:
    for seed in range(50):
        trips = pings(offset, random.Random(seed))
        found = reading(trips)
        assert abs(found.offset_ns - offset) <= found.error_ns
        assert found.error_ns == min((back - sent + 1) // 2 for sent, _, back in trips)


def test_a_drifting_clock_is_followed() -> None:
    """The clocks drift apart by 50 us in each second: by 30 ms after ten minutes."""

    def rank_0(ns: int) -> int:
        return ns + 7 * SECOND + ns // 20_000

    clock = ClockShift(
        Reading(0, rank_0(0), 100), Reading(600 * SECOND, rank_0(600 * SECOND) - 600 * SECOND, 900)
    )
    assert clock.error_ns == 900
    for ns in (0, 123 * SECOND, 456 * SECOND + 789, 600 * SECOND):
        assert abs(clock.to_rank_0(ns) - rank_0(ns)) <= 1


def test_a_span_moves_with_all_its_times() -> None:
    clock = ClockShift(Reading(0, 100, 1), Reading(50, 100, 1))
    span = Span(1, "comm", "recv", "comm", 10, 40, blocked_ns=20, collected_ns=50)
    moved = Span(1, "comm", "recv", "comm", 110, 140, blocked_ns=120, collected_ns=150)
    assert clock.move(span) == moved
    assert clock.move(Span(1, "comm", "recv", "comm", 10, 40)).blocked_ns is None


def compare_clocks():
    import torch.distributed as dist

    group = dist.group.WORLD._inner
    rank, real = dist.get_rank(), time.perf_counter_ns
    if rank in (1, 3):  # a host started an hour later
        time.perf_counter_ns = lambda: real() - 3600 * SECOND
    return read(group, [[0, 2], [1, 3]])


@pytest.mark.processes
def test_a_wrong_clock_is_found_over_a_group() -> None:
    _, found, *others = Cluster(4).run(compare_clocks).results
    assert others == [Reading(), Reading()], "one of each other host asks"
    assert abs(found.offset_ns - 3600 * SECOND) <= found.error_ns < SECOND
