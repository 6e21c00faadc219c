"""What to say to a wrong collective: the first sentence that fits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ddpkit.checks.lab02.question import TREES, Question, times_in
from ddpkit.checks.messages import ITSELF, of_message
from ddpkit.errors import Deadlock
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed

BY_MESSAGES = "No message was sent. Build it from send, recv, isend and irecv alone."
MESSAGES_ONLY = "Use send, recv, isend and irecv alone: a collective beside them costs rounds too."
AT_ONCE = "Start the send with dist.isend, then receive, then wait for it."


def hint(question: Question, seen: Observed) -> str | None:
    if "error" in seen:
        return _raised(question, seen["error"])
    if seen.get(question.read_only) == "changed":
        return _changed(question)
    if not same(seen[question.out], question.expect[question.out]):
        return _wrong(question, seen[question.out])
    return _traffic(question, seen)


def _raised(question: Question, error: Any) -> str | None:
    text, n = " ".join(str(error).split()), question.n  # its lines are wrapped
    if said := of_message(text):
        return said
    if "has to be contiguous" in text:
        return "A message must lie in one piece: send .contiguous() of it, and copy_ back."
    if n == 1 and ("send" in text or "recv" in text):
        return "With one rank there is nobody to send to or receive from."
    stuck, to_itself = isinstance(error, Deadlock), bool(ITSELF.search(text))
    if question.op in TREES and n & (n - 1) and (stuck or to_itself or "this group has" in text):
        return (
            f"With {n} ranks, no power of two, some have nobody `far` above them: ask whether "
            "place + far < world_size before you send or receive."
        )
    if question.root and "NoneType" in text:
        return _from_root(question)
    if question.root and (to_itself or stuck):
        return _from_root(question)
    if to_itself:
        return "A rank sends nothing to itself: what is its own it copies, without a message."
    if "does not fit the tensor" in text:
        return "The chunks differ in length: receive into a tensor as long as the chunk that comes."
    return _waiting(question, text) if stuck else None


def _waiting(question: Question, text: str) -> str:
    if question.op in ("all_gather", "reduce_scatter") and "wait in send" in text:
        return f"All ranks wait in send, for nobody receives yet. {AT_ONCE}"
    if re.search("ha(s|ve) returned|waits? in barrier", text):  # in the check's, after the call
        return (
            "A rank has returned while another waits for it: for each rank write down what it "
            "sends and receives, and compare."
        )
    return "Draw an arrow from each rank to the one that it waits for, and look for the circle."


def _from_root(question: Question) -> str:
    end = "src" if question.op in ("broadcast", "scatter") else "dst"
    place = f": its place is (rank - {end}) % world_size" if question.op in TREES else ""
    return f"The root is rank {question.root} here, not 0. Count the ranks from {end}{place}."


def _changed(question: Question) -> str:
    if question.out == "x":
        return "The chunks have changed: they are to be read only. Add up in a tensor of your own."
    return "x has changed: it is to be read only. Write into the chunks."


# A wrong value


def _wrong(question: Question, got: list[Any]) -> str | None:
    untouched = question.x if question.out == "x" else question.chunks
    due = question.expect[question.out]
    wrong = [rank for rank in range(question.n) if not same(got[rank], due[rank])]
    if all(same(got[rank], untouched[rank]) for rank in wrong):
        return _untouched(question, wrong)
    if question.out == "x" and question.op in ("reduce", "reduce_scatter"):
        return _wrong_sum(question, got, wrong[0])
    if question.out == "chunks":
        return _wrong_chunks(question, wrong[0], got[wrong[0]], due[wrong[0]])
    if question.op == "scatter":
        return f"Rank {wrong[0]} has the wrong chunk: rank r gets chunks[r], whoever is the root."
    return _from_root(question)


def _untouched(question: Question, ranks: list[int]) -> str:
    """They hold what they held before the call."""
    out, n = question.out, question.n
    if ranks == [question.root] and question.op == "scatter":
        return "The root gets a chunk too: x.copy_(...) of its own, without a message."
    if question.op == "all_gather" and len(ranks) == n:
        return (
            "All chunks are as they were. First copy x into chunks[rank], for that is what goes "
            "around; chunks[rank] = x would only put another tensor into the list."
        )
    if len(ranks) == n or question.op in ("reduce", "gather") or question.laid == "transposed":
        return (
            f"{out} of {_ranks(ranks)} is as it was. What was received must get into the tensor "
            f"given: {out}{'[r]' if out == 'chunks' else ''}.copy_(...). A name or a list that is "
            "given another tensor leaves the old one as it was."
        )
    return f"Nothing has come to {_ranks(ranks)}: {out} there is as it was before the call."


def _wrong_sum(question: Question, got: list[Any], rank: int) -> str | None:
    n = question.n
    if question.op == "reduce" and rank != question.root:
        return (
            f"x of rank {rank} has changed. Only rank dst's may: add into a new tensor, "
            "total = total + received, or into a clone."
        )
    if question.op == "reduce" and question.root:
        return _from_root(question)
    due = question.expect["x"][rank]
    if same(got[rank] * n, due):
        return "That is the mean. The sum is wanted: who wants a mean divides it."
    if question.op == "reduce_scatter":
        for other, theirs in enumerate(zip(*question.chunks, strict=True)):
            if other != rank and times_in(got[rank], theirs):
                return (
                    f"Rank {rank} has a sum of chunks number {other}; chunks number {rank} are its "
                    "own. Begin with chunks[rank - 1], whose owner is the last to get it."
                )
    parts = question.x if question.op == "reduce" else [each[rank] for each in question.chunks]
    return _wrong_parts(rank, times_in(got[rank], parts))


def _wrong_parts(rank: int, times: tuple[int, ...] | None) -> str:
    if times is None:
        return (
            f"The sum on rank {rank} is not that of the ranks' tensors. Add each that comes, once."
        )
    if 0 in times:
        lacks = [other for other, count in enumerate(times) if not count]
        return (
            f"The sum on rank {rank} lacks what {_ranks(lacks)} gave: pass on the sum so far, "
            "with what you have received in it."
        )
    twice = [other for other, count in enumerate(times) if count > 1]
    return f"In the sum on rank {rank} the part of {_ranks(twice)} counts twice."


def _wrong_chunks(question: Question, rank: int, got: Any, due: Any) -> str | None:
    wrong = [at for at in range(question.n) if not same(got[at], due[at])]
    room = question.chunks[rank]
    if wrong == [rank] and same(got[rank], room[rank]):
        return "A rank's own x is one of the chunks: copy it into chunks[rank], without a message."
    if question.op == "all_gather" and all(same(got[at], room[at]) for at in wrong):
        return (
            f"Nothing has come into chunk {wrong[0]} of rank {rank}. A ring takes n - 1 = "
            f"{question.n - 1} steps, and each brings another rank's chunk, into the tensor that "
            "was given: chunks[r] = ... puts another one into the list."
        )
    if question.op == "all_gather":
        return (
            f"Rank {rank} has the wrong tensor in chunk {wrong[0]}. Pass on the chunk that you got "
            "last, not your own each time: in step k it is number (rank - k) % world_size."
        )
    return f"chunks[{wrong[0]}] is not what rank {wrong[0]} gave: receive it from that rank."


# The right values by another way


def _traffic(question: Question, seen: Observed) -> str | None:
    due, op = question.expect, question.op
    if seen["bytes"] in (0, [0] * question.n):
        return BY_MESSAGES
    if seen["bytes"] != due["bytes"]:
        return _bytes(question, seen["bytes"], due["bytes"])
    if isinstance(seen.get("rounds"), str):
        return MESSAGES_ONLY
    if seen.get("to") != due.get("to"):
        return _peers(seen["to"], due["to"])
    if op in TREES:
        return (
            f"{seen['rounds']} rounds, where a binomial tree takes {due['rounds']}. "
            + {
                "broadcast": "All who have x send it, in each round, not the root alone.",
                "reduce": "Let others add too: in each round half of those left hand over a sum.",
            }[op]
        )
    if op in ("all_gather", "reduce_scatter"):
        return (
            f"{seen['rounds']} rounds, where a ring takes {due['rounds']}: a rank that waits in "
            f"send before it receives holds up the next. {AT_ONCE}"
        )
    return None


def _bytes(question: Question, sent: Any, due: Any) -> str:
    if isinstance(sent, int):
        says, less = f"All ranks together sent {sent} bytes, where {due} are enough.", sent < due
    else:
        rank = next(rank for rank in range(question.n) if sent[rank] != due[rank])
        says = f"Rank {rank} sent {sent[rank]} bytes, where {due[rank]} are enough."
        less = sent[rank] < due[rank]
    if less and question.x[0].element_size() == 8:
        return (
            f"{says.replace('are enough', 'are due')} Send numbers in the dtype they have: as "
            "float32 they lose digits."
        )
    return (
        f"{says} "
        + {
            "broadcast": "Each rank but src receives x once.",
            "reduce": "Each rank but dst sends one sum, once.",
            "scatter": "The root sends each rank its chunk and nothing else, the others nothing.",
            "gather": "Each rank sends its x to dst, once, and dst sends nothing.",
            "all_gather": "Pass on one chunk in each of n - 1 steps.",
            "reduce_scatter": "Pass on the sum of one chunk in each of n - 1 steps.",
        }[question.op]
    )


def _peers(to: str, due: str) -> str:
    pairs = [pair.split("→") for pair in to.split()]
    if sorted(due.split()) == sorted(f"{b}→{a}" for a, b in pairs):
        return "It goes the wrong way round: send to rank + 1, receive from rank - 1."
    peers = [int(b) for a, b in pairs if a == "0"]
    if len(peers) < 2:
        return f"The messages go {to}; they should go {due}."
    return (
        f"Rank 0 sends to {_ranks(peers)}. In a ring a rank sends to one other only, rank + 1, "
        "and hands on what it gets from rank - 1."
    )


def _ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"


# barrier


def barrier_hint(n: int, rounds: int, seen: Observed) -> str | None:
    if "error" in seen:
        error = seen["error"]
        text = " ".join(str(error).split())
        if said := of_message(text):
            return said
        if n == 1:
            return "With one rank there is nobody to wait for."
        if isinstance(error, Deadlock) and "wait in send" in text:
            return f"All ranks wait in send, for nobody receives yet. {AT_ONCE}"
        if n & (n - 1):
            return (
                f"With {n} ranks, no power of two, count in a circle: send to (rank + far) % "
                "world_size, receive from (rank - far) % world_size."
            )
        return "In each round, is the rank that you receive from the one that sends to you?"
    if not seen["rounds"]:
        return BY_MESSAGES
    if seen["left early"] != "nobody":
        return (
            f"Somebody left early: {seen['left early']}. A rank may go when it has heard of every "
            "other, by a message or through others, and has waited for the messages to come in."
        )
    if isinstance(seen["rounds"], str):
        return MESSAGES_ONLY
    return (
        f"{seen['rounds']} rounds with {n} ranks, where ⌈log2 n⌉ is {rounds}: let every rank send "
        "in each round, twice as far as in the one before, and start it with isend."
    )
