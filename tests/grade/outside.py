"""The grader's verdict on an answer without a sandbox, by the same claims and judgements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ddpkit.exercises import Assessment, Case, Exercise
from ddpkit.exercises.assess import Status
from ddpkit.grade.inside.asking import claimed
from ddpkit.grade.questions import SealedCase
from ddpkit.grade.score import score_case


@dataclass
class Recorded:
    """An exercise with cases that record the grader's verdict on their observations.

    ``whole=False`` stops after the first wrong case.
    """

    exercise: Exercise
    whole: bool = True
    rows: list[Assessment] = field(default_factory=list)

    def recording(self) -> Exercise:
        return replace(self.exercise, cases=self._cases)

    def _cases(self, answer: Any, rng: Any) -> Iterator[Case]:
        for case in self.exercise.cases(answer, rng):
            asked = len(self.rows)
            yield replace(case, observe=partial(self._observe, case))
            if len(self.rows) == asked:  # the case comes after a case that stops the exercise
                self.rows.append(Assessment(case, Status.NOT_TRIED))
            if not self.whole and not self.rows[-1].passed:
                return

    def _observe(self, case: Case) -> Any:
        try:
            seen = case.observe()
        except BaseException as error:
            self._judge(case, partial(_raise, error))
            raise
        self._judge(case, lambda: seen)
        return seen

    def _judge(self, case: Case, observe: Callable[[], Any]) -> None:
        """Judge a case as the grader does: the values are claimed as JSON and judged outside."""
        question = SealedCase(self.exercise.name, len(self.rows), case, b"", frozenset())
        claim = {"key": question.key, **claimed(observe)}
        self.rows.append(score_case(question, json.loads(json.dumps(claim))))


def _raise(error: BaseException) -> None:
    raise error
