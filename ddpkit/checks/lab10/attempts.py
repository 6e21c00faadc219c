"""Lab 10: runs that fail as planned, for a supervisor to start."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ddpkit.cluster import Run
from ddpkit.cluster.blame import blame
from ddpkit.errors import Death, RankDied, RankError
from ddpkit.exercises.exercise import Observed
from ddpkit.protocol.raised import Raised
from ddpkit.trace import Trace

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

End = tuple[int, ...] | str  # the ranks that die; or "raised", "well"
MOST = 9  # the check stops a supervisor after this number of starts


class Attempts(NamedTuple):
    """A case of a supervisor: the planned end of each run, the arguments, and the right result."""

    title: str
    ends: Sequence[End]
    arguments: tuple[int, ...]  # ranks, most restarts, smallest number of ranks
    started: list[list[int]]  # [ranks, attempt]
    ended: str


def drawn(rng: random.Random) -> Iterator[Attempts]:
    """Yield cases with random numbers of ranks; in most cases, ranks die or raise."""

    def ranks() -> int:
        return rng.randrange(5, 30)

    yield Attempts("all is well", ("well",), (4, 3), [[4, 0]], "run 0")
    n = ranks()
    dead, title = rng.randrange(1, n), "rank {} of {} dies once"
    started = [[n, 0], [n - 1, 1]]
    yield Attempts(title.format(dead, n), ((dead,), "well"), (n, 3), started, "run 1")
    n = ranks()
    yield Attempts("rank 0 raises once", ("raised", "well"), (n, 3), [[n, 0], [n, 1]], "run 1")
    n, most = ranks(), rng.randrange(2, 6)
    started = [[n, attempt] for attempt in range(most + 1)]
    ended = f"the error of run {most}"
    yield Attempts("it fails each time", ("raised",), (n, most), started, ended)
    n = ranks()
    yield Attempts("no restart", ((0,), "well"), (n, 0), [[n, 0]], "the error of run 0")
    n = ranks()
    two, started = tuple(rng.sample(range(n), 2)), [[n, 0], [n - 2, 1], [n - 3, 2]]
    yield Attempts("two die, then one", (two, (1,), "well"), (n, 4, 2), started, "run 2")
    n = ranks()
    most_die = tuple(range(1, n))
    yield Attempts("one is left", (most_die, "well"), (n, 1), [[n, 0], [1, 1]], "run 1")
    n = ranks()
    yield Attempts("all die", (tuple(range(n)), "well"), (n, 2), [[n, 0]], "the error of run 0")
    n, ended = ranks(), "the error of run 1"
    started = [[n, 0], [n - 1, 1]]
    yield Attempts("too few are left", ((1,), (1,), "well"), (n, 5, n - 1), started, ended)


class ForEver(RuntimeError):
    """The error raised if a supervisor starts more than `MOST` runs."""


@dataclass
class Starter:
    """The function `start` that a supervisor calls: run k ends as `ends[k]` says.

    Runs beyond the list end like the last entry.
    """

    ends: Sequence[End]
    asked: list[list[Any]] = field(default_factory=list)  # [ranks, attempt]
    runs: list[Run[int]] = field(default_factory=list)

    def __call__(self, ranks: int, attempt: int) -> Run[int]:
        self.asked.append([ranks, attempt])
        if len(self.asked) > MOST:
            raise ForEver
        end = self.ends[min(len(self.runs), len(self.ends) - 1)]
        error: Any = None
        if end == "raised":
            error = blame({0: Raised("RuntimeError", "told to")}, {})
        elif end != "well":
            error = blame({}, {int(rank): Death("signal", signal="SIGKILL") for rank in end})
        self.runs.append(Run([0] * ranks, "", Trace((), ranks), error))
        return self.runs[-1]


def supervised(answer: Answer, ends: Sequence[End], arguments: Sequence[int]) -> Observed:
    """Return the runs that a supervisor started, and the outcome, like "the error of run 2"."""
    start = Starter(ends)
    try:
        returned = answer(start, *arguments)
        ended = _which(returned, start.runs, "run")
    except ForEver:
        ended = "never"
    except (RankDied, RankError) as error:
        ended = _which(error, [run.error for run in start.runs], "the error of run")
    return {"started": start.asked[:MOST], "ended": ended}


def _which(it: object, among: Sequence[object], word: str) -> str:
    return next((f"{word} {i}" for i, each in enumerate(among) if each is it), "something else")
