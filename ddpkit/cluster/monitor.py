"""Watches the black boxes of a run's ranks for disagreement and for deadlock.

No rank needs to answer a question, because the monitor reads the ranks' black boxes. So the monitor
can report the last call of a dead rank, or of a rank that holds the GIL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from ddpkit.cluster import causes, disagreement, explain, phrases, stopped
from ddpkit.cluster.lines import Lines
from ddpkit.errors import (
    Deadlock,
    Doing,
    LastSeen,
    Mismatch,
    MismatchKind,
    RunFailed,
    RunTimeout,
    Waiting,
)
from ddpkit.protocol.call import Call, Where
from ddpkit.protocol.status import RankStatus
from ddpkit.source import source_line

# The time in ns for which all unfinished ranks must stand still. The first time is long enough for
# the slowest start of a transfer on a busy machine. The second time counts if each wait has its
# counterpart, so that bytes should flow.
PATIENCE_NS = 1_500_000_000
PATIENCE_MATCHED_NS = 20_000_000_000
# On an emulated network, this time counts instead of `PATIENCE_MATCHED_NS`: on busy cores a rank
# that waits in gloo may long seem to compute, and the network waits for such a rank.
PATIENCE_EMULATED_NS = 60_000_000_000
PATIENCE_LOST_NS = 5_000_000_000  # ns of patience if the rank that should send bytes has returned
BUSY = 0.05  # CPU seconds per second, above which a rank is moving bytes or computing


class Box(Protocol):
    """A rank's black box for its reader: `protocol.blackbox.BlackBox` or `RemoteBox`."""

    def status(self) -> RankStatus | None:
        """Return the newest status of the rank; None before the first status."""

    def new_calls(self) -> tuple[list[Call], int]:
        """Return the calls since the last call of this method, and the number of lost calls."""


class EmulatedNetwork(Protocol):
    """The state of the emulated network (`cluster.local.timekeeper.Timekeeper`)."""

    @property
    def stands(self) -> bool:
        """True if all ranks wait, some have devices, and no event is left."""

    @property
    def happened(self) -> int:
        """The number of events that have happened in the network."""

    @property
    def has_more(self) -> bool:
        """True if the network has an event to come, such as the end of a message under way."""


