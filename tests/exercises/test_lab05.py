"""Lab 05's check: what a random question may be, and what wrong answers are told."""

from ddpkit.checks.lab05.caps import TELLING, WRONG_MODELS, Question, cap_hint


def test_a_cap_that_is_as_good_as_the_best_is_no_clear_question():
    """Rounding would decide which of the two an answer finds."""
    ready, sizes = (0.1, 0.2), (2**20, 2**20)
    assert not Question((0.5, 1.0, 8.0), ready, sizes, 1e-4, 1e7, 2).clear()  # 0.5 is as 1.0
    assert Question((1.0, 8.0), ready, sizes, 1e-4, 1e7, 2).clear()


def test_each_wrong_model_is_known_by_what_it_chooses():
    chosen = {tuple(question.best() for question in TELLING): "right"}
    for model, sentence in WRONG_MODELS:
        caps = tuple(model.best(question) for question in TELLING)
        assert chosen.setdefault(caps, sentence) == sentence


def test_a_hint_names_no_right_cap():
    """Inputs may be secret."""
    for question in TELLING:
        for cap in set(question.caps) - {question.best()}:
            said = cap_hint(question, {"cap": cap})
            assert f"With {cap:g} MB" in said
            assert f"{question.best():g} MB" not in said.replace(f"With {cap:g} MB", "")
