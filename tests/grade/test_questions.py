"""The sandbox gets inputs, and no expected results."""

from __future__ import annotations

import io
import pickle
from importlib.util import cache_from_source, source_from_cache
from pathlib import Path

import pytest

from ddpkit import answers
from ddpkit.errors import LessonError
from ddpkit.exercises import Case, Exercise, exercises, judge
from ddpkit.exercises.seeds import Seed
from ddpkit.exercises.verdict import verdict_text
from ddpkit.grade.questions import GAP, LAB_MODULE, questions
from ddpkit.grade.sandbox import base

SECRET = Seed("a secret of tests", secret=True)


def exercise(cases: object) -> Exercise:
    return Exercise("f", "00", 1, "", cases)  # type: ignore[arg-type]


def test_a_question_is_filled_with_the_answer() -> None:
    def cases(answer, rng):
        for n in (rng.randrange(9), 5):
            yield Case("a case", lambda: {"got": answer(n)}, {"got": n + 1000})  # noqa: B023

    class Filling(pickle.Unpickler):
        def persistent_load(self, pid):
            assert pid == GAP
            return lambda n: ("answered", n)

    made = questions(exercise(cases), SECRET)
    seen = [Filling(io.BytesIO(each.pickled)).load()()["got"][1] for each in made]
    assert [n + 1000 for n in seen] == [each.case.expect["got"] for each in made]
    assert made[1].shown == {"got"}  # the value is the same for all seeds
    assert str(made[0].case.expect["got"]).encode() not in made[0].pickled


def test_a_question_with_torch_and_a_name_of_its_own_travels() -> None:
    """cloudpickle takes any name `ops` beside a `torch` for torch.ops, and cannot pickle it."""
    import torch

    class Plan:
        ops = 3

    def cases(answer, rng):
        yield Case("a case", lambda: {"got": torch.ones(Plan.ops).sum().item()}, {"got": 3})

    (made,) = questions(exercise(cases), SECRET)
    assert pickle.loads(made.pickled)() == {"got": 3}


def test_a_case_that_calls_the_answer_too_early() -> None:
    def cases(answer, rng):
        value = answer(1)
        yield Case("a case", lambda: {"got": value}, {"got": 1})

    with pytest.raises(LessonError, match="calls the answer outside `observe`"):
        questions(exercise(cases), SECRET)


@pytest.mark.processes("some")
@pytest.mark.parametrize("name", sorted(exercises()))
def test_questions_of_the_course_travel_without_its_modules(name: str) -> None:
    """The sandbox has no modules of labs, so the pickle must not name them."""
    seed = Seed(SECRET.text)  # public: a secret seed draws twice
    asked = questions(exercises()[name], seed)
    assert {type(each.case.expect) for each in asked} == {dict}
    again = questions(exercises()[name], seed)
    assert [each.case.title for each in asked] == [each.case.title for each in again]

    class Reading(pickle.Unpickler):
        def persistent_load(self, pid):
            return print

        def find_class(self, module, named):
            assert not LAB_MODULE.fullmatch(module), f"{module}.{named} is not in the sandbox"
            return super().find_class(module, named)

    for each in asked:
        assert callable(Reading(io.BytesIO(each.pickled)).load())


ALONE = (  # exercises that need no ranks, and therefore little time
    *("minibatches", "sgd_step", "accumulate", "fit_link", "predict", "shard", "gradients_of"),
    *("flatten", "unflatten", "assign_buckets", "GradientBuckets", "best_cap", "Reducer"),
)


@pytest.mark.parametrize("name", ALONE)
def test_the_kits_answer_is_right_whatever_the_secret(name: str) -> None:
    """Otherwise a class with this secret could not be graded."""
    for number in range(12):
        verdict = judge(exercises()[name], answers.get(name), Seed(f"{number}", secret=True))
        assert verdict, (number, verdict_text(verdict))


def test_the_staged_course_gives_nothing_away(tmp_path) -> None:
    staged = base.copy_course(tmp_path, "01")
    left = {path.name for path in staged.rglob("*lab0*.py")}
    assert left == {"lab00.py"}
    assert (staged / "answers" / "lab00.py").exists()
    assert "minibatches" not in (staged / "answers" / "__init__.py").read_text()


def test_bytecode_of_the_staged_course_gives_nothing_away(tmp_path) -> None:
    """Each bytecode file belongs to a module that is there, and to this module's text."""
    staged = base.copy_course(tmp_path, "01")
    compiled = {Path(source_from_cache(str(path))) for path in staged.rglob("*.pyc")}
    assert compiled == set(staged.rglob("*.py"))
    index = cache_from_source(str(staged / "answers" / "__init__.py"))
    assert b"minibatches" not in Path(index).read_bytes()
