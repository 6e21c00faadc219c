"""Interval arithmetic, compared with sets of single nanoseconds."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ddpkit.trace.intervals import Interval, intersect, subtract, total, union
from tests.properties import examples

MOMENTS = st.integers(0, 30)
# some touch, are empty or are inverted
INTERVALS = st.lists(st.tuples(MOMENTS, MOMENTS), max_size=9)


def instants(intervals: list[Interval]) -> set[int]:
    return {ns for start, end in intervals for ns in range(start, end)}


def is_normal(intervals: list[Interval]) -> bool:
    nonempty = all(start < end for start, end in intervals)
    return nonempty and all(a[1] < b[0] for a, b in pairwise(intervals))


@examples(200)
@given(a=INTERVALS, b=INTERVALS)
def test_agrees_with_sets_of_nanoseconds(a: list[Interval], b: list[Interval]) -> None:
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
