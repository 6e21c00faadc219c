"""The registry of wrong and right answers."""

import types

import pytest

import ddpkit
from ddpkit.exercises import Case, Hint, exercise
from ddpkit.exercises.exercise import REGISTRY
from tests.labs import answers, test_wrong_and_right
from tests.labs.answers import Wrong, edits, right, wrong

HINTS = (Hint("last left out", lambda s: s.total == sum(s.numbers[:-1]), "The last counts too."),)


@pytest.fixture(autouse=True)
def no_answers(monkeypatch):
    monkeypatch.setattr(answers, "WRONG", [])
    monkeypatch.setattr(answers, "RIGHT", [])
    monkeypatch.delenv("DDPKIT_SEED", raising=False)


@pytest.fixture
def toy_sum(monkeypatch):
    for name in list(REGISTRY):
        monkeypatch.setitem(REGISTRY, name, REGISTRY[name])

    @exercise("toy_sum", lab="90", points=3)
    def cases(answer, rng):
        """Add up numbers."""
        numbers = [rng.randrange(10, 100) for _ in range(4)]
        given = {"numbers": numbers}
        observe = lambda: {"total": answer(numbers)}  # noqa: E731
        yield Case("4 numbers", observe, {"total": sum(numbers)}, hints=HINTS, given=given)

    yield REGISTRY["toy_sum"]
    del REGISTRY["toy_sum"]


def summed(numbers):
    return sum(numbers)


@pytest.fixture
def kit(monkeypatch):
    """Replace the kit's answers by an answer to `toy_sum`."""
    kits = types.SimpleNamespace(get={"toy_sum": summed}.__getitem__)
    monkeypatch.setattr(ddpkit, "answers", kits, raising=False)


def test_a_wrong_answer_written_out(toy_sum):
    @wrong("toy_sum", "last left out")
    def left_out(numbers):
        return sum(numbers[:-1])

    (found,) = answers.WRONG
    assert str(found) == "toy_sum-left_out"
    verdict = answers.run(found)
    assert not verdict
    assert verdict.hint_name == found.hint


def test_a_row_is_the_kits_answer_with_texts_replaced(toy_sum, kit):
    edits(
        ("toy_sum", "last", "sum(numbers)", "sum(numbers[:-1])", "last left out"),
        ("toy_sum", "two", {"return": "return -", "(numbers)\n": "(numbers[1:])\n"}, "x"),
        ("toy_sum", "gone", "nowhere", "", "x"),
        ("toy_sum", "twice", "numbers", "", "x"),
    )  # fmt: skip
    last, two, gone, twice = answers.WRONG
    assert answers.run(last).hint_name == "last left out"
    assert two.make()([5, 6, 7]) == -13
    with pytest.raises(ValueError, match="'nowhere' stands 0 times in the answer"):
        gone.make()
    with pytest.raises(ValueError, match="'numbers' stands 2 times in the answer"):
        twice.make()


@right("toy_sum")
def by_a_loop(numbers):
    total = 0
    for each in numbers:
        total += each
    return total


answers.RIGHT.pop()  # remove the toy's answer: other tests of this worker ask for the labs' answers


def test_a_row_may_be_an_edit_of_a_right_answer(toy_sum, monkeypatch):
    edits(("toy_sum", "late", "in numbers", "in numbers[:-1]", "last left out"), of=by_a_loop)
    (found,) = answers.WRONG
    assert answers.run(found).hint_name == "last left out"
    assert answers.RIGHT == []  # the edit does not register it again
    assert found.make().__name__ == "by_a_loop"


def test_what_it_ends_in_stands_where_there_is_no_hint(toy_sum):
    @wrong("toy_sum", raises="ZeroDivisionError")
    def divides(numbers):
        return 1 / 0

    verdict = answers.run(answers.WRONG[0])
    assert verdict.trouble.words == "ZeroDivisionError"
    assert test_wrong_and_right._got(answers.WRONG[0], verdict) == "ZeroDivisionError"


def test_wrong_answers_have_names_and_a_hint_or_an_end():
    edits(("toy_sum", "same", "a", "b", "x"))
    with pytest.raises(ValueError, match="two wrong answers are called toy_sum-same"):
        edits(("toy_sum", "same", "a", "c", "y"))
    with pytest.raises(ValueError, match="names its hint, or else what it raises"):
        edits(("toy_sum", "other", "a", "c", ""))
    with pytest.raises(ValueError, match="names its hint, or else what it raises"):
        wrong("toy_sum", "x", raises="KeyError")(summed)


def test_a_hint_that_nobody_gets_is_named(toy_sum, monkeypatch):
    monkeypatch.setattr(test_wrong_and_right, "exercises", lambda: {"toy_sum": toy_sum})
    found = [Wrong("toy_sum", "a", "another", lambda: None)]
    monkeypatch.setattr(test_wrong_and_right, "wrong_answers", lambda lab: found)
    with pytest.raises(AssertionError, match="toy_sum: last left out"):
        test_wrong_and_right.test_every_hint_has_a_wrong_answer("90")
    found.append(Wrong("toy_sum", "b", "last left out", lambda: None))
    test_wrong_and_right.test_every_hint_has_a_wrong_answer("90")
