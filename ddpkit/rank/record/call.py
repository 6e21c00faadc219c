"""`RecordedCall`: a call into torch.distributed, from start to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ddpkit.protocol.call import Call
from ddpkit.rank.record.clock import DeviceMoment, Moment, Read, stretch
from ddpkit.trace import CHANGED, UNWAITED, Span
from ddpkit.trace.span import LAUNCHED, QUEUED

if TYPE_CHECKING:
    import weakref

    import torch


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A call into torch.distributed, recorded from the moment of its post."""

    what: Call  # without a number: a loop makes the `Call` only once
    seq: int = 0  # number among the group's collectives, or among the messages from src to dst
    posted: Moment = 0
    # in a thread of the user's: the earliest time at which the call could have been made
    since: Moment | None = None
    blocked: Moment | None = None  # begin of a wait by the main thread, or by the call's stream
    done: Moment = 0
    queued: Moment | None = None  # on a device: the moment when the stream had reached the call
    collected: Moment | None = None  # end of a wait for the call
    holds: str = ""  # the numbers in a short message
    on_gpu: bool = False  # True if NCCL runs the call, so that its moments are times of the GPU
    work: Any = None  # the backend's own handle, until the end of the call
    future: Any = None  # future of the work, for a collective that may run beside compute
    index: int = 0  # number of the call's entry in the black box
    from_anybody: bool = False  # True for a receive from any rank
    claimed: bool = False  # True if code has waited for the work, seen its end or got its future
    # versions of the call's tensors at the post: `rank.group.changed`
    versions: list[tuple[weakref.ref[torch.Tensor], int]] | None = None
    own_now: Callable[[], int] | None = None  # clock of a call outside all streams of a device
    changed: bool = False  # True if the code changed a tensor of the call before `claimed`

    def numbered(self) -> Call:
        """Return the `Call` with its number."""
        return self.what._replace(seq=self.seq)

    def span(self, rank: int, read: Read) -> Span:
        """Return the finished call as a span of the trace; `read` converts a moment to ns."""
        what = self.what
        facts: dict[str, int | str] = {"line": what.where[1], "tag": what.tag}
        facts["group_size"] = what.group_size
        if what.absent:
            facts["absent"] = what.absent
        if what.root is not None:
            facts["root"] = what.root
        if self.from_anybody:
            facts["anybody"] = 1
        named = {"dtype": what.dtype, "reduce": what.reduce}
        facts |= {name: word for name, word in named.items() if word}
        if what.group_desc:
            facts["group_desc"] = f"{what.group_desc} {list(what.members)}"
        if self.holds:
            facts["holds"] = self.holds
        if self.since is not None and not self.on_gpu:
            facts["since"] = read(self.since)
        if isinstance(self.posted, DeviceMoment) and self.posted.host is not None:
            facts[LAUNCHED] = self.posted.host.ns
        if self.queued is not None:
            facts[QUEUED] = read(self.queued)
        if self._is_left():
            facts[UNWAITED] = 1
        if self.changed:
            facts[CHANGED] = 1
        start_ns, end_ns = stretch(read, self.posted, self.done)
        blocked_ns = None if self.blocked is None else read(self.blocked)
        if isinstance(self.blocked, DeviceMoment) and blocked_ns is not None:
            blocked_ns = blocked_ns if blocked_ns < end_ns else None  # the stream never waited
        return Span(
            rank,
            "comm",
            what.op,
            "comm",
            start_ns,
            end_ns,
            bytes=what.bytes,
            peer=what.peer,
            group=what.group,
            seq=self.seq,
            blocked_ns=blocked_ns,
            collected_ns=None if self.collected is None else read(self.collected),
            args=facts,
        )

    def _is_left(self) -> bool:
        """True if the user's code posted the call and never waited; False for torch's own calls."""
        if self.claimed or self.on_gpu or self.blocked is not None:
            return False
        return self.what.is_users
