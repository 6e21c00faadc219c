"""The test of a lab's mutants, for a file of its own: see `test_mutants.py`."""

import pytest

from ddpkit.exercises import exercises
from ddpkit.exercises.verdict import verdict_text
from ddpkit.grade.score import score
from tests import mutants
from tests.grade.outside import Recorded


def of_lab(lab):
    """A test for each wrong answer to the exercises of lab NN: by `check`, and by the grader."""
    found = [each for each in mutants.discover() if exercises()[each.exercise].lab == lab]

    @pytest.mark.processes("some")
    @pytest.mark.parametrize("wrong", found, ids=str)
    def test_a_mutant_fails_with_its_hint(wrong):
        exercise = exercises()[wrong.exercise]
        recorded = Recorded(exercise, whole=False)  # most are known by the first case that fails
        verdict = mutants.run(wrong, recorded.recording())
        if wrong.hint not in mutants.shown(verdict):
            recorded = Recorded(exercise)
            verdict = mutants.run(wrong, recorded.recording())
        text = verdict_text(verdict)
        assert not verdict, f"this wrong answer passes:\n{text}"
        assert verdict.earned < verdict.points
        assert wrong.hint in mutants.shown(verdict), text
        assert len(text.splitlines()) <= 15, text
        graded = score(exercise, recorded.rows)
        feedback = "\n".join(graded.feedback)
        assert graded.earned == verdict.earned, feedback
        assert wrong.hint in feedback

    return test_a_mutant_fails_with_its_hint