class Monitor:
    """Reads the black boxes of all ranks of one run; `look` returns an error that it finds."""

    def __init__(self, boxes: Sequence[Box], network: EmulatedNetwork | None = None) -> None:
        self._boxes, self._network = boxes, network
        self._happened = 0  # number of the network's events at the last look
        self._still_since: dict[int, RankStatus] = {}
        self._returned: set[int] = set()
        self.statuses: dict[int, RankStatus] = {}  # the newest status of each rank
        self.last_calls: dict[int, Call] = {}
        self._calls_read = [0] * len(boxes)  # calls read from each box, lost calls included
        # (group, number) -> calls by rank
        self._collectives: dict[tuple[str, int], dict[int, Call]] = {}
        self._messages: dict[tuple[str, int, int, int, int], dict[str, tuple[int, Call]]] = {}
        # (group, rank, tag) -> the rank's kinds of receives: "by name", "anybody"
        self._receives: dict[tuple[str, int, int], set[str]] = {}
        self._wrong: tuple[MismatchKind, dict[int, Call]] | None = None  # the first disagreement
        # group -> the first call in the group, with its rank
        self._groups: dict[str, tuple[int, Call]] = {}
        # The number of posted collectives, by rank, group and function.
        self._posted: Counter[tuple[int, str, str]] = Counter()
        # (group, number) -> rank -> the rank's `_posted` at this call, for unfinished collectives
        self._nth: dict[tuple[str, int], dict[int, int]] = {}
        self._lines = Lines()
        self._complete = True  # False if calls were lost: messages and calls cannot be paired

    def look(self, returned: Collection[int]) -> RunFailed | None:
        """Read the black boxes again; return the reason to end the run, or None."""
        for rank, box in enumerate(self._boxes):
            status = box.status()
            if status is not None:
                self.statuses[rank] = status
        return self.disagreement(returned) or self._deadlock(returned)

    def disagreement(self, returned: Collection[int]) -> Mismatch | None:
        """Read the newest calls of all ranks, and return the first disagreement, or None.

        A later call for the same disagreement also includes ranks that have made the call since
        then.
        """
        for rank, box in enumerate(self._boxes):
            calls, lost = box.new_calls()
            self._complete &= not lost
            self._calls_read[rank] += len(calls) + lost
            if calls:
                self.last_calls[rank] = calls[-1]
            for call in calls:
                wrong = self._other_group(rank, call)
                if wrong is None:
                    wrong = self._message(rank, call) if call.is_message else self._take(rank, call)
                self._wrong = self._wrong or wrong
        for rank, status in self.statuses.items():
            making = status.waiting
            if making and making.makes_group:
                self._wrong = self._wrong or self._other_group(rank, making)
        if self._wrong is None:
            return None
        kind, calls_by_rank = self._wrong
        found = dict(sorted(calls_by_rank.items()))
        text = disagreement.mismatch(kind, found, self._late(kind, found) - set(returned))
        apart = self._apart(next(iter(found.values())))
        text += disagreement.first_apart(apart)
        return Mismatch(
            text, ranks=tuple(found), returned=returned, kind=kind, calls=found, apart=apart
        )

    def by_luck(self) -> dict[int, Call]:
        """Return the first wrongly paired calls of the run (see `Lines.by_luck`), or {}."""
        return self._lines.by_luck(_text) if self._complete else {}

    def _apart(self, call: Call) -> dict[int, Call]:
        """Return the first calls from different lines in the group of a call that failed."""
        if call.is_message or not call.seq or not self._complete:
            return {}
        return self._lines.first_apart(call.group)

    def late(self, wrong: Mismatch) -> set[int]:
        """Return the unfinished ranks that have not made the call on which ranks disagree."""
        return self._late(wrong.kind, wrong.calls) - wrong.returned

    def _late(self, kind: MismatchKind, calls: Mapping[int, Call]) -> set[int]:
        if kind in ("members", "message", "splits"):
            return set()
        return self._members(next(iter(calls.values()))) - set(calls)

    def last_seen(self, rank: int) -> LastSeen | None:
        """Return the last known line of a rank; None if nothing is known of the rank.

        The line comes from the rank's status, unless the rank has posted a call since then.
        """
        call, status = self.last_calls.get(rank), self.statuses.get(rank)
        newest = status is not None and status.calls >= self._calls_read[rank]
        if status is not None and status.where[0] and (newest or call is None):
            return LastSeen(status.where, "status")
        return LastSeen(call.where, "call", call) if call else None

    def beat(self, rank: int) -> int:
        """Return the number of a rank's newest status; 0 before the first status."""
        return self.statuses[rank].beat if rank in self.statuses else 0

    def is_behind(self, rank: int, frame: Where) -> bool:
        """True if the rank's last status names another line than `frame`, the rank's known line."""
        status = self.statuses.get(rank)
        return status is None or status.where != frame

    def doing(self, rank: int, frame: Where | None = None) -> Doing:
        """Return the action of a rank; `frame` is its line, if known from another source."""
        status = self.statuses.get(rank)
        if status is None or status.phase == "starting" or frame not in (None, status.where):
            return Doing(frame)
        if status.waiting is not None:
            return Doing(status.where, status.waiting)
        return Doing(status.where if status.where[0] else None)

    def timeout(
        self, seconds: float, doing: Mapping[int, Doing], returned: Collection[int]
    ) -> RunTimeout:
        """Return the error for a run that took too long, with the actions of its ranks."""
        text = stopped.timeout(seconds, doing, returned)
        return RunTimeout(text, returned=returned, seconds=seconds, doing=doing)

    def _other_group(self, rank: int, call: Call) -> tuple[MismatchKind, dict[int, Call]] | None:
        """Compare a call's group with the group of the same name on other ranks.

        torch connects members by group name, so two groups of one name would connect to each other.
        Groups of one rank never connect and are skipped.
        """
        if not call.group or len(call.members) == 1:
            return None
        first, known = self._groups.setdefault(call.group, (rank, call))
        if known.members == call.members:
            return None
        return "members", {first: known, rank: call}

    def _take(self, rank: int, call: Call) -> tuple[MismatchKind, dict[int, Call]] | None:
        """Compare a rank's call of a collective with the calls of its peers.

        Return the first difference, as its kind and the differing calls; None if all calls match.
        """
        key = (call.group, call.seq)
        calls = self._collectives.setdefault(key, {})
        calls[rank] = call
        self._lines.came(rank, call)
        counted = rank, call.group, call.function
        # A call with objects counts once, by the int64 sizes that torch sends before the objects.
        self._posted[counted] += call.function == call.op or call.dtype == "int64"
        self._nth.setdefault(key, {})[rank] = self._posted[counted]
        first, *others = calls.values()
        for other in others:
            kind = causes.difference(first, other)
            if kind is not None:
                return kind, calls
        if (ends := causes.misfit(calls, rank)) is not None:
            return "splits", {end: calls[end] for end in ends}
        if len(calls) == len(self._members(first)):
            self._lines.met(calls)
            del self._collectives[key], self._nth[key]  # all members agree
        return None

    def _message(self, rank: int, call: Call) -> tuple[MismatchKind, dict[int, Call]] | None:
        """Compare a send with its receive.

        Return their difference, as its kind and the two calls; None if they match.
        """
        if call.op == "recv":
            self._receives.setdefault((call.group, rank, call.tag), set()).add(
                "anybody" if call.peer is None or call.found else "by name"
            )
        if call.peer is None:
            return None  # the call is written again once its sender is known
        key = _message_key(rank, call)
        pair = self._messages.setdefault(key, {})
        pair[call.op] = rank, call
        if len(pair) < 2:
            return None
        del self._messages[key]
        if causes.fits(pair["send"][1], pair["recv"][1]) or not self._complete:
            return None
        receiver = pair["recv"][0]
        if len(self._receives.get((call.group, receiver, call.tag), ())) > 1:
            return None  # several receives could have taken the message
        return "message", dict([pair["send"], pair["recv"]])

    def _deadlock(self, returned: Collection[int]) -> Deadlock | None:
        # the last calls of a rank that has just returned may still let other ranks go on
        if not self._returned.issuperset(returned):
            self._returned.update(returned)
            self._still_since.clear()
        if self._network is not None and self._network.happened != self._happened:
            self._happened = self._network.happened
            self._still_since.clear()  # the network moves messages for waiting ranks
            return None
        unfinished = [rank for rank in range(len(self._boxes)) if rank not in returned]
        if not unfinished or not all(self._stands_still(rank) for rank in unfinished):
            return None
        # Count up to the oldest status, because a rank that holds the GIL writes no new status.
        until = min(self.statuses[rank].wall_ns for rank in unfinished)
        still = until - max(self._still_since[rank].wall_ns for rank in unfinished)
        if still < PATIENCE_NS:
            return None
        waiting = {}
        for rank in unfinished:
            status = self.statuses[rank]
            assert status.waiting is not None
            waiting[rank] = Waiting(status.waiting, status.where)
        calls = {rank: each.call for rank, each in waiting.items()}
        needs = {rank: self._needs(rank, call) for rank, call in calls.items()}
        lost = causes.lost_message(calls, needs, returned) is not None
        matched = PATIENCE_MATCHED_NS if self._network is None else PATIENCE_EMULATED_NS
        patience = PATIENCE_LOST_NS if lost else matched
        flows = any(
            not needs[rank] or self._on_its_way(rank, call, returned)
            for rank, call in calls.items()
        )
        stand = flows and self._network is not None and self._network.stands
        if flows and not stand and still < patience:
            return None
        if flows and self._network is not None and self._network.has_more:
            return None  # the network waits for a core, and the ranks wait for the network
        cause = "streams" if stand else causes.deadlock_cause(calls, needs, returned)
        made = self._made(calls, needs, returned) if cause == "returned" else {}
        apart = self._apart(next(iter(calls.values())))
        text = explain.deadlock(waiting, needs, returned, cause, made)
        return Deadlock(
            text + disagreement.first_apart(apart),
            ranks=unfinished,
            returned=returned,
            waiting=waiting,
            needs=needs,
            cause=cause,
            made=made,
            apart=apart,
        )

    def _made(
        self, calls: Mapping[int, Call], needs: causes.Needs, returned: Collection[int]
    ) -> dict[int, int]:
        """Return each rank's number of calls of the awaited function (`Deadlock.made`), or {}."""
        call = calls[next(iter(causes.left_alone(calls, needs, returned)))]
        if call.is_message or not call.seq or not self._complete:
            return {}
        made = {rank: self._posted[rank, call.group, call.function] for rank in returned}
        for rank, each in calls.items():
            if (each.function, each.group) == (call.function, call.group):
                made |= {rank: self._nth.get((each.group, each.seq), {}).get(rank, 0)}
        return made

    def _stands_still(self, rank: int) -> bool:
        """True if a rank waits in the same call as before, and has used almost no CPU meanwhile."""
        now, since = self.statuses.get(rank), self._still_since.get(rank)
        if now is None or now.waiting is None:
            self._still_since.pop(rank, None)
            return False
        same = since is not None and (since.moved, since.waiting) == (now.moved, now.waiting)
        if since is None or not same or _cpu_share(since, now) > BUSY:
            self._still_since[rank] = now
        return True

    def _needs(self, rank: int, call: Call) -> set[int]:
        """Return the ranks that have not made their part of a call; empty if all ranks have."""
        everyone = set(range(len(self._boxes)))
        if call.makes_group:
            return {other for other in call.members if not self._makes(other, call)}
        if call.keys:
            return everyone - {rank}
        if not call.seq:  # an agent knows only the name of this call
            stuck = {r for r, status in self.statuses.items() if status.waiting == call}
            return everyone - {rank} - stuck
        if call.is_message:
            if call.peer is None:
                return everyone - {rank}
            return {call.peer} if _message_key(rank, call) in self._messages else set()
        calls = self._collectives.get((call.group, call.seq), {})
        return self._members(call) - set(calls) if calls else set()

    def _on_its_way(self, rank: int, call: Call, returned: Collection[int]) -> bool:
        """True if a running rank has sent a message to a rank that receives from any rank."""
        if not causes.from_anybody(call):
            return False
        return any(
            (group, receiver, tag) == (call.group, rank, call.tag) and sender not in returned
            for (group, sender, receiver, tag, _), pair in self._messages.items()
            if "send" in pair
        )

    def _makes(self, rank: int, call: Call) -> bool:
        """True if a rank also waits, in new_group, for the members of `call`'s new group."""
        waiting = self.statuses[rank].waiting if rank in self.statuses else None
        if waiting is None or not waiting.makes_group:
            return False
        return (waiting.group, waiting.members) == (call.group, call.members)

    def _members(self, call: Call) -> set[int]:
        """Return the ranks of a call's group; a call in the default group lists no members."""
        return set(call.members if call.group else range(len(self._boxes)))


def _message_key(rank: int, call: Call) -> tuple[str, int, int, int, int]:
    """Return the key that a send and its receive share: group, sender, receiver, tag, number."""
    return (call.group, *call.ends(rank), call.tag, call.seq)


def _text(where: Where) -> str:
    return source_line(*where) or phrases.place(where)


def _cpu_share(since: RankStatus, now: RankStatus) -> float:
    elapsed = now.wall_ns - since.wall_ns
    return (now.cpu_ns - since.cpu_ns) / elapsed if elapsed else 0.0
