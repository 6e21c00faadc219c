"""The number of failures of each case, with hints, so that a teacher can discuss them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ddpkit.grade.score import Score
from ddpkit.grade.store import Result

UNTRIED = ("not tried", "not_run", "blank")  # statuses that say nothing about the case


def statistics(results: Sequence[Result]) -> str:
    """Return a text with the mean points of each exercise, and its cases by number of failures."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Sequence[Result]) -> Iterator[str]:
    graded = [result for result in results if result.exercises]
    for lab in sorted({result.lab for result in graded}):
        theirs = [result for result in graded if result.lab == lab]
        mean = sum(result.earned or 0.0 for result in theirs) / len(theirs)
        yield f"lab {lab}: {len(theirs)} graded, mean {mean:.2f} of {theirs[0].points:g}"
        names = dict.fromkeys(one.name for result in theirs for one in result.exercises)
        for name in names:
            scores = [one for result in theirs for one in result.exercises if one.name == name]
            yield from _of_exercise(name, scores)


def _of_exercise(name: str, scores: Sequence[Score]) -> Iterator[str]:
    mean = sum(one.earned for one in scores) / len(scores)
    full = sum(one.earned >= one.points for one in scores)
    nothing = sum(one.earned <= 0 for one in scores)
    some = len(scores) - full - nothing
    yield (
        f"  {name}: mean {mean:.2f} of {scores[0].points:g}; "
        f"{full} have all, {some} some, {nothing} none"
    )
    failed: Counter[str] = Counter()
    hints: dict[str, Counter[str]] = {}
    for one in scores:
        for title, status, hint in one.cases:
            if status != "pass" and status not in UNTRIED:
                failed[title] += 1
                hints.setdefault(title, Counter())[hint or status] += 1
    for title, count in failed.most_common():
        told = ", ".join(f"{hint} {times}" for hint, times in hints[title].most_common(3))
        yield f"    {count} of {len(scores)} fail at {title}: {told}"
