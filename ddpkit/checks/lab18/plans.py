"""Lab 18: time and memory of plans, the best plan, and the plans that common mistakes give.

A plan says, for each block, if its forward is computed again in the backward.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

# ms of a forward; `inside`: bytes that are kept for the backward; `given`: bytes of the input
Block = tuple[int, int, int]
Question = tuple[list[Block], int, int]  # blocks, held micro-batches, limit in bytes
Choice = tuple[bool, ...]


def ms_of(choice: Sequence[bool], blocks: Sequence[Block]) -> int:
    """Return the ms of the forwards that are computed again."""
    return sum(block[0] for again, block in zip(choice, blocks, strict=True) if again)


def holds_of(choice: Sequence[bool], blocks: Sequence[Block], *, free: bool = False) -> list[int]:
    """Return the bytes that each block keeps for its backward; with `free`, inputs count 0."""
    return [
        (0 if free else given) if again else inside
        for again, (_, inside, given) in zip(choice, blocks, strict=True)
    ]


def level_of(choice: Sequence[bool], question: Question, *, free: bool = False) -> int:
    """Return the peak of memory in a step, in bytes."""
    blocks, held, _ = question
    holds = holds_of(choice, blocks, free=free)
    levels = [sum(holds[:at]) + block[1] for at, block in enumerate(blocks)]
    return (held - 1) * sum(holds) + max(levels)


def _after_forwards(choice: Choice, question: Question) -> int:
    return question[1] * sum(holds_of(choice, question[0]))


def _on_top(choice: Choice, question: Question) -> int:
    return _after_forwards(choice, question) + max(block[1] for block in question[0])


def _on_top_of_again(choice: Choice, question: Question) -> int:
    """Return a wrong peak of memory: all kept bytes, plus the largest block computed again."""
    most = [block[1] for again, block in zip(choice, question[0], strict=True) if again]
    return _after_forwards(choice, question) + max(most, default=0)


def _one_more(choice: Choice, question: Question) -> int:
    """Return a wrong peak of memory, which counts one micro-batch too many."""
    return level_of(choice, question) + sum(holds_of(choice, question[0]))


def _behind_too(choice: Choice, question: Question) -> int:
    """Return a wrong peak of memory: blocks keep their bytes even after their backward."""
    blocks = question[0]
    holds = holds_of(choice, blocks)
    more = [block[1] - own for block, own in zip(blocks, holds, strict=True)]
    return _after_forwards(choice, question) + max(more)


def _own_twice(choice: Choice, question: Question) -> int:
    """Return a wrong peak of memory: a block's kept bytes count twice during its backward."""
    blocks, held, _ = question
    holds = holds_of(choice, blocks)
    levels = [sum(holds[: at + 1]) + block[1] for at, block in enumerate(blocks)]
    return (held - 1) * sum(holds) + max(levels)


def _of_one(choice: Choice, question: Question) -> int:
    return level_of(choice, (question[0], 1, 0))


def _at_once(choice: Choice, question: Question) -> int:
    return question[1] * level_of(choice, (question[0], 1, 0))


def _free(choice: Choice, question: Question) -> int:
    return level_of(choice, question, free=True)


Level = Callable[[Choice, Question], int]
Cost = Callable[[Choice, Sequence[Block]], int]


def _least(question: Question, level: Level = level_of, below: int = 0) -> Choice | None:
    """Return the fastest plan with a peak of memory within the limit minus `below`, or None."""
    return _first(question, level, ms_of, below)


def _first(question: Question, level: Level, cost: Cost, below: int = 0) -> Choice | None:
    blocks, _, limit = question
    found = [c for c in _choices(len(blocks)) if level(c, question) <= limit - below]
    return min(found, key=lambda c: cost(c, blocks), default=None)


def _choices(count: int) -> Iterator[Choice]:
    return itertools.product((False, True), repeat=count)


def best(question: Question) -> Choice | None:
    """Return the fastest plan that fits into memory, or None if no plan fits."""
    return _least(question)


def _small(question: Question) -> Choice | None:
    found = [c for c in _choices(len(question[0])) if level_of(c, question) <= question[2]]
    return min(found, key=lambda c: (level_of(c, question), ms_of(c, question[0])), default=None)


def _few(question: Question) -> Choice | None:
    blocks = question[0]
    found = [c for c in _choices(len(blocks)) if level_of(c, question) <= question[2]]
    return min(found, key=lambda c: (sum(c), ms_of(c, blocks)), default=None)


