"""A table of answers seen under twenty seeds earns at most 6 % of an exercise's points.

The table answers a case under a new seed if the question came up before. The test compares
questions by their pickles: a pickle holds all drawn values. Each of the seeds is the new one in
turn, so the result is a mean and does not depend on the luck of one seed.
"""

from __future__ import annotations

from collections import Counter

import pytest

from ddpkit.exercises import exercises
from ddpkit.exercises.exercise import earned
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.questions import questions

MOST = 0.06  # a share of an exercise's points
SEEN = 20  # seeds, besides the new one
NO_TABLE = {  # exercises without numbers to look up, and the checked behaviour
    "barrier": "messages of ranks",
    "pair_groups": "groups of ranks, in which a sum is made",
    "monitored_barrier": "ranks that wait for each other in real time",
    "no_sync": "a flag inside a block and after it, and what an exception does to it",
    "supervise": "attempts at a job that ends in many ways",
    "drifted": "replicas on ranks",
}


def by_table(name: str) -> float:
    """Return the mean points of a table of the answers seen under `SEEN` other seeds."""
    exercise = exercises()[name]
    drawn = [questions(exercise, Seed(f"seen {number}")) for number in range(SEEN + 1)]
    under = Counter(each for asked in drawn for each in {one.pickled for one in asked})
    points = [
        earned(exercise.points, [(each.case, under[each.pickled] > 1) for each in asked])
        for asked in drawn
    ]
    return sum(points) / len(points)


@pytest.mark.slow  # the questions of some exercises take seconds to draw
@pytest.mark.processes("some")
@pytest.mark.parametrize("name", sorted(exercises().keys() - NO_TABLE.keys()))
def test_a_table_of_answers_seen_earns_next_to_nothing(name: str) -> None:
    assert by_table(name) <= MOST * exercises()[name].points


def test_a_table_is_worth_points_where_no_number_is_drawn() -> None:
    assert by_table("barrier") == exercises()["barrier"].points
