"""The registry of mutants itself."""

import sys
import types

import pytest

import ddpkit
from tests import mutants


@pytest.fixture(autouse=True)
def no_mutants(monkeypatch):
    monkeypatch.setattr(mutants, "MUTANTS", [])


@pytest.fixture
def kit(monkeypatch, cell):
    """The kit's answer to `toy_sum`, in a module of its own."""
    source = "def toy_sum(numbers):\n    return sum(numbers)\n"
    answer = cell(source, {"__name__": "toy_answers"})["toy_sum"]
    module = types.ModuleType("toy_answers")
    monkeypatch.setitem(sys.modules, "toy_answers", module)
    answers = types.SimpleNamespace(get={"toy_sum": answer}.__getitem__)
    monkeypatch.setattr(ddpkit, "answers", answers, raising=False)


def test_a_wrong_answer_written_out(toy_sum):
    @mutants.mutant("toy_sum", hint="The last number")
    def left_out(numbers):
        return sum(numbers[:-1])

    (wrong,) = mutants.MUTANTS
    assert str(wrong) == "toy_sum-left_out"
    verdict = mutants.run(wrong)
    assert not verdict
    assert wrong.hint in mutants.shown(verdict)


def test_the_kits_answer_edited(toy_sum, kit):
    mutants.edit("toy_sum", "as_it_is", replace="return", by="return", hint="x")
    mutants.edit("toy_sum", "last", replace="sum(numbers)\n", by="sum(numbers[:-1])\n", hint="x")
    mutants.edit("toy_sum", "gone", replace="nowhere", by="", hint="x")
    unchanged, edited, gone = mutants.MUTANTS
    assert mutants.run(unchanged)
    assert mutants.shown(mutants.run(edited)) == "The last number counts too."
    with pytest.raises(ValueError, match="'nowhere' stands 0 times in the answer"):
        mutants.run(gone)


def test_what_an_exception_shows(toy_sum):
    @mutants.mutant("toy_sum", hint="ZeroDivision")
    def divides(numbers):
        return 1 / 0

    text = mutants.shown(mutants.run(mutants.MUTANTS[0]))
    assert "ZeroDivisionError: division by zero" in text
    assert "return 1 / 0" in text


def test_mutants_have_names_and_hints():
    mutants.edit("toy_sum", "same", replace="a", by="b", hint="x")
    with pytest.raises(ValueError, match="two mutants are called toy_sum-same"):
        mutants.edit("toy_sum", "same", replace="a", by="c", hint="y")
    with pytest.raises(ValueError, match="an empty hint"):
        mutants.edit("toy_sum", "other", replace="a", by="c", hint="")