IDEAS: dict[str, Callable[[Question], Choice | None]] = {
    "all again": lambda q: (True,) * len(q[0]),
    "too much": lambda q: (False,) * len(q[0]),
    "inside forgotten": lambda q: _least(q, _after_forwards),
    "counted on top": lambda q: _least(q, _on_top),
    "on top of again": lambda q: _least(q, _on_top_of_again),
    "one more": lambda q: _least(q, _one_more),
    "behind too": lambda q: _least(q, _behind_too),
    "own twice": lambda q: _least(q, _own_twice),
    "one micro-batch": lambda q: _least(q, _of_one),
    "all at once": lambda q: _least(q, _at_once),
    "inputs are not free": lambda q: _least(q, _free),
    "slower than needed": _small,
    "counts blocks": _few,
}


def time_of(choice: Choice | None, question: Question) -> int:
    """Return the ms of a plan; -1 if the plan is None."""
    return -1 if choice is None else ms_of(choice, question[0])


def question(rng: random.Random, held: int, count: int = 0) -> Question:
    """Draw blocks, and a limit between the peaks of recomputing all blocks and of keeping all."""
    blocks = [
        (rng.randrange(1, 20), rng.randrange(8, 60), rng.randrange(1, 7))
        for _ in range(count or rng.randrange(4, 8))
    ]
    low = level_of((True,) * len(blocks), (blocks, held, 0))
    high = level_of((False,) * len(blocks), (blocks, held, 0))
    return blocks, held, rng.randrange(low + (high - low) // 4, high - (high - low) // 5)


def telling(rng: random.Random, count: int = 10) -> list[Question]:
    """Draw questions for which the plans of each mistake take different times."""
    while True:
        asked = [question(rng, held=1 + number % 4) for number in range(count)]
        rows = [
            tuple(time_of(idea(each), each) for each in asked) for idea in (best, *IDEAS.values())
        ]
        if len(set(rows)) == len(rows):
            return asked


def equal(rng: random.Random, held: int) -> Question:
    """Return six equal blocks that keep 13 times the bytes of their input, like in the lesson."""
    given, ms = rng.randrange(2, 90), rng.randrange(2, 40)
    blocks = [(ms, 13 * given, given)] * 6
    low = level_of((True,) * 6, (blocks, held, 0))
    high = level_of((False,) * 6, (blocks, held, 0))
    return blocks, held, (low + high) // 2


def exact(rng: random.Random) -> Question:
    """Draw a question with a limit that the best plan reaches exactly.

    With a limit that is one byte lower, the best plan takes longer.
    """
    while True:
        blocks, held, limit = question(rng, held=rng.randrange(2, 4))
        choice = best((blocks, held, limit))
        if choice is None:
            continue
        level = level_of(choice, (blocks, held, limit))
        tight = best((blocks, held, level - 1))
        if tight is not None and ms_of(tight, blocks) > ms_of(choice, blocks):
            return blocks, held, level


def knapsack(rng: random.Random) -> Question:
    """Return four blocks for which the best plan recomputes only the most expensive block.

    To recompute the two middle blocks would also stay within the limit, but would take longer.
    """
    size, ms = rng.randrange(1, 60), rng.randrange(1, 30)
    blocks = [(5 * ms, 21 * size, size), *[(4 * ms, 11 * size, size)] * 2, (ms, size, size)]
    return blocks, 3, 81 * size


def asks(answer: Answer, questions: Sequence[Question]) -> Observed:
    """Return the answer's plans for the questions."""
    return {"plans": [answer(list(blocks), held, limit) for blocks, held, limit in questions]}


def judged(questions: Sequence[Question], observed: Observed) -> Observed:
    """Return the "ms" and "bytes" of the plans; "plans" describes the first malformed plan."""
    plans, ms, levels, word = observed["plans"], [], [], "one answer a block, or None"
    for each, asked in zip(plans, questions, strict=True):
        choice = _bools(each)
        if each is not None and (choice is None or len(choice) != len(asked[0])):
            return {"plans": f"{each!r:.60} for {len(asked[0])} blocks", "ms": [], "bytes": []}
        ms.append(time_of(choice, asked))
        levels.append(level_of(choice, asked) if choice else 0)
    fits = [level <= limit for level, (_, _, limit) in zip(levels, questions, strict=True)]
    return {"plans": word, "ms": ms, "bytes": levels, "within the limit": all(fits)}


def _bools(plan: object) -> Choice | None:
    if not isinstance(plan, list | tuple) or any(each not in (False, True) for each in plan):
        return None
    return tuple(map(bool, plan))
