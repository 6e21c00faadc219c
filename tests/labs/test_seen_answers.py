"""A table of answers seen under twenty seeds earns at most 6 % of an exercise's points.

The table answers a case under a new seed if the question came up before. The test compares
questions by their pickles: a pickle holds all drawn values.
"""

from __future__ import annotations

import pytest

from ddpkit.exercises import exercises
from ddpkit.exercises.exercise import earned
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.questions import questions

MOST = 0.06  # a share of an exercise's points
SEEN = 20  # seeds
NO_TABLE = {  # exercises without numbers to look up, and the checked behaviour
    "barrier": "messages of ranks",
    "pair_groups": "groups of ranks, in which a sum is made",
    "monitored_barrier": "ranks that wait for each other in real time",
    "no_sync": "a flag inside a block and after it, and what an exception does to it",
    "supervise": "attempts at a job that ends in many ways",
    "drifted": "replicas on ranks",
}


def by_table(name: str) -> float:
    """Return the points of a table of the answers seen under `SEEN` seeds."""
    exercise = exercises()[name]
    seen = {
        question.pickled
        for number in range(SEEN)
        for question in questions(exercise, Seed(f"seen {number}"))
    }
    asked = questions(exercise, Seed("a secret", secret=True))
    return earned(exercise.points, [(each.case, each.pickled in seen) for each in asked])


STILL_OPEN = ("call", "pieces")  # a table earns 0.2 of 1 and 1.33 of 2: see issue 39, number 10


@pytest.mark.slow  # the questions of some exercises take seconds to draw
@pytest.mark.processes("some")
@pytest.mark.parametrize("name", sorted(exercises().keys() - NO_TABLE.keys()))
def test_a_table_of_answers_seen_earns_next_to_nothing(name: str) -> None:
    if name in STILL_OPEN:  # fails when the exercise is mended: take it off the list then
        assert by_table(name) > MOST * exercises()[name].points
        return
    assert by_table(name) <= MOST * exercises()[name].points


def test_a_table_is_worth_points_where_no_number_is_drawn() -> None:
    assert by_table("barrier") == exercises()["barrier"].points
