"""Hints for wrong collectives and barriers: the tables, and functions for the longer sentences."""

from __future__ import annotations

from ddpkit.checks.lab02.anybody import LUCK
from ddpkit.checks.lab02.collectives import ROOT, TREES, written_by
from ddpkit.checks.lab02.mistakes import (
    empty_chunks,
    first,
    given_by,
    holds,
    no_partner,
    no_power_of_two,
    owner,
    receivers,
    times,
    untouched,
    wrong_chunks,
    wrong_ranks,
)
from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who

AT_ONCE = "Start the send with dist.isend, then receive, then wait for the send."
ENOUGH = {  # collective -> advice about bytes
    "broadcast": "Each rank except src receives x once.",
    "reduce": "Each rank except dst sends one sum, once.",
    "scatter": "The root sends each rank only the rank's own chunk, and the remaining ranks send "
    "nothing.",
    "gather": "Each rank except dst sends its x to dst, once, and dst sends nothing.",
    "all_gather": "Pass on one chunk in each of n - 1 steps.",
    "reduce_scatter": "Pass on the sum of one chunk in each of n - 1 steps.",
}


def count_from_root(s: Seen) -> str:
    end = ROOT[s.op]
    place = f": a rank's place is (rank - {end}) % world_size" if s.op in TREES else ""
    return (
        f"Here the root is rank {s.root}, of {s.n} ranks. Does your code count ranks from "
        f"{end}{place}? And does your code use world_size?"
    )


def not_copied(s: Seen) -> str:
    out = written_by(s.op)
    return (
        f"{out} of {who(untouched(s))} has not changed. Copy the received tensor into the given "
        f"tensor: {out}{'[r]' if out == 'chunks' else ''}.copy_(...). Assigning a new tensor to a "
        "name or to a list element leaves the given tensor unchanged."
    )


def other_bytes(s: Seen) -> str:
    """Return the start of a sentence about wrong bytes; the caller adds "enough" or "due".

    The sentence is about the bytes of all ranks together, or about the first rank that sent a wrong
    number of bytes.
    """
    got, expected = s["bytes"], s.expect["bytes"]
    if isinstance(expected, int):
        return f"All ranks together sent {got} bytes, but {expected} bytes are"
    rank = next(rank for rank in range(s.n) if got[rank] != expected[rank])
    return f"Rank {rank} sent {got[rank]} bytes, but {expected[rank]} bytes are"


def own_elsewhere(s: Seen) -> int | None:
    """Return the number of a wrong chunk on the root that holds the root's own x, or None."""
    found = (at for at in wrong_chunks(s) if given_by(s, s["chunks"][s.root][at]) == s.root)
    return next(found, None)


def no_ring(s: Seen) -> str:
    peers = receivers(s)
    rank = next(rank for rank in range(s.n) if peers[rank] != [(rank + 1) % s.n])
    return (
        f"Rank {rank} sends to {who(peers[rank])}. In a ring, a rank sends only to rank + 1, and "
        "passes on the tensors from rank - 1."
    )


# fmt: off
ALL_SEND = Hint("all send", lambda s: s.stuck == "send",
                f"All ranks wait in send, because no rank receives yet. {AT_ONCE}")
BY_COLLECTIVE = Hint("collective", lambda s: isinstance(s["rounds"], str),
                     "Use only send, recv, isend and irecv: a collective in addition costs rounds "
                     "too.")
