"""Prices: arrays and closed forms agree with the network, message by message."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import (
    Gradient,
    Step,
    all_reduce_ns,
    assign_buckets,
    bert,
    butterfly_ends,
    cost,
    noisy_steps,
    price_of,
    replay,
    resnet,
    ring_ends,
    scaling,
    schedule,
    step_ends,
)
from ddpkit.simulate.engine.timing import makespan_ns, played
from tests.properties import examples
from tests.simulate.topologies import a_topology

HOSTS = {"hosts of": 8, "inside": "150 GB/s, 3 us", "between": "100 Gbit/s, 20 us"}
Ends = Callable[[int, Links, Sequence[int] | None], list[int]]


def agrees(ends: Ends, name: str, links: Links, nbytes: int, starts: list[int] | None) -> None:
    begin = dict(enumerate(starts or ()))
    parts = played(schedule(name, len(links), nbytes), links, 1, begin, keep_ends=False)
    assert ends(nbytes, links, starts) == [part.done_ns for part in parts]


SIZES = st.sampled_from((0, 1, 7, 12_345, 27_720_000))  # the last size can be divided by 1 to 12


@examples(120)
@given(links=a_topology(), nbytes=SIZES, late=st.lists(st.integers(0, 200_000), max_size=12))
def test_a_ring_of_arrays_is_the_networks(links: Links, nbytes: int, late: list[int]) -> None:
    starts = [*late, *[0] * 12][: len(links)] if late else None
    agrees(ring_ends, "ring", links, nbytes, starts)


@examples(80)
@given(links=a_topology(hosts=False), nbytes=SIZES, late=st.lists(st.integers(0, 200_000)))
def test_a_butterfly_of_arrays_is_the_networks(links: Links, nbytes: int, late: list[int]) -> None:
    starts = [*late, *[0] * 12][: len(links)] if late else None
    agrees(butterfly_ends, "butterfly", links, nbytes, starts)


@pytest.mark.parametrize("name", ["ring", "butterfly", "tree"])
@pytest.mark.parametrize(
    "link", ["10 Gbit/s, 30 us", HOSTS, {"default": "1 Gbit/s, 50 us", 3: "200 Mbit/s"}]
)
def test_a_price_is_what_the_messages_take(name: str, link: LinkSpec) -> None:
    links = Links.parse(link, 16)
    for nbytes in (1600, 1_600_000):
        took = makespan_ns(schedule(name, 16, nbytes), links, 1)
        assert all_reduce_ns(name, nbytes, links) == took
        assert price_of(name, 16, link)(nbytes) == took


def test_cheapest_is_the_butterfly_for_few_bytes_and_the_ring_for_many() -> None:
    for nbytes, name in ((1_000, "butterfly"), (100_000_000, "ring")):
        links = Links.parse("100 Gbit/s, 10 us", 64)
        assert all_reduce_ns("cheapest", nbytes, links) == all_reduce_ns(name, nbytes, links)
    with pytest.raises(ValueError, match="'cheapest'"):
        price_of("dearest", 4, "1 Gbit/s")


def test_thousands_of_ranks_on_hosts_cost_at_least_what_they_take() -> None:
    """With many ranks, messages are not played one by one: the price is never below the truth."""
    links = Links.parse(HOSTS, 128)
    took = makespan_ns(schedule("butterfly", 128, 100_000), links, 1)
    assert took <= all_reduce_ns("butterfly", 100_000, links) <= 1.4 * took
    many = Links.parse(HOSTS, 512)
    exact = max(ring_ends(1_000_001, many))
    assert exact <= all_reduce_ns("ring", 1_000_001, many) <= exact + 2 * 511
    uneven = Links((Link.parse("1 Gbit/s"), *Links.parse("2 Gbit/s", 99).each))
    assert all_reduce_ns("tree", 1000, uneven) == cost("tree", 100, 1000, "1 Gbit/s")


def test_hosts_that_do_the_same_are_worked_out_once() -> None:
    """A list of starts, even all at 0, computes every rank."""
    links = Links.parse(HOSTS, 64)
    assert ring_ends(6_400_000, links) == ring_ends(6_400_000, links, [0] * 64)


def test_arrays_say_what_they_cannot_do() -> None:
    with pytest.raises(ValueError, match="on hosts"):
        butterfly_ends(8, Links.parse(HOSTS, 16))
    with pytest.raises(ValueError, match="starts= has 2 times for 4 ranks"):
        ring_ends(8, Links.parse("1 Gbit/s", 4), [0, 0])


# Steps


@examples(60)
@given(
    factors=st.lists(st.floats(0.2, 3), min_size=1, max_size=6),
    gaps=st.lists(st.integers(0, 400_000), min_size=1, max_size=9),
    cap=st.sampled_from((0.0, 0.2, 0.5, 100)),
    algorithm=st.sampled_from(("ring", "butterfly")),
)
def test_a_step_of_unequal_ranks_is_the_networks(
    factors: list[float], gaps: list[int], cap: float, algorithm: str
) -> None:
    """An all_reduce ends when the last rank's bytes have gone around, to the ns on equal links.

    All numbers of ranks divide the bytes of every gradient. Time after the last all_reduce is left
    out, because a rank that ends before the last rank begins it earlier.
    """
    at, some = 0, []
    for i, gap in enumerate(gaps):
        at += gap
        some.append(Gradient(f"p{i}", 60_000 * (1 + i % 3), at))
    step, n = Step(300_000, tuple(some), other_ns=1_000), len(factors)
    steps = [step.slowed(factor) for factor in factors]
    buckets, link = assign_buckets(step.gradients, cap), "1 Gbit/s, 40 us"
    ends = step_ends(steps, link, buckets, algorithm)
    done = replay(steps, n, link, buckets, algorithm=algorithm).step_ns
    if algorithm == "ring" or n & (n - 1) == 0:
        # a ns for the rounding of each message
        assert abs(max(ends) - done) <= 2 * n * len(buckets)
    else:
        assert max(ends) <= done + 2 * n * len(buckets)


def test_a_step_takes_what_a_price_says_whatever_the_link() -> None:
    step = Step.of_model(resnet(50), 100_000_000)
    buckets = assign_buckets(step.gradients)
    asked: list[int] = []

    def price(nbytes: int) -> int:
        asked.append(nbytes)
        return 5_000_000

    done = replay(step, 8, "1 Mbit/s", price=price)
    assert asked == [bucket.bytes for bucket in buckets]
    assert done.step_ns == step.compute_ns + 5_000_000
    assert done.facts["algorithm"] == "as priced"
    (scaled,) = scaling(step, "1 Mbit/s", [8], strong=False, algorithm="cheapest")
    assert scaled.replay.step_ns == replay(step, 8, "1 Mbit/s", algorithm="cheapest").step_ns


def test_noise_costs_the_slowest_rank() -> None:
    step = Step.of_model(bert("base"), 100_000_000)
    quiet = noisy_steps(step, 8, "unlimited", 0.0, steps=3)
    assert quiet == [step.compute_ns] * 3
    few, many = (sum(noisy_steps(step, n, "unlimited", 0.05)) / 1e8 for n in (8, 4096))
    # the mean of the largest of n half-normal numbers, by numerical integration: 1.76 and 3.85
    assert few == pytest.approx(100 * (1 + 0.05 * 1.76), rel=0.01)
    assert many == pytest.approx(100 * (1 + 0.05 * 3.85), rel=0.01)
    assert noisy_steps(step, 8, "unlimited", 0.1, seed=1) != noisy_steps(
        step, 8, "unlimited", 0.1, seed=2
    )
    with pytest.raises(ValueError, match="0 or more"):
        noisy_steps(step, 8, "unlimited", -0.1)


def test_4096_unequal_ranks_are_no_slower_than_the_slowest() -> None:
    step = Step.of_model(resnet(50), 100_000_000)
    steps = [step] * 4095 + [step.slowed(1.5)]
    done = replay(steps, 4096, "100 Gbit/s, 10 us", algorithm="cheapest")
    assert (
        done.step_ns
        == replay(step.slowed(1.5), 4096, "100 Gbit/s, 10 us", algorithm="cheapest").step_ns
    )
