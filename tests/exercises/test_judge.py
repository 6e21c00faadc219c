"""The verdicts of `judge` on answers, and actions that no answer may do to a check."""

import dataclasses
import sys

import pytest

from ddpkit.errors import LessonError, RankError
from ddpkit.exercises import Case, Hint, check, exercise, judge
from ddpkit.exercises.explain import Explanation, explain
from ddpkit.exercises.progress import folder
from ddpkit.protocol.raised import Raised

SNEAKY = {
    "agrees with everything": """
        class Agreeable:
            def __eq__(self, other): return True
            def __repr__(self): return "34"
            __hash__ = None
        def toy_sum(numbers): return Agreeable()
        """,
    "a number of its own kind": """
        class Number(int):
            def __eq__(self, other): return True
            __hash__ = None
        def toy_sum(numbers): return Number(34)
        """,
    "prints what is expected": """
        def toy_sum(numbers):
            print("✓ 0 numbers   total 0")
        """,
    "leaves": "def toy_sum(numbers): raise SystemExit(0)",
    "a base exception of its own": """
        class Mine(BaseException):
            def __str__(self): raise ValueError
        def toy_sum(numbers): raise Mine
        """,
    "skips": """
        import pytest
        def toy_sum(numbers): pytest.skip("no")
        """,
    "takes no arguments": "def toy_sum(): return 0",
    "returns itself": "def toy_sum(numbers): return toy_sum",
    "a repr that raises": """
        class Bad:
            def __repr__(self): raise ValueError
        def toy_sum(numbers): return [Bad()]
        """,
    "never ends by itself": "def toy_sum(numbers): return toy_sum(numbers)",
    "is a generator": "def toy_sum(numbers): yield 0",
    "is a coroutine": "async def toy_sum(numbers): return 0",
    "is a class": "class toy_sum: pass",
    "a huge number": "def toy_sum(numbers): return {10**5000: 1}",
    "closes stdout": "import sys\ndef toy_sum(numbers): sys.stdout.close()",
    "replaces stdout": "import sys, io\ndef toy_sum(numbers): sys.stdout = io.StringIO()",
}


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("kind", SNEAKY)
def test_no_answer_makes_a_check_raise_or_pass(toy_sum, cell, kind, capsys):
    verdict = check(cell(SNEAKY[kind])["toy_sum"])
    assert verdict.earned == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "toy_sum: not yet, 0 of 3 cases. Change your cell, run it, then this one."
    assert len(lines) <= 15
    assert all(len(line) <= 200 for line in lines)


def test_stop_is_the_readers(toy_sum, cell):
    with pytest.raises(KeyboardInterrupt):
        check(cell("def toy_sum(numbers): raise KeyboardInterrupt")["toy_sum"])
    assert sys.stdout is not None
    assert not folder().exists()


def test_a_broken_exercise_is_not_the_students_fault(registry):
    @exercise("toy_empty", lab="99")
    def no_cases(answer, rng):
        return iter(())

    def toy_empty():
        pass

    with pytest.raises(LessonError, match="has no cases"):
        check(toy_empty)

    broken = dataclasses.replace(
        registry["toy_empty"], cases=lambda answer, rng: iter([Case("x", lambda: 3, {"x": 3})])
    )
    with pytest.raises(LessonError, match=r"broken: observe\(\) must return a dict"):
        judge(broken, toy_empty)


def test_cases_weigh(registry):
    @exercise("toy_weights", lab="99", points=4)
    def cases(answer, rng):
        for weight in (1, 3):
            yield Case(str(weight), lambda weight=weight: {"ok": answer(weight)}, {"ok": True},
                       weight=weight)  # fmt: skip

    assert judge(registry["toy_weights"], lambda weight: weight == 3).earned == 3
    assert judge(registry["toy_weights"], lambda weight: weight == 1).earned == 1


def test_a_function_that_is_to_return_nothing_may(registry):
    @exercise("toy_append", lab="99", returns=False)
    def cases(answer, rng):
        def observe():
            numbers = []
            answer(numbers)
            return {"numbers": numbers}

        yield Case("once", observe, {"numbers": [1]})

    assert judge(registry["toy_append"], lambda numbers: numbers.append(1)).passed


@pytest.mark.parametrize(
    ("answer", "earned"),
    [(lambda n: n, 4.0), (lambda n: 1, 0.0), (lambda n: min(n, 2), 3.0), (lambda n: n or 9, 3.0)],
)
def test_what_is_trivial_earns_nothing_alone(registry, answer, earned):
    @exercise("toy_trivial", lab="99", points=4)
    def cases(answer, rng):
        for n in (1, 0, 2, 3):
            observe = lambda n=n: {"n": answer(n)}  # noqa: E731
            yield Case(str(n), observe, {"n": n}, trivial=n < 2)

    assert judge(registry["toy_trivial"], answer).earned == earned


def test_the_hint_is_that_of_the_first_failing_case(registry):
    @exercise("toy_two", lab="99")
    def cases(answer, rng):
        for n in (1, 2):
            say = Hint("two", say=lambda s: "Of the second." if s.expect["n"] == 2 else None)
            yield Case(str(n), lambda n=n: {"n": answer(n)}, {"n": n}, hints=[say])

    assert judge(registry["toy_two"], lambda n: 0).hint == ""
    assert judge(registry["toy_two"], lambda n: 1).hint == "Of the second."


def test_a_short_message_of_a_rank_stands_on_one_line():
    message = "Expected a tensor\n but got an int."
    said = f"rank 1 raised TypeError: {message}\n  Cell 1, line 2: send(t)"
    error = RankError(said, raised={1: Raised("TypeError", message)})
    whole = "rank 1 raised TypeError: Expected a tensor but got an int."
    assert explain(error) == Explanation(whole, ("Cell 1, line 2: send(t)",))
