"""The grader's word on an answer without its sandbox: what is claimed, and judged, is the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from ddpkit.grade.asking import claimed
from ddpkit.grade.questions import Question
from ddpkit.grade.score import Row, row
from ddpkit.lessons import Case, Exercise


@dataclass
class Recorded:
    """An exercise that remembers what its cases saw when they were put to an answer."""

    exercise: Exercise
    seen: list[tuple[Case, Callable[[], Any]]] = field(default_factory=list)

    def recording(self) -> Exercise:
        return replace(self.exercise, cases=self._cases)

    def _cases(self, answer: Any, rng: Any) -> Iterator[Case]:
        for case in self.exercise.cases(answer, rng):
            yield replace(case, observe=partial(self._observe, case))

    def _observe(self, case: Case) -> Any:
        try:
            seen = case.observe()
        except BaseException as error:
            self.seen.append((case, partial(_raise, error)))
            raise
        self.seen.append((case, lambda: seen))
        return seen

    def rows(self) -> list[Row]:
        """What the grader makes of it: claimed as JSON, judged outside."""
        found = []
        for number, (case, observe) in enumerate(self.seen):
            question = Question(self.exercise.name, number, case, b"", frozenset())
            claim = {"key": question.key, **claimed(observe)}
            found.append(row(question, json.loads(json.dumps(claim))))
        return found


def _raise(error: BaseException) -> None:
    raise error
