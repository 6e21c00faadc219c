"""`Raised`: an exception of a rank as plain data, readable without the class of the exception."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class Frame(NamedTuple):
    """A frame of a traceback: a line of the user's code, and the function around the line."""

    file: str
    line: int
    function: str = ""  # "" for a line that never ran, as in a SyntaxError


@dataclass(frozen=True)
class MemoryFull:
    """The data of a rank's OutOfMemoryError on a modelled machine (`Raised.full`)."""

    machine: str
    rank: int
    limit: int  # bytes of the machine's memory
    used: int  # bytes in use before the request
    asked: int  # bytes of the request
    alive: Mapping[str, int]  # kind (`ddpkit.trace.MEMORY_KINDS`) -> bytes: in all used + asked


@dataclass(frozen=True)
class Raised:
    """An exception as data, because the exception's class may exist only on the rank."""

    type: str  # the name of the exception's class
    message: str = ""
    frames: tuple[Frame, ...] = ()  # lines of the user's own code, outermost first
    traceback: str = ""  # the whole traceback, in the form that Python prints
    exit_code: int | None = None  # the exit code of a SystemExit
    unsendable: bool = False  # True if the function returned a value that cannot be sent back
    pickled: bytes = b""  # the pickled exception; b"" if it has no pickle, or came as JSON
    cause: Raised | None = None  # the exception after `from` in `raise ... from ...`
    exceptions: tuple[Raised, ...] = ()  # the members of an ExceptionGroup
    full: MemoryFull | None = None  # set for an OutOfMemoryError of a modelled machine

    def to_json(self) -> dict[str, object]:
        """Return the exception as plain values for JSON, without the pickle."""
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
        """Return the `Raised` that `to_json` has turned into plain values, without its pickle."""
        more = {
            "frames": tuple(Frame(*frame) for frame in plain["frames"]),
            "pickled": b"",
            "cause": plain["cause"] and cls.from_json(plain["cause"]),
            "exceptions": tuple(map(cls.from_json, plain["exceptions"])),
            "full": plain["full"] and MemoryFull(**plain["full"]),
        }
        return cls(**{**plain, **more})
