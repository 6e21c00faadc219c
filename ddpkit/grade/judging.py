"""Claims judged in a child process: every judgement ends soon.

A claim is as large as its author likes, and judging plays programs, unpacks and compares. Each
judgement has limits of its own, and all of a submission have one together. A claim that takes more
gets no points, and nothing more of its exercise is judged.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial

from ddpkit.exercises.raised import Trouble
from ddpkit.grade.apart import Allowance, TooMuch, each_apart
from ddpkit.grade.questions import SealedCase
from ddpkit.grade.score import CaseScore, score_case

ALLOWED = Allowance(seconds=5, memory=1 << 30)  # the limits of a judgement
WHOLE_S = 20.0  # seconds of processor time for all judgements of a submission
TOO_MUCH = "judging the answer's values takes far more time or memory than for a right answer"
Claim = tuple[SealedCase, str]  # a question and the claim, as JSON
Row = tuple[str, tuple[str, ...], str, str, Trouble | None, tuple[tuple[str, float], ...]]


class Judge:
    """Judges the claims of one submission, run after run."""

    def __init__(self) -> None:
        self.left_s = WHOLE_S
        self.over: set[str] = set()  # exercises without further judgements

    def judged(self, claims: Sequence[Claim]) -> dict[str, CaseScore]:
        """Return the score of each claim, by its question's key. Never raises."""
        rows: dict[str, CaseScore] = {}
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
                rows[question.key] = CaseScore(question.case, *row)
                if self.left_s <= 0:
                    break
        return rows | {
            question.key: _too_much(question) for question, _ in claims if question.key not in rows
        }

    def _may(self, question: SealedCase) -> bool:
        return self.left_s > 0 and question.exercise not in self.over


def _row(question: SealedCase, claim: str) -> Row:
    """Judge a claim; return the fields of its score but the case, which no process can send."""
    row = score_case(question, json.loads(claim))
    return row.status, row.says, row.hint, row.hint_name, row.trouble, row.measured


def _too_much(question: SealedCase) -> CaseScore:
    return CaseScore(question.case, "error", (TOO_MUCH,))
