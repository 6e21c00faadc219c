"""`Call`: one call into torch.distributed, and `What` was called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ddpkit.rank.record.clock import Moment, Read, stretch
from ddpkit.trace import Span


class What(NamedTuple):
    """What is called, and where: the same each time that a loop comes by."""

    op: str  # torch.distributed's name of it: "all_reduce", "send"
    group: str = ""
    where: tuple[str, int] = ("", 0)  # file and line of the user's code
    via: str = ""  # the function the user called there, where it is not `op`: "backward"
    peer: int | None = None  # global rank; None: a collective, or a recv from anybody till it came
    root: int | None = None
    tag: int = 0
    shape: tuple[int, ...] = ()
    dtype: str = ""
    bytes: int = 0
    reduce: str = ""
    members: tuple[int, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain data for the black box, without what is empty and who is in the default group."""
        plain = {name: value for name, value in self._asdict().items() if value or value == 0}
        if not self.group:
            plain.pop("members", None)
        return plain


@dataclass(slots=True, eq=False)
class Call:
    """One call, from the moment it is posted."""

    what: What
    seq: int = 0  # of a collective: which of its group; of a message: which from src to dst
    posted: Moment = 0
    blocked: Moment | None = None  # since when the main thread, or its stream, waits for it
    done: Moment = 0
    on_gpu: bool = False  # NCCL does it, and its moments are the GPU's
    work: Any = None  # the backend's own handle of it, until it is done
    future: Any = None  # the work's, of a collective that may run beside compute

    def as_dict(self) -> dict[str, Any]:
        """What is called, as in the black box, and until when the emulated link has it."""
        due_ns = getattr(self.work, "due_ns", 0)
        return self.what.as_dict() | {"seq": self.seq} | ({"due_ns": due_ns} if due_ns else {})

    def span(self, rank: int, read: Read) -> Span:
        """The call as the trace has it, once it is done; `read` tells a moment in ns."""
        what = self.what
        return Span(
            rank,
            "comm",
            what.op,
            "comm",
            *stretch(read, self.posted, self.done),
            bytes=what.bytes,
            peer=what.peer,
            group=what.group,
            seq=self.seq,
            blocked_ns=None if self.blocked is None else read(self.blocked),
            args={"line": what.where[1], "tag": what.tag, "group_size": len(what.members)},
        )
