"""Interval arithmetic against sets of nanoseconds, one by one."""

import random
from itertools import pairwise

import pytest

from ddpkit.trace.intervals import Interval, intersect, subtract, total, union

SEEDS = range(200)


def random_intervals(rng: random.Random) -> list[Interval]:
    """Overlapping, touching, empty and inverted ones too."""
    return [(rng.randint(0, 30), rng.randint(0, 30)) for _ in range(rng.randint(0, 9))]


def instants(intervals: list[Interval]) -> set[int]:
    return {ns for start, end in intervals for ns in range(start, end)}


def is_normal(intervals: list[Interval]) -> bool:
    nonempty = all(start < end for start, end in intervals)
    return nonempty and all(a[1] < b[0] for a, b in pairwise(intervals))


@pytest.mark.parametrize("seed", SEEDS)
def test_agrees_with_sets_of_nanoseconds(seed: int) -> None:
    rng = random.Random(seed)
    a, b = random_intervals(rng), random_intervals(rng)
    for result, expected in (
        (union(a), instants(a)),
        (intersect(a, b), instants(a) & instants(b)),
        (subtract(a, b), instants(a) - instants(b)),
    ):
        assert instants(result) == expected
        assert is_normal(result)
    assert total(a) == len(instants(a))


def test_touching_intervals_become_one() -> None:
    assert union([(5, 9), (0, 5)]) == [(0, 9)]


def test_one_hole_cuts_several_intervals() -> None:
    assert subtract([(0, 4), (6, 9), (10, 12)], [(3, 11)]) == [(0, 3), (11, 12)]


def test_inputs_are_left_unchanged() -> None:
    a = [(4, 8), (0, 5)]
    union(a), intersect(a, a), subtract(a, a), total(a)
    assert a == [(4, 8), (0, 5)]
