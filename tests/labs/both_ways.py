"""The tests of a lab's checks: what must fail fails with its hint, what must pass passes.

A lab has two test files, so that pytest-xdist's workers share them:

    test_wrong_labNN.py   test_a_wrong_answer_fails_with_its_hint = fails_with_its_hint("NN")
                          test_every_hint_has_a_wrong_answer = every_hint_is_met("NN")
    test_right_labNN.py   test_a_right_answer_of_another_make_passes = passes("NN")
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable

import pytest

from ddpkit.exercises import Exercise, exercises, find, judge
from ddpkit.exercises.hint import Hint
from ddpkit.exercises.seeds import Seed
from ddpkit.exercises.verdict import Verdict, verdict_text
from ddpkit.grade.questions import Answer
from ddpkit.grade.score import score
from tests.grade.outside import Recorded
from tests.labs.answers import Wrong, right_answers, run, wrong_answers

MOST_LINES = 15  # of a check's text
Test = Callable[..., None]


def fails_with_its_hint(lab: str) -> Test:
    """A test for each wrong answer to the exercises of a lab: by `check`, and by the grader."""

    @pytest.mark.processes("some")
    @pytest.mark.parametrize("answer", wrong_answers(lab), ids=str)
    def test_a_wrong_answer_fails_with_its_hint(answer: Wrong) -> None:
        exercise = find(answer.exercise)
        recorded = Recorded(exercise, whole=False)  # most are known by the first case that fails
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

    return test_a_wrong_answer_fails_with_its_hint


def _is_met(answer: Wrong, verdict: Verdict) -> bool:
    return _got(answer, verdict) == (answer.hint or answer.raises)


def _got(answer: Wrong, verdict: Verdict) -> str:
    """The hint's name; where no hint is expected, what the answer ended in."""
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


def every_hint_is_met(lab: str) -> Test:
    """A test: each hint that an exercise of the lab may give is given to some wrong answer.

    A hint of several exercises needs one of them alone.
    """

    def test_every_hint_has_a_wrong_answer() -> None:
        met = {(each.exercise, each.hint) for each in wrong_answers(lab)}
        users: dict[int, set[str]] = defaultdict(set)  # by identity of a hint: its exercises
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

    return test_every_hint_has_a_wrong_answer


@functools.cache
def hints_of(exercise: Exercise) -> list[Hint]:
    """All hints that the cases of an exercise have, each once."""
    cases = exercise.cases(Answer(exercise.name), Seed().rng(exercise.name))
    found = [hint for case in cases for hint in case.hints]
    return list({id(hint): hint for hint in found}.values())


def passes(lab: str) -> Test:
    """A test for each right answer to the exercises of a lab: by `check`, and by the grader."""
    found = right_answers(lab)
    names = [f"{exercise}-{answer.__name__}" for exercise, answer in found]

    @pytest.mark.processes("some")
    @pytest.mark.parametrize(("exercise", "answer"), found, ids=names)
    def test_a_right_answer_of_another_make_passes(
        exercise: str, answer: Callable[..., object]
    ) -> None:
        recorded = Recorded(find(exercise))
        verdict = judge(recorded.recording(), answer)
        assert verdict, verdict_text(verdict)
        graded = score(find(exercise), recorded.rows)
        assert (graded.status, graded.earned) == ("pass", verdict.points), graded.feedback

    return test_a_right_answer_of_another_make_passes
