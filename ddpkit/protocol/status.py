"""`RankStatus`: what a rank says about itself a few times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpkit.protocol.call import Call, Where


@dataclass(frozen=True)
class RankStatus:
    """Where a rank is and what it waits for, as its agent saw it at one moment."""

    beat: int  # the number of this status, from 1 on
    phase: str  # "starting", "running", "returned"
    where: Where  # the line of the user's code
    via: str  # the function called there
    waiting: Call | None  # the call into torch.distributed that the rank waits for
    moved: int  # calls posted and done so far
    calls: int  # written into the black box before its line was looked at
    wall_ns: int  # when the status was made, by perf_counter_ns
    cpu_ns: int  # used so far by the rank's process without its agent; 0 while a GPU is waited for

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**vars(self), "waiting": self.waiting and self.waiting.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RankStatus:
        """The status again. Raises KeyError, TypeError or ValueError if it is none."""
        file, line = plain["where"]
        waiting = plain["waiting"] and Call.from_json(plain["waiting"])
        return cls(**{**plain, "where": (file, line), "waiting": waiting})
