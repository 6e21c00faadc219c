"""The checks of all labs: each wrong answer fails with its hint, each right one passes.

tests/labs/labNN has the answers. One worker runs all answers of a lab (tests/order.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import pytest

from ddpkit.checks.lab06 import graphs
from ddpkit.exercises import Exercise, exercises, find, judge
from ddpkit.exercises.verdict import Verdict, verdict_text
from ddpkit.grade.score import score
from tests.grade.outside import Recorded
from tests.labs.answers import Wrong, hints_of, labs, right_answers, run, wrong_answers

MOST_LINES = 15  # lines of a check's text


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the limit for an answer to lab 06 that walks each path and never ends."""
    monkeypatch.setattr(graphs, "FOR_EVER", 5)


WRONG = [pytest.param(each, id=f"{lab}-{each}") for lab in labs() for each in wrong_answers(lab)]


@pytest.mark.processes("some")
@pytest.mark.parametrize("answer", WRONG)
def test_a_wrong_answer_fails_with_its_hint(answer: Wrong) -> None:
    """`check` and the grader refuse the answer, with the same hint."""
    exercise = find(answer.exercise)
    recorded = Recorded(exercise, whole=False)  # the first case that fails reveals most answers
    verdict = run(answer, recorded.recording())
    if not _is_met(answer, verdict):
        recorded = Recorded(exercise)
        verdict = run(answer, recorded.recording())
    text = verdict_text(verdict)
    assert not verdict, f"this wrong answer passes:\n{text}"
    assert verdict.earned < verdict.points
    assert _is_met(answer, verdict), f"it gets {_got(answer, verdict)!r}:\n{text}"
    assert len(text.splitlines()) <= MOST_LINES, text
    _grader_agrees(exercise, recorded, verdict)


def _is_met(answer: Wrong, verdict: Verdict) -> bool:
    return _got(answer, verdict) == (answer.hint or answer.raises)


def _got(answer: Wrong, verdict: Verdict) -> str:
    """Return the hint's name; if no hint is expected, the end of the answer, as `Trouble.words`."""
    if answer.hint or verdict.hint:
        return verdict.hint_name
    return verdict.trouble.words if verdict.trouble else ""


def _grader_agrees(exercise: Exercise, recorded: Recorded, verdict: Verdict) -> None:
    graded = score(exercise, recorded.rows)
    feedback = "\n".join(graded.feedback)
    assert graded.earned == verdict.earned, f"the grader gives {graded.earned}:\n{feedback}"
    named = next(row.hint_name for row in recorded.rows if row.status != "pass")
    assert named == verdict.hint_name, f"the grader hints at {named!r}:\n{feedback}"
    if verdict.hint:
        assert verdict.hint in feedback, f"the grader does not say the hint:\n{feedback}"


@pytest.mark.parametrize("lab", labs())
def test_every_hint_has_a_wrong_answer(lab: str) -> None:
    """No hint of the lab's exercises lacks a wrong answer; a shared hint needs one exercise."""
    met = {(each.exercise, each.hint) for each in wrong_answers(lab)}
    users: dict[int, set[str]] = defaultdict(set)  # id of a hint -> its exercises
    found = {name: hints_of(each) for name, each in exercises().items() if each.lab == lab}
    for name, hints in found.items():
        for hint in hints:
            users[id(hint)].add(name)
    unmet = [
        f"{name}: {hint.name}"
        for name, hints in found.items()
        for hint in hints
        if not any((user, hint.name) in met for user in users[id(hint)])
        and (name, hint.name) not in met
    ]
    assert not unmet, f"no wrong answer gets {unmet}"


RIGHT = [
    pytest.param(*each, id=f"{lab}-{each[0]}-{each[1].__name__}")
    for lab in labs()
    for each in right_answers(lab)
]


@pytest.mark.processes("some")
@pytest.mark.parametrize(("exercise", "answer"), RIGHT)
def test_a_right_answer_of_another_make_passes(
    exercise: str, answer: Callable[..., object]
) -> None:
    """`check` and the grader give all points."""
    recorded = Recorded(find(exercise))
    verdict = judge(recorded.recording(), answer)
    assert verdict, verdict_text(verdict)
    graded = score(find(exercise), recorded.rows)
    assert (graded.status, graded.earned) == ("pass", verdict.points), graded.feedback
