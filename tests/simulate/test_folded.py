"""Collectives of many equal ranks: playing only the first few ranks gives the times of all."""

from collections.abc import Sequence

import pytest

from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.engine.folded import MOST_ROUNDS, can_be_folded, folded_schedule
from ddpkit.simulate.engine.network import Network
from ddpkit.simulate.engine.operations import EXCHANGES, OPERATIONS, schedule_of

HOSTS: LinkSpec = {"hosts of": 4, "inside": "300 GB/s, 3 us", "between": "100 Gbit/s, 10 us"}
FOLDED = [name for name in OPERATIONS if can_be_folded(name)]
RINGS = [name for name in FOLDED if name not in EXCHANGES]


def in_full(operation: str, nbytes: int, links: Links, starts: Sequence[int]) -> list[int]:
    """Return the end of each rank, from the messages of all ranks."""
    network, n = Network(links), len(links)
    schedule = schedule_of(operation, nbytes, n)
    parts = [network.enter(starts[r], "group", 0, r, tuple(range(n)), schedule) for r in range(n)]
    network.advance()
    return [part.done_ns for part in parts]


def folded(
    operation: str, nbytes: int, links: Links, starts: Sequence[int], present: int
) -> list[int]:
    """Return the end of each of the first ranks, from the messages of the first ranks alone."""
    network, n = Network(links), len(links)
    schedule = folded_schedule(operation, nbytes, n, present)
    parts = [
        network.enter(starts[r], "group", 0, r, tuple(range(n)), schedule, present=present)
        for r in range(present)
    ]
    network.advance()
    return [part.done_ns for part in parts]


def starts_of(n: int, present: int) -> list[int]:
    """Return equal starts for a rank and all copies, and unequal starts for different ranks."""
    return [(rank % present) * 37_000 for rank in range(n)]


@pytest.mark.parametrize("nbytes", [0, 16_000, 16 * 4 * 12_345])
@pytest.mark.parametrize("operation", FOLDED)
@pytest.mark.parametrize("present", [1, 2, 4, 8])
def test_on_equal_links_all_times_are_those_of_the_whole(operation, present, nbytes):
    links, starts = Links.parse("1 Gbit/s, 20 us", 16), starts_of(16, present)
    whole = in_full(operation, nbytes, links, starts)
    assert whole == [whole[rank % present] for rank in range(16)]
    assert folded(operation, nbytes, links, starts, present) == whole[:present]


@pytest.mark.parametrize("operation", RINGS)
@pytest.mark.parametrize("present", [4, 8])
def test_between_hosts_too_in_rings(operation, present):
    links, starts = Links.parse(HOSTS, 16), starts_of(16, present)
    whole = in_full(operation, 64_000, links, starts)
    assert folded(operation, 64_000, links, starts, present) == whole[:present]


@pytest.mark.parametrize("operation", sorted(EXCHANGES))
def test_exchanges_between_hosts_are_close(operation):
    """Only the longest times are compared: a host's own order decides which message waits for its
    link."""
    links, starts = Links.parse(HOSTS, 16), starts_of(16, 4)
    whole = max(in_full(operation, 64_000, links, starts))
    assert max(folded(operation, 64_000, links, starts, 4)) == pytest.approx(whole, rel=0.02)


def test_an_uneven_vector_ends_as_the_whole_does():
    links = Links.parse("1 Gbit/s, 20 us", 16)
    whole = in_full("all_reduce", 16 * 1000 + 5, links, [0] * 16)
    assert folded("all_reduce", 16 * 1000 + 5, links, [0] * 16, 4) == [max(whole)] * 4


@pytest.mark.parametrize("operation", ["all_reduce", "all_gather_into_tensor"])
def test_a_long_ring_moves_several_rounds_in_one_message(operation):
    n = 2 * MOST_ROUNDS
    links = Links.parse("1 Gbit/s, 20 us", n)
    schedule = folded_schedule(operation, n * 1000, n, 2)
    assert len(schedule.of(0)) < 2 * MOST_ROUNDS
    whole = in_full(operation, n * 1000, links, [0] * n)
    assert folded(operation, n * 1000, links, [0] * n, 2) == whole[:2]


def test_a_long_ring_between_hosts_is_close():
    n = 2 * MOST_ROUNDS
    links = Links.parse({**HOSTS, "hosts of": 8}, n)  # type: ignore[dict-item]
    whole = in_full("all_reduce", n * 1000, links, [0] * n)
    found = folded("all_reduce", n * 1000, links, [0] * n, 8)
    assert max(found) == pytest.approx(max(whole), rel=1e-3)


def test_what_has_a_root_is_not_folded():
    roots = {"broadcast", "reduce", "scatter", "gather"}
    assert {name for name in OPERATIONS if not can_be_folded(name)} == roots