BY_MESSAGES = "No message was sent. Build the collective from send, recv, isend and irecv alone."
RAISED = (
    *MESSAGES,
    Hint("not contiguous", lambda s: s.kind == "not contiguous",
         "A message must be contiguous in memory: send .contiguous() of the tensor, and copy_ the "
         "received numbers back."),
    Hint("one rank", lambda s: s.n == 1 and no_partner(s),
         "With one rank there is no second rank to send to or to receive from."),
    Hint("no such rank", lambda s: s.kind == "no such rank", lambda s:
         f"Your code names a rank that does not exist: {s.n} ranks have the numbers 0 to "
         f"{s.n - 1}.",
         "Counted from the root, or in a ring, rank 0 comes after the last rank: % world_size."),
    Hint("power of two", lambda s: s.op in TREES and no_power_of_two(s) and no_partner(s),
         lambda s: f"{s.n} is not a power of two, so some of the {s.n} ranks have no partner `far` "
         "above them. Test place + far < world_size before you send or receive."),
    Hint("empty chunk", lambda s: s.stuck and s.op in ("scatter", "gather") and 0 < s.units < s.n,
         "Some chunks have no elements here. Does your code send and receive a message for each "
         "chunk, even for an empty one?"),
    Hint("root 0", lambda s: s.root and (s.stuck or s.kind in ("to itself", "None")),
         count_from_root),
    Hint("to itself", lambda s: s.kind == "to itself",
         lambda s: "A rank sends no message to itself" + (
             f". A partner has the place p + far or p - far, and the rank (place + {ROOT[s.op]}) % "
             "world_size." if s.op in TREES else ": copy the rank's own tensor.")),
    Hint("no view", lambda s: s.kind == "no view",
         "A transposed tensor has no view of a different shape, but x.contiguous() has. "
         "x.copy_(...) takes any tensor of the shape of x."),
    Hint("not its chunk", lambda s: s.mismatch == "message" and s.op == "scatter",
         "A message does not fit the tensor that receives the message. Rank r receives only "
         "chunks[r] of the root, into x."),
    Hint("lengths differ", lambda s: s.mismatch == "message",
         "The chunks differ in length. Receive into a tensor as long as the chunk that arrives."),
)
WAITING = (
    Hint("has returned", lambda s: s.stuck == "returned",
         "A rank has returned, but a second rank still waits for the first. Write down the sends "
         "and receives of each rank, and compare them."),
    Hint("circle", lambda s: s.stuck,
         "Draw an arrow from each rank to the rank for which it waits, and look for a circle."),
)
CHUNKS_READ = Hint("chunks changed", lambda s: s["chunks"] == "changed",
                   lambda s: "The list or its chunks have changed, but a reduce-scatter or a "
                   "scatter only reads them."
                   + " Add up in a new tensor." * (s.op == "reduce_scatter"))
X_READ = Hint("x changed", lambda s: s["x"] == "changed",
              "x has changed, but x may only be read. Write into the chunks.")
NOT_COPIED = Hint("not copied back",
                  lambda s: untouched(s) and (s.op in ("reduce", "gather") or
                                              s.laid == "transposed" or len(untouched(s)) == s.n
                                              or not s.wrong("bytes")),
                  not_copied)
NOTHING_CAME = Hint("nothing came", untouched,
                    lambda s: f"Nothing has come to {who(untouched(s))}: {written_by(s.op)} has "
                    "not changed there.")
ROOT_0 = Hint("root 0", lambda s: s.root and wrong_ranks(s), count_from_root)
STEPS = Hint("steps", lambda s: 0 < s.rounds < s.expect["rounds"],
             lambda s: f"You need {s.rounds} rounds, where a ring of {s.n} ranks needs "
             f"{s.expect['rounds']}: some data has not gone all the way around.")
OWN_CHUNK = Hint("own chunk", lambda s: wrong_chunks(s) == empty_chunks(s) == [first(s)],
                 "A rank's own x is one of the chunks. Copy x into chunks[rank], without a "
                 "message.")
