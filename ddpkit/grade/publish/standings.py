"""The class's ranking in lab 15, by the training times that the grader has computed."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING

from ddpkit.grade.store import Result

if TYPE_CHECKING:  # the module needs torch, which reports of other forms should not load
    from ddpkit.capstone.score import TrainingScore

EXERCISE = "train_fast"
NOBODY = "Nobody is ranked: no submission has a right run of train_fast.\n"


def standings(results: Sequence[Result]) -> str:
    """Return a table of the ranked submissions, the fastest first, and the number of others.

    A submission that is at most 3 % slower than the previous one shares its place.
    """
    from ddpkit.capstone.score import EQUAL, HEAD
    from ddpkit.capstone.task import GIVEN_MS, floor_ms

    found = [_score(result) for result in results if _measured(result, "ms")]
    ranked = sorted(found, key=lambda each: each.ms)
    if not ranked:
        return NOBODY
    lines, place = [f"{'':2}{HEAD}"], 0
    for number, each in enumerate(ranked, 1):
        if number == 1 or each.ms > ranked[number - 2].ms * (1 + EQUAL):
            place = number
        lines.append(f"{place:3} {each.line}")
    rest = len(results) - len(ranked)
    lines += [f"    given script {GIVEN_MS:,.0f} ms, floor {floor_ms():,.0f} ms"]
    lines += [f"    not ranked: {rest} of {len(results)}"] * bool(rest)
    return "\n".join(lines) + "\n"


def _score(result: Result) -> TrainingScore:
    """Return the medians over a submission's correct runs, and the largest loss of these runs."""
    from ddpkit.capstone.score import TrainingScore

    times = _measured(result, "ms")
    return TrainingScore(
        *(result.name, median(times), max(_measured(result, "loss"))),
        *(median(_measured(result, "sent")), median(_measured(result, "peak"))),
    )


def _measured(result: Result, name: str) -> list[float]:
    scores = (one for one in result.exercises if one.name == EXERCISE)
    return [value for one in scores for what, value in one.measured if what == name]
