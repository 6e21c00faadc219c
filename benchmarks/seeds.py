"""Ask wrong and right answers under many seeds: `python -m benchmarks.seeds 09`.

The program asks each answer of the repository under the notebook's own seed and under seeds of the
grader's draws. Prints the wrong answers with a seed of success, and the right answers with a seed
of failure. A question of such an answer needs sharpening.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests are no installed package

from ddpkit import answers
from ddpkit.exercises import exercises, find, judge
from ddpkit.exercises.seeds import Seed
from tests.labs.answers import labs, right_answers, wrong_answers


def seeds(count: int) -> Iterator[Seed]:
    """Yield the notebook's own seed, then `count` secret seeds."""
    yield Seed()
    yield from (Seed(f"a secret, number {number}", secret=True) for number in range(count))


def surprises(name: str, make: Callable[[], Any], *, right: bool, count: int) -> list[str]:
    """Return the seeds under which a right answer fails, or a wrong answer passes."""
    asked = [(seed, judge(find(name), make(), seed)) for seed in seeds(count)]
    return [repr(seed.text) for seed, verdict in asked if verdict.passed is not right]


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