SUMS = (
    Hint("mean", lambda s: same(s["x"][first(s)] * s.n, s.expect["x"][first(s)]),
         "The result is the mean, but the sum is asked for. The caller divides the sum if a mean "
         "is needed."),
    Hint("other chunks", lambda s: s.op == "reduce_scatter" and owner(s) is not None,
         lambda s: f"Rank {first(s)} has the sum of all chunks number {owner(s)}. Rank {first(s)} "
         f"owns chunk number {first(s)}.",
         "Begin with chunks[rank - 1]: the sum reaches its owner in the last step."),
    Hint("lacks", lambda s: 0 in times(s),
         lambda s: f"The sum on rank {first(s)} lacks the part of "
         f"{who(rank for rank, n in enumerate(times(s)) if n == 0)}.",
         "Pass on the current sum, which includes the numbers that you have received."),
    Hint("twice", lambda s: 2 in times(s),
         lambda s: f"In the sum on rank {first(s)}, the part of "
         f"{who(rank for rank, n in enumerate(times(s)) if n == 2)} counts twice."),
    Hint("no sum", wrong_ranks,
         lambda s: f"The sum on rank {first(s)} is not the sum of the ranks' tensors. Add each "
         "received tensor once."),
)
TRAFFIC = (
    Hint("no messages", lambda s: s.wrong("bytes") and s["bytes"] in (0, [0] * s.n), BY_MESSAGES),
    Hint("float32", lambda s: s.given.x[0].element_size() == 8 and s["bytes"] < s.expect["bytes"],
         lambda s: f"{other_bytes(s)} due. Send numbers in their own dtype: float32 loses "
         "digits."),
    Hint("bytes", lambda s: s.wrong("bytes"),
         lambda s: f"{other_bytes(s)} enough. {ENOUGH[s.op]}"),
    BY_COLLECTIVE,
)
RING = (
    Hint("backwards", lambda s: s.wrong("to") and
         {arrow[::-1] for arrow in s["to"].split()} == set(s.expect["to"].split()),
         "The messages go round in the wrong direction. Send to rank + 1, receive from rank - 1."),
    Hint("no ring", lambda s: s.wrong("to"), no_ring),
    Hint("rounds", lambda s: s.wrong("rounds"),
         lambda s: f"You need {s.rounds} rounds, where a ring needs {s.expect['rounds']}: a rank "
         f"that waits in send before it receives blocks the next rank. {AT_ONCE}"),
)
COLLECTIVES = {
    "broadcast": (
        *RAISED, *WAITING,
        NOT_COPIED, NOTHING_CAME,
        Hint("other places", lambda s: wrong_ranks(s) and same(*(
            x[first(s)].flatten().sort().values for x in (s["x"], s.expect["x"]))),
             lambda s: f"x of rank {first(s)} has the right numbers in wrong places. x.copy_(...) "
             "takes a tensor of the shape of x, for all strides."),
        ROOT_0,
        *TRAFFIC,
        Hint("rounds", lambda s: s.wrong("rounds"),
             lambda s: f"You need {s.rounds} rounds, where a binomial tree needs "
             f"{s.expect['rounds']}. In each round, every rank that has x sends x to a rank "
             "without x."),
    ),
    "reduce": (
        *RAISED, *WAITING,
        NOT_COPIED,
        Hint("sum elsewhere", lambda s: first(s) != s.root
             and same(s["x"][first(s)], s.expect["x"][s.root]),
             lambda s: f"Rank {first(s)} has the sum in its x, but only rank dst, here rank "
             f"{s.root}, gets the sum."),
        Hint("x changed", lambda s: first(s) != s.root,
             lambda s: f"x of rank {first(s)} has changed. Only the x of rank dst may change: add "
             "into a new tensor, total = total + received, or into a clone."),
        ROOT_0, *SUMS,
        *TRAFFIC,
        Hint("rounds", lambda s: s.wrong("rounds"),
             lambda s: f"You need {s.rounds} rounds, where a binomial tree needs "
             f"{s.expect['rounds']}. Let several ranks add: in each round, half of the remaining "
             "ranks pass on a sum."),
    ),
    "scatter": (
        *RAISED, *WAITING,
        CHUNKS_READ,
        Hint("root's chunk", lambda s: untouched(s) == [s.root],
             "The root gets a chunk too. Copy the root's own chunk with x.copy_(...), without a "
             "message."),
        NOT_COPIED, NOTHING_CAME,
        Hint("wrong chunk", wrong_ranks,
             lambda s: f"Rank {first(s)} has the wrong chunk: rank r gets chunks[r], for any "
             "root."),
        *TRAFFIC,
    ),
    "gather": (
        *RAISED, *WAITING,
        X_READ,
        NOT_COPIED, OWN_CHUNK,
        Hint("own x elsewhere",
             lambda s: s.root in empty_chunks(s) and own_elsewhere(s) is not None,
             lambda s: f"The x of rank {s.root} itself is in chunks[{own_elsewhere(s)}], and "
             f"chunks[{s.root}] has not changed.",
             "A loop with the variable `rank` overwrites your own rank number."),
        Hint("wrong chunk", wrong_ranks,
             lambda s: f"chunks[{wrong_chunks(s)[0]}] {holds(s, wrong_chunks(s)[0])}. The right "
             f"content is the x of rank {wrong_chunks(s)[0]}."),
        *TRAFFIC,
    ),
    "all_gather": (
        *RAISED, ALL_SEND, *WAITING,
        X_READ,
        Hint("own x first", lambda s: len(untouched(s)) == s.n,
             "At the end, all chunks are as before the call. First copy x into chunks[rank], which "
             "is the first chunk to go around, and then receive only into the other chunks. "
             "chunks[rank] = x would only put a new tensor into the list."),
        OWN_CHUNK,
        Hint("x is a chunk", lambda s: s.laid == "in place" and first(s) in wrong_chunks(s),
             "Here x is one of the chunks, and your answer has overwritten x. Write into "
             "chunks[rank] only after x is there."),
        Hint("nothing in a chunk", lambda s: wrong_chunks(s) == empty_chunks(s),
             lambda s: f"Chunk {wrong_chunks(s)[0]} of rank {first(s)} has not changed. A ring "
             f"takes n - 1 = {s.n - 1} steps, and each step brings the chunk of a further rank "
             "into the given tensor. Is x in chunks[rank] before the first send? chunks[r] = ... "
             "would only put a new tensor into the list."),
        Hint("wrong chunk", wrong_ranks,
             lambda s: f"On rank {first(s)} chunk {wrong_chunks(s)[0]} "
             f"{holds(s, wrong_chunks(s)[0])}. Which rank's chunk arrives in each step?",
             "In step k, a rank passes on the chunk that it received last, number (rank - k) % "
             "world_size."),
        *TRAFFIC, *RING,
    ),
    "reduce_scatter": (
        *RAISED, ALL_SEND, *WAITING,
        CHUNKS_READ, NOT_COPIED, NOTHING_CAME, STEPS, *SUMS,
        *TRAFFIC, *RING,
    ),
}
BARRIER = (
    *MESSAGES,
    Hint("one rank", lambda s: s.n == 1 and no_partner(s),
         "With one rank there is no rank to wait for."),
    ALL_SEND,
    Hint("power of two", lambda s: no_power_of_two(s) and no_partner(s),
         lambda s: f"{s.n} is not a power of two. Count the {s.n} ranks in a circle: send to (rank "
         "+ far) % world_size, receive from (rank - far) % world_size."),
    Hint("other peer", no_partner,
         "In each round, does the rank from which you receive also send a message to you?"),
    Hint("no messages", lambda s: s["rounds"] == 0, BY_MESSAGES),
    Hint("any message", lambda s: LUCK in str(s["left early"]),
         lambda s: f"Only by luck did no rank leave early: {s['left early']}. A rank may take a "
         "message of a later round for a message of this round. Name the rank from which you "
         "receive."),
    Hint("left early", lambda s: s.wrong("left early"),
         lambda s: f"A rank left early: {s['left early']}. A rank may return only after it has "
         "heard of every rank, directly or through messages from further ranks, and has waited "
         "for its receives."),
    BY_COLLECTIVE,
    Hint("elements", lambda s: s.wrong("elements"),
         lambda s: f"A message has {s.elements or 'no'} elements. Send one element: only the "
         "arrival counts, and a longer message takes more time."),
    Hint("rounds", lambda s: s.wrong("rounds"),
         lambda s: f"You need {s.rounds} rounds with {s.n} ranks, where ⌈log2 n⌉ is "
         f"{s.expect['rounds']}. Let every rank send in each round, over twice the distance of the "
         "previous round, and start the send with isend."),
)
# fmt: on
