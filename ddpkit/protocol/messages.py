"""Messages between rank 0 and the other ranks of a job under torchrun, one JSON text each.

A rank sends `News` a few times a second, `Failed` once if its function raises, and `Goodbye` at the
end of its script. Rank 0 sends `Goodbye` too, or `JobEnded`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TypeAlias

from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Raised
from ddpkit.protocol.status import RankStatus


@dataclass(frozen=True)
class News:
    """A message with the new content of a rank's black box since the last news."""

    status: RankStatus
    calls: list[Call]  # calls posted since the last news
    lost: int  # the number of further calls, overwritten before they were read


@dataclass(frozen=True)
class Failed:
    """A message: the rank's function raised an exception.

    The rank waits until rank 0 has explained the error and ends the rank.
    """

    raised: Raised


@dataclass(frozen=True)
class Goodbye:
    """A message: the sender's script has ended without an error, and its process ends."""


@dataclass(frozen=True)
class JobEnded:
    """A message from rank 0: rank 0 has explained the error and ends all ranks.

    The receiver prints nothing more.
    """


Message: TypeAlias = News | Failed | Goodbye | JobEnded


def to_bytes(message: Message) -> bytes:
    """Return a message as JSON."""
    plain: dict[str, object] = {"kind": type(message).__name__}
    if isinstance(message, News):
        plain["status"] = message.status.to_json()
        plain["calls"] = [call.to_json() for call in message.calls]
        plain["lost"] = message.lost
    elif isinstance(message, Failed):
        plain["raised"] = message.raised.to_json()
    return json.dumps(plain).encode()


def from_bytes(data: bytes) -> Message:
    """Return the message from the JSON of `to_bytes`; its exception, if any, has no pickle."""
    plain = json.loads(data)
    if plain["kind"] == "News":
        calls = [Call.from_json(call) for call in plain["calls"]]
        return News(RankStatus.from_json(plain["status"]), calls, plain["lost"])
    if plain["kind"] == "Failed":
        return Failed(Raised.from_json(plain["raised"]))
    return Goodbye() if plain["kind"] == "Goodbye" else JobEnded()
