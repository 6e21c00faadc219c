"""The texts of the errors of a run: pure functions from an error's data to its text.

`monitor` and `blame` collect the data. `phrases` has the parts of sentences that repeat, and
`stopped` has the texts for a stopped run.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from ddpkit.cluster import causes
from ddpkit.cluster.causes import Needs
from ddpkit.cluster.phrases import (
    describe,
    of_group,
    place,
    ranks,
    waits,
    wrapped,
)
from ddpkit.errors import DeadlockCause, Death, LastSeen, Waiting
from ddpkit.protocol.call import Call
from ddpkit.protocol.raised import Raised
from ddpkit.source import locate
from ddpkit.text import BLANK, count, ordinal, plural

LONG = 2000  # characters of an exception's message


# Deadlock


def deadlock(
    waiting: Mapping[int, Waiting],
    needs: Needs,
    returned: Collection[int],
    cause: DeadlockCause,
    made: Mapping[int, int],
) -> str:
    """Return the text of a `Deadlock`; the parameters are the fields of the `Deadlock`."""
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, each in sorted(waiting.items()):
        alike.setdefault((describe(each.call), place(each.where)), []).append(rank)
    lines = [waits(group, waiting[group[0]]) for group in alike.values()]
    if returned:
        lines.append(f"  {ranks(returned)} returned already")
    calls = {rank: each.call for rank, each in waiting.items()}
    return "\n".join(
        [
            "The ranks wait for each other and none can go on.",
            *lines,
            wrapped(f"Why: {_why(cause, calls, needs, returned, made)}"),
        ]
    )


def _why(
    cause: DeadlockCause,
    calls: Mapping[int, Call],
    needs: Needs,
    returned: Collection[int],
    made: Mapping[int, int],
) -> str:
    circle = causes.cycle(needs)
    if cause == "returned":
        return _why_returned(calls, needs, returned, made)
    if cause == "lost":
        left = causes.lost_message(calls, needs, returned)
        assert left is not None
        return (
            f"rank {calls[left].peer} posted the send that rank {left} waits for, and returned "
            "before the send was done, so the message is lost. Keep the Work that isend returns, "
            "and call its wait()."
        )
    if cause == "key":
        return _why_keys(calls)
    if cause == "itself":
        return f"rank {circle[0]} waits for itself: a rank cannot exchange messages with itself."
    if cause == "receive" and (found := causes.unanswered(calls)) is not None:
        server, askers = found
        wait = "waits" if len(askers) == 1 else "wait"
        return (
            f"{ranks(askers)} {wait} for an answer from rank {server}, and rank {server} waits for "
            "the next message, from any rank. A server must answer a request before it receives "
            "the next one."
        )
    if cause == "receive":
        return (
            f"{ranks(circle)} each wait to receive before they send, so nobody sends. "
            "Let one of them send first."
        )
    if cause == "send":
        peer = "the other" if len(circle) == 2 else "the next of them"
        return (
            f"{ranks(circle)} each wait in send until {peer} receives, so nobody receives. "
            "Let one of them receive first, or send with isend."
        )
    if cause == "streams":
        return (
            "every rank has launched all these calls. But a device begins a call only when all "
            "earlier calls of the stream are done, and here each call waits behind another "
            "call. Launch the calls of several groups in the same order on all ranks, or on "
            "separate streams; post messages in both directions by batch_isend_irecv."
        )
    if cause == "nothing":
        return "no rank has posted a call that the waiting ranks need."
    if all(calls[rank].makes_group for rank in circle):
        return _why_groups({rank: call for rank, call in calls.items() if call.makes_group})
    if {calls[rank].op for rank in circle} == {"send", "recv"} and len(circle) == 2:
        send, recv = sorted(circle, key=lambda rank: calls[rank].op == "recv")
        if calls[send].tag != calls[recv].tag:
            return (
                f"rank {send} sends with tag {calls[send].tag}, rank {recv} receives with tag "
                f"{calls[recv].tag}. A recv takes only messages with its own tag: both calls "
                "must name the same tag."
            )
    steps = [
        f"rank {rank} needs rank {other} to {_deed(calls[rank])}"
        for rank, other in zip(circle, [*circle[1:], circle[0]], strict=True)
    ]
    return f"{', but '.join(steps)}. All ranks must make matching calls in the same order."


def _why_keys(calls: Mapping[int, Call]) -> str:
    """Return a sentence about the ranks that wait for keys of a store, with the keys."""
    waiting: dict[tuple[str, ...], list[int]] = {}
    for rank, call in sorted(calls.items()):
        if call.keys:
            waiting.setdefault(call.keys, []).append(rank)
    parts = []
    for keys, those in waiting.items():
        wait = "waits" if len(those) == 1 else "wait"
        named = ", ".join(map(repr, keys))
        parts.append(
            f"{ranks(those)} {wait} for the {plural(len(keys), 'key')} {named}, which nobody has "
            "set"
        )
    return f"{'; '.join(parts)}."


GROUPS = (
    "Every rank must call new_group for every group, in the same order, even for groups without "
    "that rank."
)


LOCAL = (
    "With use_local_synchronization=True the members of a group wait for each other, so all ranks "
    "must follow one order of all groups, for example sorted(groups), and leave out foreign groups."
)
COUNTED = (
    "gloo counts the groups of each process, and only ranks with equal counts meet, so the members "
    "have made different numbers of groups before. Leave out use_local_synchronization, and call "
    "new_group for every group on every rank."
)


def _why_groups(making: Mapping[int, Call]) -> str:
    """Return a text about the different groups that ranks make while they wait for each other.

    torch names a group by its number, and the members connect by name. If two ranks give one group
    different numbers, these ranks have made different numbers of groups before. A group with local
    synchronization has a hash of the members as its name.
    """
    if not all(call.group.isdigit() for call in making.values()):
        return _local_groups(making)
    for one in making.values():
        numbers: dict[str, list[int]] = {}
        for rank, call in making.items():
            if call.members == one.members:
                numbers.setdefault(call.group, []).append(rank)
        if len(numbers) > 1 and all(map(str.isdigit, numbers)):
            made = [
                f"{ranks(alike)} {'has' if len(alike) == 1 else 'have'} made "
                f"{count(int(number), 'group')}"
                for number, alike in sorted(numbers.items(), reverse=True)
            ]
            return f"including the group {sorted(one.members)}, {', '.join(made)}. {GROUPS}"
    made = [f"rank {rank} {sorted(call.members)}" for rank, call in sorted(making.items())]
    return f"the ranks make different groups: {', '.join(made)}. {GROUPS}"


def _local_groups(making: Mapping[int, Call]) -> str:
    """Return a text about the ranks that wait in a group's new_group, and the missing members.

    All members may wait in this new_group, and none may be missing. Then gloo looks for the members
    at wrong addresses: each process numbers its gloo groups (`ProcessGroupGloo::local_id_`), the
    number is a part of the addresses, and the members have different numbers.
    """
    steps = []
    for rank, call in sorted(making.items()):
        group = sorted(call.members)
        there = [other for other in group if other in making]
        elsewhere = [other for other in there if making[other].members != call.members]
        if there == group and not elsewhere:
            return f"{ranks(group)} wait in new_group for {group}, and do not meet: {COUNTED}"
        steps += [
            f"rank {rank} waits in new_group for {group} until rank {other} comes, but rank "
            f"{other} waits in new_group for {sorted(making[other].members)}"
            for other in elsewhere[:1]
        ]
    return f"{'; '.join(steps)}. {LOCAL}"


def _why_returned(
    calls: Mapping[int, Call], needs: Needs, returned: Collection[int], made: Mapping[int, int]
) -> str:
    """Return a sentence about ranks that wait, all in one call, for ranks that have returned."""
    alone = causes.left_alone(calls, needs, returned)
    first = next(iter(alone))
    gone = alone[first]
    group = [
        rank
        for rank, theirs in alone.items()
        if theirs & gone and calls[rank].function == calls[first].function
    ]
    verb = "waits" if len(group) == 1 else "wait"
    have = "has" if len(gone) == 1 else "have"
    if calls[first].makes_group and calls[first].group.isdigit():
        return (
            f"{ranks(group)} {verb} in group number {calls[first].group} for {ranks(gone)}, which "
            f"{have} returned after making fewer groups. {GROUPS}"
        )
    before = [made.get(rank, 0) for rank in sorted(gone)]
    if not any(before):
        return (
            f"{ranks(group)} {verb} for {ranks(gone)}, which {have} returned without "
            f"{_undone(calls[first])}."
        )
    which = {made.get(rank, 0) for rank in group}
    number = f"{'its' if len(group) == 1 else 'their'} {ordinal(max(which))} "
    after = [str(before[0])] if len({*before}) == 1 else map(str, before)
    return (
        f"{ranks(group)} {verb} in {number if len(which) == 1 else ''}"
        f"{calls[first].function} for "
        f"{ranks(gone)}, which {have} returned after {' and '.join(after)}."
    )


def _undone(call: Call) -> str:
    """Return the missing action of a returned rank that would end `call`: "calling all_reduce"."""
    if call.op == "recv":
        return "sending that message"
    return "receiving the message" if call.op == "send" else f"calling {call.function}"


def _deed(call: Call) -> str:
    """Return the action of another rank that would end `call`, such as "call all_reduce"."""
    if call.op == "recv":
        return "send"
    return "receive" if call.op == "send" else f"call {call.function}{of_group(call)}"


# Exceptions


def raised(reports: Mapping[int, Raised]) -> str:
    """Return the text of a `RankError`: the exception of the lowest rank first."""
    first, same = reports[min(reports)], causes.alike(reports)
    if first.unsendable:
        return "\n".join([f"{ranks(same)}: {first.message}", *_frames(first)])
    lines = [_headline(same, first), *_frames(first), *_behind(first)]
    for rank, other in sorted(reports.items()):
        if rank not in same:
            lines += [_headline([rank], other, blank=False), *_frames(other), *_behind(other)]
    return "\n".join(lines)


def _behind(one: Raised) -> list[str]:
    """Return lines about the exceptions in an exception group, and about an exception's cause."""
    lines = []
    for each in one.exceptions:
        lines += [f"with {each.type}: {each.message}", *_frames(each), *_behind(each)]
    if one.cause is not None:
        lines += [f"because of {one.cause.type}: {one.cause.message}", *_frames(one.cause)]
        lines += _behind(one.cause)
    return lines


