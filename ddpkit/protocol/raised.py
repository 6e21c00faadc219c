"""`Raised`: an exception of a rank as plain data, which the launcher can always read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """A line of the user's code, and the function that it is in."""

    file: str
    line: int
    function: str = ""  # "" where the line never ran: of a SyntaxError


@dataclass(frozen=True)
class MemoryFull:
    """What did not fit into a modelled machine's memory: `full` of the OutOfMemoryError raised."""

    machine: str
    rank: int
    limit: int  # bytes that there are
    used: int  # bytes in use before
    asked: int  # bytes that were to come
    alive: Mapping[str, int]  # bytes of both by kind, of `ddpkit.trace.MEMORY_KINDS`


@dataclass(frozen=True)
class Raised:
    """What is known of an exception. The exception itself may need a class that only a rank has."""

    type: str  # the name of its class
    message: str = ""
    frames: tuple[Frame, ...] = ()  # lines of the user's own code, outermost first
    traceback: str = ""  # all of it, as Python prints it
    exit_code: int | None = None  # what a SystemExit would end the process with
    unsendable: bool = False  # the function returned; what it returned cannot be sent back
    pickled: bytes = b""  # the exception; b"" where it cannot be pickled, or came as JSON
    cause: Raised | None = None  # what it was raised from
    exceptions: tuple[Raised, ...] = ()  # of an ExceptionGroup
    full: MemoryFull | None = None  # of an OutOfMemoryError of a modelled machine

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the pickle."""
        return {
            **vars(self),
            "frames": [list(frame) for frame in self.frames],
            "pickled": "",
            "cause": self.cause and self.cause.to_json(),
            "exceptions": [each.to_json() for each in self.exceptions],
            "full": self.full and {**vars(self.full), "alive": dict(self.full.alive)},
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Raised:
        """The data again, without the pickle."""
        more = {
            "frames": tuple(Frame(*frame) for frame in plain["frames"]),
            "pickled": b"",
            "cause": plain["cause"] and cls.from_json(plain["cause"]),
            "exceptions": tuple(map(cls.from_json, plain["exceptions"])),
            "full": plain["full"] and MemoryFull(**plain["full"]),
        }
        return cls(**{**plain, **more})
