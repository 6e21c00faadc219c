"""Watches the black boxes of a run's ranks for disagreement and for deadlock.

No rank is asked anything and none needs to answer: the monitor reads what each has written. So it
can tell what a dead rank, or one that holds the GIL, was doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ddpkit.cluster import explain
from ddpkit.cluster.explain import Where
from ddpkit.errors import Deadlock, Mismatch, RunFailed

# How long all unfinished ranks must stand still. Long enough for the slowest start of a transfer
# on a busy machine; and longer where each wait has its counterpart, so that bytes should flow.
PATIENCE_NS = 1_500_000_000
PATIENCE_MATCHED_NS = 20_000_000_000
PATIENCE_LOST_NS = 5_000_000_000  # the same, where who should send them has returned
BUSY = 0.05  # CPU seconds per second, above which a rank is moving bytes or computing


@dataclass(frozen=True)
class Look:
    """A rank's status, as its agent wrote it (`record.Agent.status`)."""

    beat: int
    phase: str  # "starting", "running", "returned"
    where: tuple[str, int]  # file and line of the user's code
    via: str  # the function called there
    waiting: dict[str, Any] | None  # the call into torch.distributed that the rank waits for
    moved: int  # calls posted and done
    wall_ns: int
    cpu_ns: int  # of the rank's process without its agent


class Box(Protocol):
    """A rank's black box, to its reader (`rank.blackbox.BlackBox`, or one heard of from afar)."""

    def status(self) -> dict[str, Any] | None: ...

    def new_calls(self) -> tuple[list[dict[str, Any]], int]: ...


