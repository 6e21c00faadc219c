"""Machine-made mistakes in the kit's answers, and the mistakes that no check refuses.

    python -m benchmarks.mutate [LAB or EXERCISE ...] [--seed N] [--count M] [--limit S] [--all]

A mutant has one change in the lines that a lab asks for: a changed constant, operator, comparison
or condition, a dropped call, wait, argument or return, or swapped arguments. `--count` mutants are
drawn by `--seed` from all possible mutants. Each mutant is put to its check until a case fails; a
mutant that takes longer than `--limit` seconds counts as refused. Inputs are drawn by the seed too.

Prints the numbers of mutants and of refused mutants, by lab, and the survivors. A survivor that is
no mistake is listed in tests/labs/labNN/no_mistakes.toml with the reason. For any other survivor
the exit code is 1. `--all` prints each mutant, with its hint.
"""

from __future__ import annotations

import argparse
import linecache
import random
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks._mutants import Mutant, mutants
from benchmarks._report import as_text, machine
from ddpkit import answers
from ddpkit.authoring.lesson import Cell, parse
from ddpkit.exercises import Exercise, find, judge
from ddpkit.exercises.exercise import Cases
from ddpkit.exercises.seeds import Seed

ROOT = Path(__file__).parents[1]
LIMIT_S = 60.0
numbers = count()


@dataclass(frozen=True)
class Asked:
    """An exercise and one wrong answer to it, which its check should refuse."""

    exercise: str
    lab: str
    mutant: Mutant

    @property
    def reason(self) -> str:
        """The reason why the mutant is no mistake; "" without a listed reason."""
        return no_mistakes(self.lab).get((self.exercise, self.mutant.before, self.mutant.after), "")


def cells() -> Iterator[tuple[str, Cell]]:
    """Yield (number of a lab, cell) for each answer's cell, in the lessons' order."""
    for path in sorted((ROOT / "solutions").glob("[0-9][0-9]_*.py")):
        lesson = parse(path)
        yield from ((lesson.number, cell) for cell in lesson.cells if cell.exercise)


def all_mutants(wanted: Sequence[str] = ()) -> list[Asked]:
    """Return the mutants of the answers of labs and exercises, by default of all.

    Raises:
        SystemExit: there is no such lab or exercise.
    """
    found = list(cells())
    known = {lab for lab, _ in found} | {cell.exercise for _, cell in found}
    if unknown := set(wanted) - known:
        raise SystemExit(f"no lab or exercise is called {' or '.join(sorted(unknown))}")
    return [
        Asked(cell.exercise, lab, mutant)
        for lab, cell in found
        if not wanted or {lab, cell.exercise} & set(wanted)
        for mutant in mutants(cell.source, asked_lines(cell))
    ]


def asked_lines(cell: Cell) -> set[int]:
    """Return the lines of a cell that a student writes; the first line is 1."""
    return {line + 1 for block in cell.blocks for line in range(block.begin + 1, block.end)}


@cache
def no_mistakes(lab: str) -> dict[tuple[str, str, str], str]:
    """Return (exercise, lines before, lines after) -> the reason why the mutant is no mistake."""
    path = ROOT / f"tests/labs/lab{lab}/no_mistakes.toml"
    if not path.exists():
        return {}
    rows = tomllib.loads(path.read_text("utf-8"))
    return {
        (name, row["before"], row["after"]): row["why"]
        for name, of_exercise in rows.items()
        for row in of_exercise
    }


def made(asked: Asked) -> Any:
    """Return the mutant as an object. Its module cannot be imported, so it is pickled by value."""
    number = next(numbers)
    filename, source = f"mutant-{number}.py", asked.mutant.source + "\n"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    given = vars(sys.modules[answers.get(asked.exercise).__module__])
    namespace = {**given, "__name__": f"mutant_{number}"}
    exec(compile(source, filename, "exec"), namespace)
    return namespace[asked.exercise]


def outcome(asked: Asked, seed: Seed, limit_s: float) -> str:
    """Return the check's refusal of a mutant: a hint's name, or an exception; "" if it passes.

    limit_s  seconds, after which the refusal is "too long"
    """

    is_over = False

    def ring(*_: object) -> None:
        nonlocal is_over
        is_over = True
        raise KeyboardInterrupt  # like Stop in a notebook

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        verdict = judge(_hasty(find(asked.exercise)), made(asked), seed)
    except KeyboardInterrupt:
        if not is_over:
            raise
        return "too long"
    except Exception as error:  # raised by the definition of the mutant
        return type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    if verdict:
        return ""
    ended = verdict.trouble.words if verdict.trouble else "wrong"
    return f"hint: {verdict.hint_name}" if verdict.hint else ended


def _hasty(exercise: Exercise) -> Exercise:
    """Return the exercise, changed to end at the first case that fails."""
    cases: Cases = lambda answer, rng: (  # noqa: E731
        replace(case, stop_if="wrong") for case in exercise.cases(answer, rng)
    )
    return replace(exercise, cases=cases)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wanted", nargs="*", metavar="LAB or EXERCISE")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=500, help="mutants at most (500)")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for each (60)")
    parser.add_argument("--all", action="store_true", help="print every mutant")
    options = parser.parse_args()
    possible = all_mutants(options.wanted)
    few = min(options.count, len(possible))
    places = sorted(random.Random(options.seed).sample(range(len(possible)), few))
    print(f"{few} of {len(possible)} mutants, seed {options.seed} · {machine()}", flush=True)
    begun, counted, unexplained = time.monotonic(), Counter[tuple[str, str]](), 0
    for asked in (possible[place] for place in places):
        ended = outcome(asked, Seed(str(options.seed)), options.limit)
        kind = "refused" if ended else "no mistake" if asked.reason else "SURVIVED"
        counted[asked.lab, kind] += 1
        unexplained += kind == "SURVIVED"
        if options.all or kind == "SURVIVED":
            what = ended or asked.reason
            print(f"{kind:10}  {asked.exercise}: {asked.mutant.change}  [{what}]", flush=True)
    print()
    print(as_text(_table(counted)))
    print(f"{time.monotonic() - begun:.0f} s")
    raise SystemExit(unexplained > 0)


def _table(counted: Counter[tuple[str, str]]) -> list[list[str]]:
    kinds = ("refused", "no mistake", "SURVIVED")
    rows = [["lab", "mutants", *kinds]]
    for lab in sorted({lab for lab, _ in counted}):
        numbers = [counted[lab, kind] for kind in kinds]
        rows.append([lab, *map(str, [sum(numbers), *numbers])])
    return rows


if __name__ == "__main__":
    main()
