"""The allowed random questions of lab 05, and the words about wrong answers."""

import random

import pytest

from ddpkit.checks.lab05.caps import WRONG_MODELS, CapProblem, problems_that_tell
from ddpkit.checks.lab05.hints import later

SEEDS = range(3)


def test_a_cap_that_is_as_good_as_the_best_is_no_clear_question():
    """Otherwise rounding would decide which of the two caps an answer finds."""
    ready, sizes = (0.1, 0.2), (2**20, 2**20)
    # 0.5 and 1.0 give equal times
    assert not CapProblem((0.5, 1.0, 8.0), ready, sizes, 1e-4, 1e7, 2).clear()
    assert CapProblem((1.0, 8.0), ready, sizes, 1e-4, 1e7, 2).clear()


@pytest.mark.parametrize("seed", SEEDS)
def test_each_wrong_model_is_known_by_what_it_chooses(seed):
    telling = problems_that_tell(random.Random(seed))
    chosen = {tuple(problem.best() for problem in telling): "right"}
    for _, model, sentence in WRONG_MODELS:
        caps = tuple(model.best(problem) for problem in telling)
        assert chosen.setdefault(caps, sentence) == sentence


def test_a_hint_names_no_right_cap():
    """The inputs may be secret."""
    for problem in problems_that_tell(random.Random(0)):
        for cap in set(problem.caps) - {problem.best()}:
            said = later(problem, cap)
            assert f"With {cap:g} MB" in said
            assert f"{problem.best():g} MB" not in said.replace(f"With {cap:g} MB", "")
