"""Lab 05's check: what a random question may be."""

from ddpkit.lessons._lab05_caps import Question


def test_a_cap_that_is_as_good_as_the_best_is_no_clear_question():
    """Rounding would decide which of the two an answer finds."""
    ready, sizes = (0.1, 0.2), (2**20, 2**20)
    assert not Question((0.5, 1.0, 8.0), ready, sizes, 1e-4, 1e7, 2).clear()  # 0.5 is as 1.0
    assert Question((1.0, 8.0), ready, sizes, 1e-4, 1e7, 2).clear()
