"""Closed forms, compared with simulated events, with textbooks, and with each other."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.link import Link, Links
from ddpkit.simulate import (
    ALGORITHMS,
    FORMULAS,
    bus_bandwidth,
    collective_ns,
    cost,
    schedule,
    time_of,
)
from tests.properties import examples

LATENCIES = (0.0, 1e-9, 1e-6, 3e-5, 1e-4, 2e-4, 1e-3)  # seconds; the vector itself takes 100 us


def test_every_algorithm_has_a_formula_and_a_source() -> None:
    assert set(FORMULAS) == set(ALGORITHMS)
    assert all(formula.text and formula.source for formula in FORMULAS.values())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_closed_form_is_what_the_events_take(algorithm: str) -> None:
    for n in range(1, 20):
        nbytes, plan = 240 * n, schedule(algorithm, n, 60 * n)
        for latency in LATENCIES:
            link = Link(latency, nbytes / 1e-4)
            rounding = 1 + plan.rounds + n  # half a ns for each message of the longest chain
            assert time_of(plan, link).end_ns == pytest.approx(
                cost(algorithm, n, nbytes, link), abs=rounding
            )


@pytest.mark.parametrize("algorithm", ["ring", "all_gather", "reduce_scatter", "scatter", "gather"])
def test_uneven_chunks_cost_at_most_one_element_a_round_more(algorithm: str) -> None:
    for n in range(2, 8):
        for length in (0, 1, n - 1, n + 1, 3 * n + 2):
            link, plan = Link("1 us", "1 GB/s"), schedule(algorithm, n, length)
            least = cost(algorithm, n, 4 * (length // n) * n, link)
            most = cost(algorithm, n, 4 * -(-length // n) * n, link)
            assert least <= time_of(plan, link).end_ns <= most


@pytest.mark.parametrize("n", [2, 4, 8, 64, 4096])
def test_powers_of_two_cost_what_the_textbook_says(n: int) -> None:
    """Thakur et al. (2005), table of section 4; Patarasuk and Yuan (2009), section 3."""
    link, nbytes = Link("7 us", "1 GB/s"), 1000 * n
    alpha, wire, log2 = 7_000, 1000 * n, n.bit_length() - 1
    assert cost("broadcast", n, nbytes, link) == log2 * (alpha + wire)
    assert cost("butterfly", n, nbytes, link) == log2 * (alpha + wire)
    assert cost("tree", n, nbytes, link) == 2 * log2 * (alpha + wire)
    assert cost("ring", n, nbytes, link) == 2 * (n - 1) * (alpha + 1000)
    assert cost("all_gather", n, nbytes, link) == (n - 1) * (alpha + 1000)
    assert cost("barrier", n, nbytes, link) == log2 * alpha


def test_never_more_than_the_textbook() -> None:
    """An upper bound: rounds one after the other, each α + t."""
    for n in range(2, 70):
        for latency in LATENCIES:
            link, nbytes = Link(latency, 1e9), 100_000
            round_ns, log2 = latency * 1e9 + 1e5, (n - 1).bit_length()
            beyond = 2 if n & (n - 1) else 0
            assert cost("broadcast", n, nbytes, link) <= log2 * round_ns + 1
            assert cost("tree", n, nbytes, link) <= 2 * log2 * round_ns + 1
            assert cost("butterfly", n, nbytes, link) <= (
                (n.bit_length() - 1 + beyond) * round_ns + 1
            )
            assert cost("master_worker", n, nbytes, link) <= 2 * (n - 1) * round_ns + 1


def test_the_measured_example_of_the_design() -> None:
    """16 MiB over 4 ranks at 50 MB/s: 509 ms by the formula for a ring, 503 ms without latency."""
    assert cost("ring", 4, 2**24, "50 MB/s") / 1e6 == pytest.approx(503.3, abs=0.1)
    assert cost("master_worker", 4, 2**24, "50 MB/s") / 1e6 == pytest.approx(2013.3, abs=0.1)


def test_butterfly_wins_when_small_and_ring_when_large() -> None:
    link = "1 Gbit/s, 200 us"
    assert cost("butterfly", 8, 1_000, link) < cost("ring", 8, 1_000, link)
    assert cost("butterfly", 8, 10**8, link) > cost("ring", 8, 10**8, link)


def test_a_ring_is_as_good_as_bandwidth_allows() -> None:
    """An all_reduce moves at least 2(n-1)/n of the vector over each link: busbw = β at best."""
    for n in range(2, 9):
        for algorithm in ("ring", "tree", "butterfly", "all_to_all", "master_worker"):
            ns = cost(algorithm, n, 840 * 10**6, "1 GB/s")
            busbw = bus_bandwidth("all_reduce", n, 840 * 10**6, ns)
            assert busbw == pytest.approx(1e9) if algorithm == "ring" else busbw < 1.001e9


def test_bus_bandwidth_of_other_operations() -> None:
    assert bus_bandwidth("broadcast", 4, 10**9, 10**9) == 1e9
    assert bus_bandwidth("all_gather", 4, 10**9, 10**9) == 0.75e9
    assert bus_bandwidth("all_reduce", 1, 10, 0) == float("inf")
    with pytest.raises(ValueError, match="barrier"):
        bus_bandwidth("barrier", 4, 0, 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_better_link_is_never_slower_and_more_is_never_faster(algorithm: str) -> None:
    rng = random.Random(algorithm)
    for _ in range(100):
        n, nbytes = rng.randint(1, 300), rng.randrange(10**8)
        latency, bandwidth = rng.uniform(0, 1e-3), rng.uniform(1e6, 1e10)
        ns = cost(algorithm, n, nbytes, Link(latency, bandwidth))
        assert cost(algorithm, n, nbytes, Link(latency, bandwidth * 2)) <= ns
        assert cost(algorithm, n, nbytes, Link(latency / 2, bandwidth)) <= ns
        assert cost(algorithm, n, nbytes * 2, Link(latency, bandwidth)) >= ns
        assert cost(algorithm, 1, nbytes, Link(latency, bandwidth)) == 0


def unequal(latencies: tuple[float, ...]) -> st.SearchStrategy[list[Link]]:
    link = st.builds(Link, st.sampled_from(latencies), st.sampled_from((1e8, 3e8, 1e9)))
    return st.lists(link, min_size=2, max_size=8)


@examples(40)
@given(each=unequal((1e-6,)) | unequal((1e-6, 1e-3)))
def test_a_ring_on_unequal_links_goes_at_the_pace_of_the_slowest(each: list[Link]) -> None:
    """`replay` and the all_reduce of the emulated link use the slowest link's formula."""
    n, links = len(each), Links(tuple(each))
    far = any(link.latency_ns > 1000 for link in each)
    ns = time_of(schedule("ring", n, 25_000 * n), links).end_ns
    bound = cost("ring", n, 100_000 * n, links.slowest)
    # a long latency is paid once per distant link, not in every round
    assert (0.3 if far else 0.99) * bound <= ns <= bound + 2 * n


