"""The grader's word on an answer without its sandbox: what is claimed, and judged, is the same."""

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
    """An exercise of which the grader judges what its cases see when they are put to an answer.

    ``whole=False`` asks until something is wrong, and no further.
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
            if len(self.rows) == asked:  # it comes after one that stops the exercise
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
        """What the grader makes of it: claimed as JSON, judged outside."""
        question = SealedCase(self.exercise.name, len(self.rows), case, b"", frozenset())
        claim = {"key": question.key, **claimed(observe)}
        self.rows.append(score_case(question, json.loads(json.dumps(claim))))


def _raise(error: BaseException) -> None:
    raise error
