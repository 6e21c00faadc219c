"""Weak and strong scaling: known limits, and the terms by hand."""

import pytest

from ddpkit.link import Link
from ddpkit.simulate import Gradient, Step, cost, scaling

STEP = Step(40_000_000, (Gradient("w", 25_000_000, 60_000_000),), 3_000_000, 1_000_000)
WORLDS = (1, 2, 4, 8, 16, 32)


@pytest.mark.parametrize("strong", [False, True])
def test_one_rank_is_as_fast_as_itself(strong: bool) -> None:
    (one,) = scaling(STEP, "1 Gbit/s, 200 us", [1], strong=strong)
    assert (one.speed_up, one.efficiency) == (1.0, 1.0)
    assert one.replay.step_ns == STEP.compute_ns


def test_a_network_that_costs_nothing_makes_weak_scaling_perfect() -> None:
    assert [s.speed_up for s in scaling(STEP, Link(0, float("inf")), WORLDS, strong=False)] == [
        *WORLDS
    ]


def test_without_a_network_strong_scaling_ends_at_what_is_not_shared() -> None:
    """Amdahl's law: the optimizer (3 ms) and the end of backward (1 ms) of 104 ms are not
    shared."""
    for each in scaling(STEP, Link(0, float("inf")), WORLDS, strong=True):
        assert each.speed_up == pytest.approx(104 / (100 / each.world_size + 4))


@pytest.mark.parametrize("strong", [False, True])
def test_one_bucket_costs_what_its_all_reduce_costs(strong: bool) -> None:
    """The single bucket is ready when backward ends, so nothing is hidden."""
    for each in scaling(STEP, "1 Gbit/s, 200 us", WORLDS, strong=strong):
        n = each.world_size
        own = 100_000_000 // (n if strong else 1) + 4_000_000
        took = own + cost("ring", n, 25_000_000, "1 Gbit/s, 200 us")
        assert each.replay.step_ns == pytest.approx(took, abs=2)
        assert each.speed_up == pytest.approx((1 if strong else n) * STEP.compute_ns / took)


def test_a_larger_batch_takes_longer_but_not_for_the_optimizer() -> None:
    twice = STEP.batch_of(2)
    assert (twice.forward_ns, twice.backward_ns) == (80_000_000, 120_000_000)
    assert (twice.optimizer_ns, twice.finish_ns) == (3_000_000, 1_000_000)
    assert twice.bytes == STEP.bytes
