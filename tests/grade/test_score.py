"""Claims are judged outside the sandbox, whatever their content."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from ddpkit.errors import Deadlock
from ddpkit.exercises import Case, Close, Exercise, Hint
from ddpkit.exercises.assess import Status, until_one_ends
from ddpkit.grade.inside import MIME, asking
from ddpkit.grade.inside.claims import encode
from ddpkit.grade.questions import SealedCase
from ddpkit.grade.score import left_blank, says, score, score_case


def question(**facts: object) -> SealedCase:
    case = Case("2 ranks", dict, {"sum": torch.tensor([1.0, 2.0]), "bytes": 24}, **facts)
    return SealedCase("f", 0, case, b"", frozenset({"bytes"}))


def claim(**seen: object) -> dict[str, object]:
    return {"key": "f.0", "seen": encode(seen)}


def test_right_and_wrong() -> None:
    assert score_case(question(), claim(sum=torch.tensor([1.0, 2.0]), bytes=24)).status == "pass"
    wrong = score_case(question(), claim(sum=torch.tensor([1.0, 3.0]), bytes=20))
    assert wrong.status == "fail"
    assert says(wrong) == "sum[1] is 3.0; bytes is 20, expected 24"  # the first number is secret
    assert says(score_case(question(), claim(bytes=24))) == "sum is missing"


def test_close_is_close() -> None:
    case = Case("c", dict, {"x": Close(1.0)})
    asked = SealedCase("f", 0, case, b"", frozenset())
    assert score_case(asked, claim(x=1.00001)).status == "pass"
    assert score_case(asked, claim(x=1.01)).status == "fail"


@pytest.mark.parametrize(
    "forged",
    [
        None, 3, [], {}, {"key": "g.0", "seen": encode({})}, {"key": "f.0", "seen": True},
        {"key": "f.0", "kinds": 3, "lines": 5}, {"key": "f.0", "seen": ["d", [[["l", []], 1]]]},
        {"key": "f.0", "passed": True, "earned": 99}, {"key": "f.0", "seen": ["o", "Equal"]},
    ],
    ids=str,
)  # fmt: skip
def test_a_forged_claim_earns_nothing(forged: object) -> None:
    assert score_case(question(), forged).status == "error"


def test_what_is_told_of_values_is_told_outside() -> None:
    def read(seen):
        return {"most": max(seen["values"])}

    asked = SealedCase("f", 0, Case("c", dict, {"most": 3}, read=read), b"", frozenset())
    assert score_case(asked, claim(values=[3, 1])).status == "pass"
    assert says(score_case(asked, claim(values=[2, 1]))) == "most is 2"
    # a claim of a told value that was not observed
    assert score_case(asked, claim(most=3)).status == "error"


def test_hints_see_values_and_exceptions() -> None:
    hints = (
        Hint("raised", lambda s: s.error, lambda s: type(s.error).__name__),
        Hint("values", say=lambda s: f"{float(s['sum'][0])}"),
    )
    assert score_case(question(hints=hints), claim(sum=torch.tensor([7.0]), bytes=1)).hint == "7.0"
    raised = {"key": "f.0", "kinds": ["Deadlock", "RunFailed"], "summary": "all wait", "lines": []}
    judged = score_case(question(hints=hints), raised)
    assert (judged.status, judged.hint) == ("deadlock", "Deadlock")


def test_points_are_those_of_the_right_cases() -> None:
    exercise = Exercise("f", "00", 3, "", lambda answer, rng: iter(()))
    right = score_case(question(), claim(sum=torch.tensor([1.0, 2.0]), bytes=24))
    wrong = score_case(question(weight=2.0), claim())
    assert score(exercise, [right, wrong]).earned == 1.0
    assert score(exercise, [right, wrong]).status == "fail"
    assert score(exercise, [right, right]).earned == 3.0


def test_after_a_case_that_stops_the_exercise_nothing_counts() -> None:
    right = score_case(question(), claim(sum=torch.tensor([1.0, 2.0]), bytes=24))
    raised = {"key": "f.0", "kinds": ["Deadlock"], "trouble": {"type": "Deadlock", "hung": True}}
    stuck = score_case(question(), raised)
    told = [each.status for each in until_one_ends([right, stuck, right])]
    assert told == ["pass", "deadlock", "not tried"]
    assert until_one_ends([right, right, right]) == [right] * 3
    told = [each.status for each in until_one_ends([stuck, right, right])]
    assert told == ["deadlock", "not tried", "not tried"]


@pytest.mark.parametrize("stop_if", ["", "raised", "wrong"])
def test_a_forged_claim_that_it_was_not_tried_earns_nothing(stop_if: str) -> None:
    assert score_case(question(stop_if=stop_if), {"key": "f.0", "untried": True}).status == "error"


@pytest.mark.parametrize(
    ("stop_if", "error", "tried"),
    [("", Deadlock(""), 1), ("", ValueError(), 3), ("raised", ValueError(), 1)],
)
def test_the_sandbox_saves_the_time(stop_if, error, tried, monkeypatch, tmp_path) -> None:
    published, asked = [], []

    def put(key, answer):
        asked.append(key)
        raise error

    shell = SimpleNamespace(
        user_ns={"f": print}, display_pub=SimpleNamespace(publish=published.append)
    )
    monkeypatch.setattr(asking, "_shell", lambda: shell)
    monkeypatch.setattr(asking, "_observe", put)
    monkeypatch.setattr(asking, "_stopped", set())
    monkeypatch.setenv("DDPKIT_QUESTIONS", str(tmp_path))
    (tmp_path / "stops.json").write_text(json.dumps({"f.0": stop_if} if stop_if else {}))
    for number in range(3):
        asking.ask(f"f.{number}")
    assert len(asked) == tried
    assert [MIME in each for each in published] == [True] * 3
    assert ["untried" in each[MIME] for each in published].count(True) == 3 - tried


def test_a_blank_answer_stops_nothing() -> None:
    asked = [question(stop_if="wrong"), question()]
    rows = [left_blank(each) for each in asked]
    assert until_one_ends(rows) == rows
    wrong = score_case(asked[0], claim(sum=torch.tensor([7.0]), bytes=1))
    assert until_one_ends([wrong, rows[1]])[1].status is Status.NOT_TRIED
