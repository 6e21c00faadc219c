"""Lab 20: operations that a host launches, the limit of each, and limits with mistakes.

The limit is arithmetic, memory or the launch.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Operation = tuple[int, int]  # FLOPs, bytes


@dataclass(frozen=True)
class Roofs:
    """The rates of a machine, under the names of the lesson's `Machine`."""

    flops: float  # FLOP/s
    bandwidth: float  # bytes/s
    launch: float  # seconds


@dataclass(frozen=True)
class Queue:
    """A sequence of operations, and the machine that runs them."""

    operations: Sequence[Operation]
    machine: Roofs

    @property
    def work(self) -> list[tuple[float, float]]:
        """The seconds of arithmetic and the seconds of memory traffic of each operation."""
        m = self.machine
        return [(flops / m.flops, nbytes / m.bandwidth) for flops, nbytes in self.operations]


def right(queue: Queue, *, both: bool = False, launch: bool = True) -> tuple[list[str], float]:
    """Return the limit of each operation, and the end of the last operation in seconds.

    Two options are mistakes. With `both`, the times of arithmetic and memory are added. Without
    `launch`, a launch takes no time.
    """
    limits, free, step = [], 0.0, queue.machine.launch if launch else 0.0
    for number, (arithmetic, memory) in enumerate(queue.work, 1):
        launched = number * step
        limits.append("launches" if launched > free else _longer(arithmetic, memory))
        free = max(launched, free) + (arithmetic + memory if both else max(arithmetic, memory))
    return limits, free


def _longer(arithmetic: float, memory: float) -> str:
    return "arithmetic" if arithmetic >= memory else "memory"


def _swapped(limits: Sequence[str]) -> list[str]:
    other = {"arithmetic": "memory", "memory": "arithmetic"}
    return [other.get(each, each) for each in limits]


def by_ideas(queue: Queue) -> dict[str, object]:
    """Return the ends and limits that common mistakes give, by the name of the mistake."""
    launch, work = queue.machine.launch, [max(each) for each in queue.work]
    limits, end = right(queue)
    short = ["launches" if launch > w else _longer(*each)
             for w, each in zip(work, queue.work, strict=True)]  # fmt: skip
    return {
        "added": sum(launch + w for w in work),
        "each for itself": sum(max(launch, w) for w in work),
        "no launches": sum(work),
        "both": right(queue, both=True)[1],
        "upside down": _swapped(limits),
        "short": short,
        "end": end,
    }


def drawn(rng: random.Random) -> list[tuple[str, Queue]]:
    """Return sequences of operations, each with its title."""
    machine = Roofs(rng.randrange(300, 700) * 1e12, rng.randrange(15, 33) * 1e11, 6e-6)

    def computes(us: float) -> Operation:
        flops = round(us * 1e-6 * machine.flops)
        return flops, round(flops / machine.flops * machine.bandwidth * rng.uniform(0.1, 0.6))

    def moves(us: float) -> Operation:
        nbytes = round(us * 1e-6 * machine.bandwidth)
        return round(nbytes / machine.bandwidth * machine.flops * rng.uniform(0, 0.4)), nbytes

    def small(count: int) -> list[Operation]:
        kinds = (computes, moves)
        return [rng.choice(kinds)(rng.uniform(2, 5.5)) for _ in range(count)]

    behind = [computes(rng.uniform(120, 160)), *small(12), moves(rng.uniform(80, 140)), *small(120)]
    some = [rng.choice((computes, moves))(rng.uniform(2, 9)) for _ in range(24)]
    three = [computes(rng.uniform(200, 400)) for _ in range(3)]
    alone = [(0, moves(rng.uniform(7, 12))[1]) for _ in range(20)]
    return [
        ("a long product before 12 small operations", Queue(behind, machine)),
        ("24 small operations", Queue(some, machine)),
        ("20 of memory alone", Queue(alone, machine)),
        ("three large products", Queue(three, machine)),
        ("launches that take no time", Queue(some, replace(machine, launch=0.0))),
        ("nothing", Queue([], machine)),
    ]


def asked(answer: Answer, operations: Sequence[Operation], machine: Any) -> Any:
    """Return the answer's limits, and its end of the last operation in us."""
    limits, end = answer(list(operations), machine)
    return {"limits": list(limits), "us": 1e6 * end}