class Monitor:
    """Reads the black boxes of all ranks of one run; `look` says what is wrong, if anything is."""

    def __init__(self, boxes: Sequence[Box]) -> None:
        self._boxes = boxes
        self._still_since: dict[int, Look] = {}
        self.looks: dict[int, Look] = {}
        self.last_calls: dict[int, dict[str, Any]] = {}
        self._collectives: dict[tuple[str, int], dict[int, dict[str, Any]]] = {}
        self._messages: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
        self._complete = True  # nothing was overwritten unread, so that messages can be paired

    def look(self, returned: set[int]) -> RunFailed | None:
        """Read on; return the reason to end the run, or None. `returned` ranks are at rest."""
        for rank, box in enumerate(self._boxes):
            status = box.status()
            if status is not None:
                self.looks[rank] = Look(**(status | {"where": tuple(status["where"])}))
        return self.disagreement() or self._deadlock(returned)

    def disagreement(self) -> Mismatch | None:
        """Read the newest calls and compare them, over all ranks."""
        for rank, box in enumerate(self._boxes):
            calls, lost = box.new_calls()
            self._complete &= not lost
            if calls:
                self.last_calls[rank] = calls[-1]
            for call in calls:
                wrong = self._file(rank, call)
                if wrong is not None:
                    return wrong
        return None

    def last_seen(self, rank: int) -> str | None:
        """The user's line that a rank was in when it was last heard of; None if it never was."""
        call, look = self.last_calls.get(rank), self.looks.get(rank)
        if look is not None and look.where[0]:
            return f"last seen in {explain.place(look.where)}"
        if call:
            return f"last call: {explain.describe(call)}, {explain.place(call['where'])}"
        return None

    def doing(self, rank: int, frame: Where | None = None) -> str:
        """What a rank is doing, in words; `frame` is its line, if that is known from elsewhere."""
        who, look = explain.ranks([rank]), self.looks.get(rank)
        if look is not None and look.phase != "starting" and frame in (None, look.where):
            if look.waiting is not None:
                return explain.waits([rank], look.waiting, look.where).strip()
            frame = look.where if look.where[0] else None
        return f"{who} was in {explain.place(frame)}" if frame else f"{who} was still starting"

    def _file(self, rank: int, call: dict[str, Any]) -> Mismatch | None:
        group, op, seq = call.get("group", ""), call["op"], call["seq"]
        if op not in explain.MESSAGES:
            calls = self._collectives.setdefault((group, seq), {})
            calls[rank] = call
            return self._compare(group, seq, calls)
        if "peer" not in call:
            self._complete = False  # from any source: which message it takes is not known
            return None
        ends = (rank, call["peer"]) if op == "send" else (call["peer"], rank)
        key = (group, *ends, call.get("tag", 0), seq)
        pair = self._messages.setdefault(key, {})
        pair[op] = call
        if len(pair) < 2:
            return None
        del self._messages[key]
        sent, received = pair["send"], pair["recv"]
        if explain.size(sent) == explain.size(received) and sent["dtype"] == received["dtype"]:
            return None
        if not self._complete:
            return None
        return Mismatch(explain.message_mismatch(sent, received), ranks=ends)

    def _compare(self, group: str, seq: int, calls: dict[int, dict[str, Any]]) -> Mismatch | None:
        first, *others = calls.values()
        for other in others:
            different = explain.difference(first, other)
            if different is not None:
                text = explain.collective_mismatch(seq, calls, different)
                return Mismatch(text, ranks=tuple(sorted(calls)))
        if len(calls) == len(self._members(first)):
            del self._collectives[group, seq]  # all agree
        return None

    def _deadlock(self, returned: set[int]) -> Deadlock | None:
        unfinished = [rank for rank in range(len(self._boxes)) if rank not in returned]
        if not unfinished or not all(self._stands_still(rank) for rank in unfinished):
            return None
        # All of them over the same stretch of time: a look may be old, where a rank holds the GIL.
        until = min(self.looks[rank].wall_ns for rank in unfinished)
        still = until - max(self._still_since[rank].wall_ns for rank in unfinished)
        if still < PATIENCE_NS:
            return None
        waiting = {}
        for rank in unfinished:
            look = self.looks[rank]
            assert look.waiting is not None
            waiting[rank] = (look.waiting, look.where)
        needs = {rank: self._needs(rank, call) for rank, (call, _) in waiting.items()}
        calls = {rank: call for rank, (call, _) in waiting.items()}
        lost = explain.lost(calls, needs, returned) is not None
        patience = PATIENCE_LOST_NS if lost else PATIENCE_MATCHED_NS
        if not all(needs.values()) and still < patience:
            return None
        text = explain.deadlock(waiting, needs, returned)
        return Deadlock(text, ranks=tuple(unfinished))

    def _stands_still(self, rank: int) -> bool:
        """Whether a rank waits, as it did before, and has used no CPU to speak of since then."""
        look, since = self.looks.get(rank), self._still_since.get(rank)
        if look is None or look.waiting is None or look.waiting.get("due_ns", 0) > look.wall_ns:
            self._still_since.pop(rank, None)
            return False
        same = since is not None and (since.moved, since.waiting) == (look.moved, look.waiting)
        if since is None or not same or _cpu_share(since, look) > BUSY:
            self._still_since[rank] = look
        return True

    def _needs(self, rank: int, call: dict[str, Any]) -> set[int]:
        """The ranks that have not done their part of a call; empty when all have."""
        everyone, op = set(range(len(self._boxes))), call["op"]
        if not call["seq"]:  # not a call of ours: the store, or making a group
            stuck = {r for r, look in self.looks.items() if look.waiting == call}
            return everyone - {rank} - stuck
        if op in explain.MESSAGES:
            if "peer" not in call:
                return everyone - {rank}
            ends = (rank, call["peer"]) if op == "send" else (call["peer"], rank)
            unpaired = (call.get("group", ""), *ends, call.get("tag", 0), call["seq"])
            return {call["peer"]} if unpaired in self._messages else set()
        calls = self._collectives.get((call.get("group", ""), call["seq"]), {})
        return self._members(call) - set(calls) if calls else set()

    def _members(self, call: dict[str, Any]) -> set[int]:
        """The ranks of a collective's group; the default group does not spell them out."""
        return set(call.get("members", range(len(self._boxes))))


def _cpu_share(since: Look, now: Look) -> float:
    elapsed = now.wall_ns - since.wall_ns
    return (now.cpu_ns - since.cpu_ns) / elapsed if elapsed else 0.0
