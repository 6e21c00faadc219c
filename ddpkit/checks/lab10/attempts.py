"""Lab 10: runs that fail as they are told to, for a supervisor to start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ddpkit.cluster import Run
from ddpkit.cluster.blame import blame
from ddpkit.errors import Death, RankDied, RankError
from ddpkit.exercises.exercise import Observed
from ddpkit.protocol.raised import Raised
from ddpkit.trace import Trace

End = tuple[int, ...] | str  # the ranks that die; or "raised", "well"
MOST = 9  # starts, after which a supervisor is stopped


class ForEver(RuntimeError):
    """A supervisor does not come to an end."""


@dataclass
class Starter:
    """`start` of a supervisor: each attempt ends as it is told, later ones as the last."""

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


def supervised(
    answer: Callable[..., Any], ends: Sequence[End], arguments: Sequence[int]
) -> Observed:
    """What a supervisor starts, and how it ends: "run 1", "the error of run 2"."""
    start = Starter(ends)
    try:
        returned = answer(start, *arguments)
        ended = _which(returned, start.runs, "run")
    except ForEver:
        ended = "never"
    except (RankDied, RankError) as error:
        ended = _which(error, [run.error for run in start.runs], "the error of run")
    return {"started": start.asked[:MOST], "ended": ended}


def _which(it: Any, among: Sequence[Any], word: str) -> str:
    return next((f"{word} {i}" for i, each in enumerate(among) if each is it), "something else")
