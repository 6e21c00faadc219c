"""`Judge`: judges claims in a child process, so that every judgement ends soon.

A claim may be of any size, and a judgement may have to simulate programs, unpack data and compare
values. Each judgement has its own limits, and all judgements of a submission together have further
limits. A claim that exceeds a limit gets no points, and the later claims of its exercise are not
judged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import Any

from ddpkit.exercises.assess import Assessment, Status
from ddpkit.grade.apart import Allowance, TooMuch, each_apart
from ddpkit.grade.questions import SealedCase
from ddpkit.grade.score import score_case

ALLOWED = Allowance(seconds=5, memory=1 << 30)  # the limits of a judgement
WHOLE_S = 20.0  # seconds of processor time for all judgements of a submission
TOO_MUCH = "judging the answer's values takes far more time or memory than for a right answer"
Claim = tuple[SealedCase, str]  # a question and the claim, as JSON


class Judge:
    """Judges the claims of one submission, in one run after another."""

    def __init__(self) -> None:
        self.left_s = WHOLE_S
        self.over: set[str] = set()  # exercises of which no further claim is judged

    def judged(self, claims: Sequence[Claim]) -> dict[str, Assessment]:
        """Return the assessment of each claim, by the key of its question.

        This method raises no exception.
        """
        rows: dict[str, Assessment] = {}
        while todo := [each for each in claims if each[0].key not in rows and self._may(each[0])]:
            works = [partial(_row, *each) for each in todo]
            for (question, _), (row, seconds) in zip(
                todo, each_apart(works, ALLOWED), strict=False
            ):
                self.left_s -= seconds
                if isinstance(row, TooMuch):
                    self.over.add(question.exercise)
                    rows[question.key] = _too_much(question)
                    break
                rows[question.key] = Assessment(question.case, **row)
                if self.left_s <= 0:
                    break
        return rows | {
            question.key: _too_much(question) for question, _ in claims if question.key not in rows
        }

    def _may(self, question: SealedCase) -> bool:
        return self.left_s > 0 and question.exercise not in self.over


def _row(question: SealedCase, claim: str) -> dict[str, Any]:
    """Judge a claim, and return the assessment without its case, which cannot be pickled."""
    row = score_case(question, json.loads(claim))
    return {name: value for name, value in vars(row).items() if name != "case"}


def _too_much(question: SealedCase) -> Assessment:
    return Assessment(question.case, Status.ERROR, got=TOO_MUCH)