def _headline(rank_list: list[int], one: Raised, *, blank: bool = True) -> str:
    if blank and one.type == "NotImplementedError" and one.message.startswith(BLANK):
        name = one.frames[-1].function if one.frames else "an exercise"
        return f"{name} is not answered yet: write your code, run its cell, then this one."
    message = one.message if len(one.message) <= LONG else f"{one.message[:LONG]} ..."
    return f"{ranks(rank_list)} raised {one.type}: {message}"


def _frames(one: Raised) -> list[str]:
    """Return the lines of the user's own code in an exception's traceback, outermost first."""
    frames = one.frames
    shown = frames if len(frames) <= 6 else [*frames[:2], None, *frames[-3:]]
    return [
        "    ..."
        if frame is None
        else f"  {place((frame.file, frame.line))}"
        + (f"  (in {frame.function})" if frame.function else "")
        for frame in shown
    ]


# Death


def died(deaths: Mapping[int, Death], reports: Mapping[int, Raised]) -> str:
    """Return the text of a `RankDied`: the dead ranks, and the exceptions of other ranks."""
    first = min(deaths)
    if deaths[first].cause == "sys.exit":
        one = reports[first]
        text = f"{ranks(deaths)} called sys.exit({one.message}) instead of returning."
        return "\n".join([text, *_frames(one)])
    lines = []
    for rank, death in sorted(deaths.items()):
        lines.append(f"{name(rank, death.host)} {_end(death)}")
        if death.last is not None:
            lines.append(f"  {last_seen(death.last)}")
    if any(death.signal == "SIGKILL" for death in deaths.values()):
        lines.append("SIGKILL comes from outside: the system when memory ran out, or a person.")
    lines += [
        f"{ranks([rank])} raised {one.type}: {one.message}" for rank, one in sorted(reports.items())
    ]
    return "\n".join(lines)


def name(rank: int, host: str = "") -> str:
    """Return "rank 3", or "rank 3 on host b" in a job on several hosts."""
    return f"rank {rank}{f' on host {host}' if host else ''}"


def _end(death: Death) -> str:
    if death.cause == "signal":
        return f"was killed by {death.signal}"
    if death.cause == "left":
        return "left the script while other ranks were still running it."
    if death.cause == "gone":
        return (
            "is gone: its process was killed or crashed, or its host cannot be reached. "
            "torchrun's own report may say more."
        )
    return f"left with exit code {death.exit_code} before its function returned (os._exit?)"


def last_seen(last: LastSeen) -> str:
    """Return the line of the user's code in which a rank was last seen."""
    if last.by == "function":
        whole_script = last.function == os.path.basename(last.where[0])
        line = "" if whole_script else f", {locate(*last.where)}"
        return f"somewhere in {last.function}{line}"
    if last.by == "call" and last.call is not None:
        return f"last call: {describe(last.call)}, {place(last.where)}"
    return f"{'last seen ' if last.by == 'status' else ''}in {place(last.where)}"