def test_unknown_algorithms_and_no_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="no algorithm 'rings'"):
        cost("rings", 2, 1, "1 us")
    with pytest.raises(ValueError, match="at least 1 rank"):
        cost("ring", 0, 1, "1 us")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 8])
def test_an_operation_costs_what_its_bytes_need(n: int) -> None:
    """The factors of latency and of bytes, from one rank's input, are counted by hand."""
    links, nbytes, log2 = Links.parse("1 GB/s, 7 us", n), 840_000, (n - 1).bit_length()
    expected = {
        "all_reduce": (2 * (n - 1), 2 * (n - 1) / n),
        "all_reduce_coalesced": (2 * (n - 1), 2 * (n - 1) / n),
        "all_gather_into_tensor": (n - 1, n - 1),
        "reduce_scatter": (n - 1, n - 1),
        "reduce_scatter_tensor": (n - 1, (n - 1) / n),
        "all_to_all": (n - 1, n - 1),
        "all_to_all_single": (n - 1, (n - 1) / n),
        "scatter": (min(1, n - 1), n - 1),
        "barrier": (log2, 0),
    }
    for operation, (latencies, payloads) in expected.items():
        ns = 7_000 * latencies + nbytes * payloads
        assert collective_ns(operation, nbytes, links) == round(ns), operation
    assert collective_ns("gather", nbytes, links) == collective_ns("scatter", nbytes, links)


def test_every_operation_has_a_cost_and_no_link_is_dearer_than_the_slowest() -> None:
    methods = pytest.importorskip("ddpkit.rank.group.methods")
    fast, mixed = "10 Gbit/s, 10 us", {"default": "10 Gbit/s, 10 us", 1: "1 Gbit/s, 1 ms"}
    for operation in set(methods.COLLECTIVES.values()):
        slow = collective_ns(operation, 10**6, Links.parse("1 Gbit/s, 1 ms", 3))
        by_events = collective_ns(operation, 10**6, Links.parse(mixed, 3))
        assert collective_ns(operation, 10**6, Links.parse(fast, 3)) < by_events
        assert by_events <= slow
