"""`RankStatus`: a rank's report about itself, a few times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpkit.protocol.call import Call, Where


@dataclass(frozen=True)
class RankStatus:
    """The line of a rank and the call in which it waits, seen by its agent at one moment."""

    beat: int  # the number of the status, from 1 on
    phase: str  # "starting", "running", "returned"
    where: Where  # the line of the user's code
    via: str  # the function called there
    waiting: Call | None  # the call into torch.distributed for which the rank waits
    moved: int  # number of posts and ends of calls so far
    calls: int  # written into the black box before its line was looked at
    wall_ns: int  # when the status was made, by perf_counter_ns
    cpu_ns: int  # CPU time of the rank's process, without its agent; 0 while it waits for a GPU

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "waiting": self.waiting and self.waiting.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RankStatus:
        """The status again. Raises KeyError, TypeError or ValueError if it is none."""
        file, line = plain["where"]
        waiting = plain["waiting"] and Call.from_json(plain["waiting"])
        return cls(**{**plain, "where": (file, line), "waiting": waiting})
