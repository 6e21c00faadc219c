"""What to say to a wrong all-reduce: the first sentence that fits it."""

from __future__ import annotations

import re
from typing import Any

from ddpkit.checks.lab03.question import Question, Way
from ddpkit.checks.messages import ITSELF, of_message
from ddpkit.errors import Deadlock
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.rank.group.recorded import COLLECTIVES


def hint(asked: Question, seen: Observed) -> str | None:
    if "error" in seen:
        return _raised(asked.n, seen["error"])
    return (
        _collective(seen)
        or _memory(seen)
        or _neighbours(asked, seen)
        or _wrong_tensors(asked, seen)
        or _wrong_traffic(asked, seen)
    )


def _raised(n: int, error: Any) -> str | None:
    text = " ".join(str(error).split())  # its lines are wrapped
    if said := of_message(text):
        return said
    if isinstance(error, Deadlock):
        return _waiting(n, text)
    if "has to be contiguous" in text:
        return "A message must lie in one piece: send x.contiguous(), and make room like that."
    if "does not fit the tensor" in text:
        return (
            "A message and the room for it differ in length. n need not divide the length, and "
            "some chunks may be empty: take both from the same torch.tensor_split."
        )
    if "IndexError" in text:
        return "A tensor may be shorter than n: torch.chunk then gives fewer than n pieces."
    if n == 1:
        return "With one rank there is nobody to talk to: the sum is x, in a tensor of its own."
    if "view size is not compatible" in text:
        return (
            "x may lie in memory in another order, and a clone of it too: then it has no view(-1). "
            "x.clone(memory_format=torch.contiguous_format) has."
        )
    if ITSELF.search(text):
        return "A rank sends nothing to itself, and adds its own without a message."
    if "this group has" in text:
        return (
            f"With {n} ranks there are ranks 0 to {n - 1}: not every rank has a partner in every "
            "round. (In a circle, take the rank % world_size.)"
        )
    if "can't be cast" in text:
        return "x may hold integers. Nothing has to be divided here."
    return None


def _waiting(n: int, text: str) -> str:
    if re.search("ha(s|ve) returned|waits? in barrier", text):  # in the check's, after the call
        return (
            "A rank has returned, and another still waits for it: go through the rounds on paper "
            f"with {n} ranks, and count who sends and who receives."
        )
    if "wait in send" in text:
        return "All wait in send. Start it with dist.isend, then receive, then wait for it."
    return (
        "In each round, is the rank that I receive from the one that sends to me? Draw an arrow "
        "for each message."
    )


def _collective(seen: Observed) -> str | None:
    called = [name for name in COLLECTIVES.values() if name in seen.get("to", "").split()]
    if not called:
        return None
    return f"Use isend, send and recv only: {called[0]} would do the work for you."


def _memory(seen: Observed) -> str | None:
    if seen["x"] == "changed":
        return "x has changed: add into a copy of it, x.clone()."
    if seen["x"] == "returned":
        return "What you return lies in the memory of x: return a tensor of its own, a clone."
    return None


def _neighbours(asked: Question, seen: Observed) -> str | None:
    """So many bytes as is right, but to others: whatever the sum is, this comes first."""
    due = asked.expect
    if seen["bytes"] != due["bytes"] or seen.get("to") == due.get("to"):
        return None
    return f"The messages go {seen['to']}; in {asked.way.a} they go {due['to']}."


def _wrong_tensors(asked: Question, seen: Observed) -> str | None:
    for name, inputs, total in zip(asked.names, asked.inputs, asked.totals, strict=True):
        if not same(seen[name], total):
            return _wrong_tensor(asked.way, seen[name], inputs, total, seen["on rank"])
    if seen.get("bits") == "differ":
        return (
            "Ranks that add in different orders differ in the last bits. Let all add in the same "
            "order, that of the ranks."
        )
    return None


def _wrong_tensor(way: Way, got: Any, inputs: list[Any], total: Any, rank: int) -> str | None:
    x, n = inputs[0], len(inputs)
    if getattr(got, "dtype", None) != x.dtype:
        return f"x is of {x.dtype}, and so is the sum: make room for it with torch.empty_like."
    if got.shape != x.shape:
        return f"The sum has the shape of x, {list(x.shape)}; you return {list(got.shape)}."
    if same(got * n, total):
        return "That is the mean. An all-reduce gives the sum; who wants a mean divides it."
    return _wrong_parts(way, got, inputs, rank)


def _wrong_parts(way: Way, got: Any, inputs: list[Any], rank: int) -> str | None:
    """Read from the digits whose parts are in each element, and how often."""
    import torch

    n = len(inputs)
    ones = torch.tensor([10.0**rank for rank in range(n)]).double().view(-1, 1)
    digits = got.reshape(-1).double().div(ones, rounding_mode="floor") % 10
    parts = torch.stack([x.reshape(-1) for x in inputs]).double() / ones
    times = digits / parts  # [rank, element]
    length, whole = times.shape[1], times.shape[1] // n * n
    if whole < length and bool((times[:, :whole] == 1).all()):
        return f"The end of x is left out, from element {whole} on: n need not divide the length."
    if way.alone and bool(((times == 1).sum(dim=0) == 1).all() and (times.sum(dim=0) == 1).all()):
        return way.alone
    for wrong, what, advice in (
        (times == 0, "lacks what {} gave", way.lacks),
        (times > 1, "has what {} gave more than once", way.twice),
    ):
        if wrong.any():
            element = int(wrong.any(dim=0).nonzero()[0])
            whose = _ranks(wrong[:, element].nonzero().reshape(-1).tolist())
            return f"On rank {rank}, element {element} {what.format(whose)}. {advice}"
    return None


def _wrong_traffic(asked: Question, seen: Observed) -> str | None:
    a, due = asked.way.a, asked.expect
    if seen["bytes"] != due["bytes"]:
        return f"{_bytes(asked, seen)} {asked.way.much}"
    if seen.get("messages") != due.get("messages"):
        return (
            f"The right bytes, but in {max(seen['messages'])} messages from a rank, where {a} has "
            f"{max(due['messages'])}. Each message costs a latency."
        )
    if seen["latencies"] > due["latencies"]:
        row = f"{seen['latencies']} messages go in a row, where {a} has {due['latencies']}."
        return f"{row} {asked.way.row}"
    return (
        f"Only {seen['latencies']} in a row, where {a} has {due['latencies']} rounds: too much is "
        "under way at once. A round begins when the one before it is over."
    )


def _bytes(asked: Question, seen: Observed) -> str:
    """ "Rank 0 sent 96 bytes to ranks 1, 2 and 3; a ring sends 48 to rank 1." """
    sent, due, a = seen["bytes"], asked.expect["bytes"], asked.way.a
    if isinstance(sent, int):
        return f"With {asked.n} ranks all together sent {sent} bytes; {a} sends {due}."
    first, *others = sent
    if first == sum(others) and due[0] < first:
        return f"One rank is a hidden master: it alone sent {first} bytes; in {a}, {due[0]}."
    rank = next(rank for rank in range(asked.n) if sent[rank] != due[rank])
    to, due_to = (_peers(rank, each.get("to", "")) for each in (seen, asked.expect))
    return f"Rank {rank} sent {sent[rank]} bytes{to}; {a} sends {due[rank]}{due_to}."


def _peers(rank: int, to: str) -> str:
    pairs = [pair.split("→") for pair in to.split() if "→" in pair]
    peers = [int(b) for a, b in pairs if a == str(rank)]
    return f" to {_ranks(peers)}" if peers else ""


def _ranks(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
