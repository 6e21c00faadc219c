"""Ask wrong and right answers under many seeds: `python -m benchmarks.seeds 09`.

The program checks each answer of the repository under the notebook's own seed and under secret
seeds, as the grader draws them. It prints the wrong answers that pass under some seed, and the
right answers that fail under some seed. The cases of such an exercise need sharpening.

A case that is the same under every seed is asked once. A wrong answer that fails such a case fails
under every seed, so no further case is asked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import cloudpickle

# `tests` is imported, and is no installed package
sys.path.insert(0, str(Path(__file__).parents[1]))

from ddpkit import answers
from ddpkit.exercises import Case, Exercise, exercises, find, judge
from ddpkit.exercises.seeds import Seed
from ddpkit.grade.questions import SealedCase, questions
from tests.labs.answers import labs, right_answers, wrong_answers


def secrets(count: int) -> list[Seed]:
    """Return secret seeds, as the grader has them."""
    return [Seed(f"a secret, number {number}", secret=True) for number in range(count)]


@cache
def drawn(name: str) -> frozenset[int]:
    """Return the numbers of an exercise's cases that differ from seed to seed."""
    asked = [questions(find(name), seed) for seed in (Seed(), *secrets(2))]
    same = {
        number
        for number, (public, *others) in enumerate(zip(*asked, strict=False))
        if all(_same(public, other) for other in others)
    }
    return frozenset(range(max(map(len, asked)))) - same


def _same(public: SealedCase, other: SealedCase) -> bool:
    pickled = public.pickled == other.pickled and _reader(public) == _reader(other)
    return pickled and other.shown == frozenset(other.case.expect)


def _reader(sealed: SealedCase) -> bytes:
    return cloudpickle.dumps(sealed.case.read)  # type: ignore[no-any-return]


def part(exercise: Exercise, numbers: Collection[int]) -> Exercise:
    """Return an exercise that asks these cases alone."""

    def cases(answer: Any, rng: Random) -> Iterator[Case]:
        for number, case in enumerate(exercise.cases(answer, rng)):
            if number in numbers:
                yield case

    return replace(exercise, cases=cases)


def surprises(name: str, make: Callable[[], Any], *, right: bool, count: int) -> list[str]:
    """Return the seeds under which a right answer fails, or a wrong answer passes."""
    exercise = find(name)
    verdict = judge(exercise, make())
    failed = [number for number, case in enumerate(verdict.cases) if case.tried and not case.passed]
    found = [repr(Seed().text)] if verdict.passed is not right else []
    if not right and set(failed) - drawn(name):
        return found
    asked = part(exercise, drawn(name)) if right else exercise
    for seed in secrets(count) if drawn(name) else []:
        again = (judge(part(exercise, [number]), make(), seed) for number in failed)
        passed = all(once.passed for once in again) and judge(asked, make(), seed).passed
        if passed is not right:
            found.append(repr(seed.text))
    return found


def answers_of(lab: str) -> Iterator[tuple[str, str, Callable[[], Any], bool]]:
    """Yield exercise, label, maker and verdict (True for a right answer) of each answer."""
    for name in exercises():
        if find(name).lab == lab:
            yield name, "the kit's", partial(answers.get, name), True
    for name, answer in right_answers(lab):
        yield name, answer.__name__, partial(_given, answer), True
    for wrong in wrong_answers(lab):
        yield wrong.exercise, wrong.label, wrong.make, False


def _given(answer: Any) -> Any:
    return answer


def main() -> None:
    """Print a line for each answer with an unexpected verdict under some seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lab", nargs="*", help="of these labs, as 09; without any, of all")
    parser.add_argument("--seeds", type=int, default=50, help="secret seeds to ask under")
    parser.add_argument("--only", default="", help="exercises whose names begin so")
    given = parser.parse_args()
    asked, found = 0, 0
    for lab in given.lab or labs():
        for name, label, make, right in answers_of(lab):
            if not name.startswith(given.only):
                continue
            asked += 1
            if under := surprises(name, make, right=right, count=given.seeds):
                found += 1
                does = "right, fails" if right else "wrong, passes"
                times = f"{len(under)} of {given.seeds + 1} seeds"
                shown = ", ".join(under[:3])
                print(f"{name}-{label}: {does} under {times}: {shown}", flush=True)
    print(f"{asked} answers, {found} of which surprise under some seed")


if __name__ == "__main__":
    main()
