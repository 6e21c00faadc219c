"""Words for what went wrong between ranks: pure functions from calls to sentences.

A *call* is what `rank.call.Call.as_dict` says and a black box holds: one call into
torch.distributed, with the line of the user's code that made it.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from ddpkit.source import locate, source_line
from ddpkit.text import ERROR_LINE, plural, wrap

Call = Mapping[str, Any]
Where = tuple[str, int]

ROOT_NAMES = {"broadcast": "src", "scatter": "src", "reduce": "dst", "gather": "dst"}
MESSAGES = ("send", "recv")


def ranks(numbers: Iterable[int]) -> str:
    """ "rank 2" or "ranks 0, 1, 3"."""
    numbers = sorted(numbers)
    return f"{plural(len(numbers), 'rank')} {', '.join(map(str, numbers))}"


def place(where: Any) -> str:
    """A line of the user's code: "Cell In[5], line 3: dist.recv(x, src=1)"."""
    filename, lineno = where
    if not filename:
        return "outside your code"
    text = source_line(filename, lineno)
    return f"{locate(filename, lineno)}{': ' if text else ''}{text}"


def wrapped(sentence: str) -> str:
    """In lines that JupyterLab does not break once more, in the middle of a word."""
    return wrap(sentence, ERROR_LINE)


def tensor(call: Call) -> str:
    """ "float32[4, 2]"; empty for a call without a tensor."""
    if "dtype" not in call:
        return ""
    return f"{call['dtype']}[{', '.join(map(str, call.get('shape', ())))}]"


def describe(call: Call) -> str:
    """A call as its reader wrote it: "recv(src=1)", "all_reduce(float32[4])"."""
    op, via = call["op"], call.get("via", "")
    if not call.get("seq"):  # a wait that was seen from outside, of which only the name is known
        return f"{op}()"
    arguments = []
    if op == "send":
        arguments.append(f"dst={call['peer']}")
    elif op == "recv":
        arguments.append(f"src={call.get('peer', 'any')}")
    else:
        arguments.append(tensor(call))
        if op in ROOT_NAMES:
            arguments.append(f"{ROOT_NAMES[op]}={call.get('root')}")
        if call.get("reduce", "SUM") != "SUM":
            arguments.append(call["reduce"])
    if "members" in call:  # not the default group
        arguments.append(f"group={sorted(call['members'])}")
    asynchronous = via in ("isend", "irecv", "batch_isend_irecv")
    text = f"{'i' * asynchronous}{op}({', '.join(filter(None, arguments))})"
    return text if asynchronous or not via else f"{text} inside {via}()"


def waits(rank_list: Iterable[int], call: Call, where: Any) -> str:
    """A line of a report: who waits, in what, where."""
    numbers = sorted(rank_list)
    text = describe(call)
    verb = "waits" if len(numbers) == 1 else "wait"
    posted = call.get("where")
    if posted and list(posted) != list(where) and posted[0]:
        text = f"wait() for the {text} of line {posted[1]}"
    return f"  {ranks(numbers)} {verb} in {text}\n      {place(where)}"


# Deadlock


def deadlock(
    waiting: Mapping[int, tuple[Call, Where]], needs: Mapping[int, set[int]], returned: set[int]
) -> str:
    """Explain a deadlock.

    `waiting` holds for each unfinished rank what it waits in and where, `needs` the ranks without
    which its wait cannot end, and `returned` the ranks whose function has already returned.
    """
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, (call, where) in sorted(waiting.items()):
        alike.setdefault((describe(call), place(where)), []).append(rank)
    lines = [waits(group, *waiting[group[0]]) for group in alike.values()]
    if returned:
        lines.append(f"  {ranks(returned)} returned already")
    return "\n".join(
        [
            "The ranks wait for each other and none can go on.",
            *lines,
            wrapped(_why({rank: call for rank, (call, _) in waiting.items()}, needs, returned)),
        ]
    )


