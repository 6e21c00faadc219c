"""Ask wrong answers under many seeds: `python -m benchmarks.seeds 09`.

The program asks each wrong answer of the repository under the notebook's own seed and under seeds
of the grader's draws. Prints the wrong answers that pass under a seed. Their questions have to be
sharpened, until every seed tells these answers from right ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # the tests are no installed package

from ddpkit.exercises import find, judge
from ddpkit.exercises.seeds import Seed
from tests.labs.answers import Wrong, labs, wrong_answers


def seeds(count: int) -> Iterator[Seed]:
    """Yield the notebook's own seed, then `count` secret seeds."""
    yield Seed()
    yield from (Seed(f"a secret, number {number}", secret=True) for number in range(count))


def passing(answer: Wrong, count: int) -> list[str]:
    """Return the seeds under which a wrong answer passes."""
    exercise = find(answer.exercise)
    asked = [(seed, judge(exercise, answer.make(), seed)) for seed in seeds(count)]
    return [repr(seed.text) for seed, verdict in asked if verdict.passed]


def main() -> None:
    """Print a line for each wrong answer that passes under a seed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("lab", nargs="*", help="of these labs, as 09; without any, of all")
    parser.add_argument("--seeds", type=int, default=50, help="secret seeds to ask under")
    parser.add_argument("--only", default="", help="exercises whose names begin so")
    given = parser.parse_args()
    asked, found = 0, 0
    for lab in given.lab or labs():
        for answer in wrong_answers(lab):
            if not answer.exercise.startswith(given.only):
                continue
            asked += 1
            if under := passing(answer, given.seeds):
                found += 1
                times = f"{len(under)} of {given.seeds + 1} seeds"
                print(f"{answer}: passes under {times}: {', '.join(under[:3])}", flush=True)
    print(f"{asked} wrong answers, {found} of which pass under some seed")


if __name__ == "__main__":
    main()
