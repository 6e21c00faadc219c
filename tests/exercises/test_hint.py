"""Named hints: the first hint that fits, the data that hints see, and exercises that end early."""

from __future__ import annotations

import pytest

from ddpkit import Deadlock, Mismatch, RankError
from ddpkit.errors import Waiting
from ddpkit.exercises import Case, Exercise, Hint, Seen, judge
from ddpkit.exercises.hint import first_that_fits
from ddpkit.exercises.raised import Trouble, from_claim, named, trouble_of
from ddpkit.exercises.verdict import verdict_text
from ddpkit.grade.score import score
from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Raised
from tests.grade.outside import Recorded

HINTS = (
    Hint("none", lambda s: s.kind == "None", "It may be None."),
    Hint("squared", lambda s: s.result == s.n**2, lambda s: f"Twice {s.n}, not its square."),
    Hint("says nothing", say=lambda s: None),
    Hint("other", say="Add n to itself."),
)


def doubled(stop_if: str = "") -> Exercise:
    def cases(answer, rng):
        for n in (3, 5, 7):
            observe = lambda n=n: {"result": answer(n)}  # noqa: E731
            yield Case(
                f"{n}", observe, {"result": 2 * n}, hints=HINTS, given={"n": n}, stop_if=stop_if
            )

    return Exercise("double", "90", 3, "", cases)


@pytest.mark.parametrize(
    ("answer", "name", "says"),
    [
        (lambda n: n * n, "squared", "Twice 3, not its square."),
        (lambda n: n, "other", "Add n to itself."),
        (lambda n: None + n, "none", "It may be None."),
        (lambda n: n.real.imag.gone, "", ""),
    ],
)
def test_the_first_hint_that_fits_is_known_by_name(answer, name, says):
    verdict = judge(doubled(), answer)
    assert (verdict.hint_name, verdict.hint) == (name, says)


def test_what_a_hint_sees():
    s = Seen({"on rank": 2, "sum": 1}, {"sum": 1, "on rank": 3}, {"n": 4})
    assert (s.on_rank, s["on rank"], s.n, s.error, s.kind) == (2, 2, 4, None, "")
    assert s.wrong()
    assert not s.wrong("sum")
    with pytest.raises(AttributeError, match="neither observes nor gives lost"):
        _ = s.lost


def test_a_name_of_both_the_author_and_the_answer_is_refused():
    s = Seen({"on rank": [2], "steps": [3, 1]}, {"on rank": [2], "steps": [3, 3]}, {"steps": 3})
    with pytest.raises(AttributeError, match="steps is both given and observed"):
        _ = s.steps
    assert (s["steps"], s.given["steps"], s.on_rank) == ([3, 1], 3, [2])
    says = Hint("steps", say=lambda s: f"3 steps were to be taken: it was {s.steps}")
    assert says.advice(s) is None


def test_an_object_may_be_given():
    assert first_that_fits(HINTS, Seen({"result": 16}, {}, 4 + 0j)) is not None
    assert Seen({}, {}, 4 + 3j).imag == 3


def test_a_hint_has_a_name_and_something_to_say():
    with pytest.raises(ValueError, match="a hint needs a name and a text"):
        Hint("empty")


@pytest.mark.parametrize(("stop_if", "asked"), [("", 3), ("wrong", 1), ("raised", 3)])
def test_after_a_wrong_plain_case_nothing_more_is_tried(stop_if, asked):
    tried = []
    verdict = judge(doubled(stop_if), lambda n: tried.append(n) or 0)
    assert len(tried) == asked
    assert len(verdict.cases) == 3
    assert verdict.earned == 0
    assert ("2 more cases were not tried." in verdict_text(verdict)) == (asked == 1)


@pytest.mark.parametrize(
    ("error", "stop_if", "asked"),
    [(ValueError(), "raised", 1), (ValueError(), "", 3), (Deadlock(""), "", 1)],
)
def test_after_an_exception_nothing_more_is_tried(error, stop_if, asked):
    tried = []

    def answer(n):
        tried.append(n)
        raise error

    recorded = Recorded(doubled(stop_if))
    verdict = judge(recorded.recording(), answer)
    assert len(tried) == asked
    assert len(recorded.rows) == 3
    assert score(recorded.exercise, recorded.rows).earned == verdict.earned == 0


def test_what_is_not_tried_counts_as_wrong():
    recorded = Recorded(doubled("wrong"))
    verdict = judge(recorded.recording(), {3: 6}.get)
    assert verdict.earned == score(recorded.exercise, recorded.rows).earned == 1.0


@pytest.mark.parametrize(
    ("error", "trouble"),
    [
        (KeyError("x"), Trouble("KeyError")),
        (TypeError("'NoneType' object is not iterable"), Trouble("TypeError", "None")),
        (AttributeError("'int' object has no attribute 'grad_fn'"),
         Trouble("AttributeError", attribute="grad_fn")),
        (Deadlock("", cause="receive", waiting={0: Waiting(Call("recv"), ("f", 1))}),
         Trouble("Deadlock", stuck="receive", hung=True)),
        (Deadlock("", cause="cycle", waiting={0: Waiting(Call("barrier"), ("f", 1))}),
         Trouble("Deadlock", stuck="returned", hung=True)),
        (Mismatch("", kind="message", calls={0: Call("recv", dtype="int64"),
                                             1: Call("send", dtype="float32")}),
         Trouble("Mismatch", mismatch="message", dtypes=("float32", "int64"), hung=True)),
    ],
    ids=lambda each: getattr(each, "words", ""),
)  # fmt: skip
def test_what_an_answer_ended_in_is_data(error, trouble):
    assert trouble_of(error) == trouble
    assert from_claim(trouble.claimed() | {"dtypes": list(trouble.dtypes)}) == trouble


def test_what_a_message_names_is_data():
    error = RuntimeError("no gradient\nfor layers.1.weight")
    assert named(error, ["layers.0.weight", "layers.1.weight"]) == ["layers.1.weight"]
    on_a_rank = RankError("", raised={1: Raised("RuntimeError", "where is a.bias?")})
    assert named(on_a_rank, ["a.weight", "a.bias"]) == ["a.bias"]


def test_of_a_rank_the_exception_there_counts():
    raised = {1: Raised("IndexError", "list index out of range")}
    error = RankError("Rank 1 raised.\n  x = None  # NoneType", raised=raised)
    assert trouble_of(error) == Trouble("IndexError")


@pytest.mark.parametrize("claim", [None, 3, [], {}, {"dtypes": 5, "hung": "yes", "kind": [1]}])
def test_a_forged_trouble_is_one_all_the_same(claim):
    assert from_claim(claim).hung is False


def test_what_is_given_comes_before_what_a_claim_says():
    """A forged claim may name more than was observed, so a hint takes sizes from the author's
    inputs."""
    assert Seen({"n": 10**12, "sent": "0→1"}, {}, {"n": 2}).n == 2
    assert Seen({"n": 10**12, "sent": "0→1"}, {}, {"n": 2}).sent == "0→1"