def _why(calls: Mapping[int, Call], needs: Mapping[int, set[int]], returned: set[int]) -> str:
    for rank, wanted in sorted(needs.items()):
        if gone := wanted & returned:
            group = [
                r for r, others in needs.items() if others & gone and _same(calls[r], calls[rank])
            ]
            verb = "waits" if len(group) == 1 else "wait"
            have = "has" if len(gone) == 1 else "have"
            return (
                f"Why: {ranks(group)} {verb} for {ranks(gone)}, which {have} returned without "
                f"{_part(calls[rank])}."
            )
    if (left := lost(calls, needs, returned)) is not None:
        return (
            f"Why: rank {calls[left]['peer']} posted the send that rank {left} waits for, and "
            "returned before it was over: the message is lost. Keep what isend gives, and wait() "
            "for it."
        )
    cycle = _cycle(needs)
    if not cycle:
        return "Why: nothing that the waiting ranks need has been posted by the others."
    ops = {calls[rank]["op"] for rank in cycle}
    if len(cycle) == 1:
        return (
            f"Why: rank {cycle[0]} waits for itself; a rank cannot {ops.pop()} to or from itself."
        )
    if ops == {"recv"}:
        return (
            f"Why: {_names(cycle)} each wait to receive before they send, so nobody sends. "
            "Let one of them send first."
        )
    if ops == {"send"}:
        return (
            f"Why: {_names(cycle)} each wait in send until the other receives, so nobody receives. "
            "Let one of them receive first, or send with isend."
        )
    steps = [
        f"rank {rank} needs rank {other} to {_deed(calls[rank])}"
        for rank, other in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
    ]
    return f"Why: {', but '.join(steps)}. All ranks must communicate in an order that fits."


def lost(
    calls: Mapping[int, Call], needs: Mapping[int, set[int]], returned: set[int]
) -> int | None:
    """A rank that waits for a message whose sender has posted it and is gone; None without one."""
    for rank, call in sorted(calls.items()):
        if call["op"] == "recv" and not needs[rank] and call.get("peer") in returned:
            return rank
    return None


def _same(one: Call, other: Call) -> bool:
    return bool(one["op"] == other["op"])


def _part(call: Call) -> str:
    """What a rank that returned has left out."""
    if call["op"] == "recv":
        return "sending that message"
    return "receiving it" if call["op"] == "send" else f"calling {call['op']}"


def _deed(call: Call) -> str:
    if call["op"] == "recv":
        return "send"
    return "receive" if call["op"] == "send" else f"call {call['op']}"


def _names(cycle: list[int]) -> str:
    return ranks(cycle)


def _cycle(needs: Mapping[int, set[int]]) -> list[int]:
    """A shortest cycle of ranks that need each other; empty when there is none."""
    best: list[int] = []
    for start in sorted(needs):
        paths = [[start]]
        seen: set[int] = set()
        while paths:
            path = paths.pop(0)
            for other in sorted(needs.get(path[-1], ())):
                if other == start and (not best or len(path) < len(best)):
                    best = path
                elif other not in seen and other != start:
                    seen.add(other)
                    paths.append([*path, other])
    return best


# Mismatch


def difference(one: Call, other: Call) -> str | None:
    """How two ranks' calls of one collective differ; None when they fit."""
    if one["op"] != other["op"]:
        return "Every rank must call the same collectives in the same order"
    op = one["op"]
    if one.get("root") != other.get("root"):
        return f"Every rank must name the same {ROOT_NAMES.get(op, 'root')}"
    if one.get("dtype") != other.get("dtype"):
        return "Every rank must pass a tensor of the same dtype"
    if not op.startswith("all_to_all") and size(one) != size(other):
        return "Every rank must pass a tensor of the same shape"
    if one.get("reduce") != other.get("reduce"):
        return "Every rank must ask for the same reduction"
    return None


def size(call: Call) -> int:
    return prod(call.get("shape", ()))


def collective_mismatch(number: int, calls: Mapping[int, Call], difference: str) -> str:
    """Explain ranks that disagree on the `number`th collective of a group."""
    alike: dict[tuple[str, str], list[int]] = {}
    for rank, call in sorted(calls.items()):
        alike.setdefault((describe(call), place(call["where"])), []).append(rank)
    lines = [
        f"  {ranks(group)} {'calls' if len(group) == 1 else 'call'} {text}\n      {line}"
        for (text, line), group in alike.items()
    ]
    first = f"The ranks disagree on collective number {number} of this run."
    return "\n".join([first, *lines, f"{difference}."])


def message_mismatch(sent: Call, received: Call) -> str:
    """Explain a message that does not fit the tensor it is received into."""
    src, dst = received["peer"], sent["peer"]
    return "\n".join(
        [
            "A message does not fit the tensor that it is received into.",
            f"  rank {src} sends {tensor(sent)} to rank {dst}\n      {place(sent['where'])}",
            f"  rank {dst} receives into {tensor(received)}\n      {place(received['where'])}",
            "Both sides must agree on the number of elements and on the dtype.",
        ]
    )


# Death


def death(exitcode: int | None) -> str:
    """What a process's exit code says: "was killed by SIGKILL", "left with exit code 3"."""
    if exitcode is not None and exitcode < 0:
        try:
            return f"was killed by {signal.Signals(-exitcode).name}"
        except ValueError:
            return f"was killed by signal {-exitcode}"
    return f"left with exit code {exitcode} before its function returned (os._exit?)"
