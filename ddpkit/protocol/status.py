"""`RankStatus`: the report that a rank writes about itself, a few times a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ddpkit.protocol.call import Call, Where


@dataclass(frozen=True)
class RankStatus:
    """The line of code that a rank executes, and the call in which it waits, at one moment.

    A thread of the rank, the agent, makes the report.
    """

    beat: int  # the number of the status, from 1 on
    phase: str  # "starting", "running", "returned"
    where: Where  # the line of the user's code
    via: str  # the function that this line calls
    waiting: Call | None  # the call into torch.distributed for which the rank waits
    moved: int  # number of posts and ends of calls so far
    calls: int  # calls written into the black box before the agent looked up `where`
    wall_ns: int  # when the status was made, by perf_counter_ns
    cpu_ns: int  # CPU time of the process, without the agent's; 0 while the rank waits for a GPU

    def to_json(self) -> dict[str, object]:
        """Return plain values for JSON."""
        return {**vars(self), "waiting": self.waiting and self.waiting.to_json()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RankStatus:
        """Return the status that `to_json` has turned into plain values.

        Raises KeyError, TypeError or ValueError for other values.
        """
        file, line = plain["where"]
        waiting = plain["waiting"] and Call.from_json(plain["waiting"])
        return cls(**{**plain, "where": (file, line), "waiting": waiting})
