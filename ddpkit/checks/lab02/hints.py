"""Hints for wrong collectives and barriers: tables, and the longer ones of their sentences."""

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

AT_ONCE = "Start the send with dist.isend, then receive, then wait for it."
ENOUGH = {  # bytes
    "broadcast": "Each rank but src receives x once.",
    "reduce": "Each rank but dst sends one sum, once.",
    "scatter": "The root sends each rank its chunk and nothing else, the others nothing.",
    "gather": "Each rank sends its x to dst, once, and dst sends nothing.",
    "all_gather": "Pass on one chunk in each of n - 1 steps.",
    "reduce_scatter": "Pass on the sum of one chunk in each of n - 1 steps.",
}


def count_from_root(s: Seen) -> str:
    end = ROOT[s.op]
    place = f": its place is (rank - {end}) % world_size" if s.op in TREES else ""
    return (
        f"Here the root is rank {s.root}, of {s.n} ranks. Does the answer count ranks from "
        f"{end}{place}? And does the answer use world_size?"
    )


def not_copied(s: Seen) -> str:
    out = written_by(s.op)
    return (
        f"{out} of {who(untouched(s))} is as it was. What was received must get into the tensor "
        f"given: {out}{'[r]' if out == 'chunks' else ''}.copy_(...). A name or a list that is "
        "given another tensor leaves the old one as it was."
    )


def other_bytes(s: Seen) -> str:
    """Bytes sent and bytes expected: of the first rank that differs, or of all ranks together."""
    got, expected = s["bytes"], s.expect["bytes"]
    if isinstance(expected, int):
        return f"All ranks together sent {got} bytes, where {expected} are"
    rank = next(rank for rank in range(s.n) if got[rank] != expected[rank])
    return f"Rank {rank} sent {got[rank]} bytes, where {expected[rank]} are"


def own_elsewhere(s: Seen) -> int | None:
    """The chunk in which the root's own x lies, and not in its own; None if there is none."""
    found = (at for at in wrong_chunks(s) if given_by(s, s["chunks"][s.root][at]) == s.root)
    return next(found, None)


def no_ring(s: Seen) -> str:
    peers = receivers(s)
    rank = next(rank for rank in range(s.n) if peers[rank] != [(rank + 1) % s.n])
    return (
        f"Rank {rank} sends to {who(peers[rank])}. In a ring a rank sends to one other only, "
        "rank + 1, and hands on what it gets from rank - 1."
    )


# fmt: off
ALL_SEND = Hint("all send", lambda s: s.stuck == "send",
                f"All ranks wait in send, for nobody receives yet. {AT_ONCE}")
BY_COLLECTIVE = Hint("collective", lambda s: isinstance(s["rounds"], str),
                     "Use send, recv, isend and irecv alone: a collective beside them costs rounds "
                     "too.")
BY_MESSAGES = "No message was sent. Build it from send, recv, isend and irecv alone."
RAISED = (
    *MESSAGES,
    Hint("not contiguous", lambda s: s.kind == "not contiguous",
         "A message must lie in one piece: send .contiguous() of it, and copy_ back."),
    Hint("one rank", lambda s: s.n == 1 and no_partner(s),
         "With one rank there is nobody to send to or receive from."),
    Hint("no such rank", lambda s: s.kind == "no such rank", lambda s:
         f"A rank was named that there is not: with {s.n} ranks there are ranks 0 to {s.n - 1}.",
         "Counted from the root, or in a ring, after the last rank comes rank 0: % world_size."),
    Hint("power of two", lambda s: s.op in TREES and no_power_of_two(s) and no_partner(s),
         lambda s: f"With {s.n} ranks, no power of two, some have nobody `far` above them: ask "
         "whether place + far < world_size before you send or receive."),
    Hint("root 0", lambda s: s.root and (s.stuck or s.kind in ("to itself", "None")),
         count_from_root),
    Hint("to itself", lambda s: s.kind == "to itself",
         "A rank sends nothing to itself: what is its own it copies, without a message."),
    Hint("no view", lambda s: s.kind == "no view",
         "A transposed tensor has no view of another shape: x.contiguous() has, and x.copy_(...) "
         "takes any tensor of the shape of x."),
    Hint("not its chunk", lambda s: s.mismatch == "message" and s.op == "scatter",
         "A message does not fit the tensor that it is received into: rank r receives chunks[r] of "
         "the root, alone, into x."),
    Hint("lengths differ", lambda s: s.mismatch == "message",
         "The chunks differ in length: receive into a tensor as long as the chunk that comes."),
)
WAITING = (
    Hint("has returned", lambda s: s.stuck == "returned",
         "A rank has returned while another waits for it: for each rank write down what it sends "
         "and receives, and compare."),
    Hint("circle", lambda s: s.stuck,
         "Draw an arrow from each rank to the one that it waits for, and look for the circle."),
)
CHUNKS_READ = Hint("chunks changed", lambda s: s["chunks"] == "changed",
                   "The chunks have changed: they are to be read only. Add up in a tensor of your "
                   "own.")
X_READ = Hint("x changed", lambda s: s["x"] == "changed",
              "x has changed: it is to be read only. Write into the chunks.")
NOT_COPIED = Hint("not copied back",
                  lambda s: untouched(s) and (s.op in ("reduce", "gather") or
                                              s.laid == "transposed" or len(untouched(s)) == s.n),
                  not_copied)
NOTHING_CAME = Hint("nothing came", untouched,
                    lambda s: f"Nothing has come to {who(untouched(s))}: {written_by(s.op)} there "
                    "is as it was before the call.")
ROOT_0 = Hint("root 0", lambda s: s.root and wrong_ranks(s), count_from_root)
STEPS = Hint("steps", lambda s: 0 < s.rounds < s.expect["rounds"],
             lambda s: f"{s.rounds} rounds, where a ring of {s.n} ranks takes "
             f"{s.expect['rounds']}: not everything has come round.")
OWN_CHUNK = Hint("own chunk", lambda s: wrong_chunks(s) == empty_chunks(s) == [first(s)],
                 "A rank's own x is one of the chunks: copy it into chunks[rank], without a "
                 "message.")
SUMS = (
    Hint("mean", lambda s: same(s["x"][first(s)] * s.n, s.expect["x"][first(s)]),
         "That is the mean. The sum is wanted: who wants a mean divides it."),
    Hint("other chunks", lambda s: s.op == "reduce_scatter" and owner(s) is not None,
         lambda s: f"Rank {first(s)} has a sum of chunks number {owner(s)}; chunks number "
         f"{first(s)} are its own.",
         "Begin with chunks[rank - 1], whose owner is the last to get it."),
    Hint("lacks", lambda s: 0 in times(s),
         lambda s: f"The sum on rank {first(s)} lacks what "
         f"{who(rank for rank, n in enumerate(times(s)) if n == 0)} gave.",
         "Pass on the sum so far, with what you have received in it."),
    Hint("twice", lambda s: 2 in times(s),
         lambda s: f"In the sum on rank {first(s)} the part of "
         f"{who(rank for rank, n in enumerate(times(s)) if n == 2)} counts twice."),
    Hint("no sum", wrong_ranks,
         lambda s: f"The sum on rank {first(s)} is not that of the ranks' tensors. Add "
         "each that comes, once."),
)
TRAFFIC = (
    Hint("no messages", lambda s: s.wrong("bytes") and s["bytes"] in (0, [0] * s.n), BY_MESSAGES),
    Hint("float32", lambda s: s.given.x[0].element_size() == 8 and s["bytes"] < s.expect["bytes"],
         lambda s: f"{other_bytes(s)} due. Send numbers in the dtype they have: as float32 they "
         "lose digits."),
    Hint("bytes", lambda s: s.wrong("bytes"),
         lambda s: f"{other_bytes(s)} enough. {ENOUGH[s.op]}"),
    BY_COLLECTIVE,
)
RING = (
    Hint("backwards", lambda s: s.wrong("to") and
         {arrow[::-1] for arrow in s["to"].split()} == set(s.expect["to"].split()),
         "It goes the wrong way round: send to rank + 1, receive from rank - 1."),
    Hint("no ring", lambda s: s.wrong("to"), no_ring),
    Hint("rounds", lambda s: s.wrong("rounds"),
         lambda s: f"{s.rounds} rounds, where a ring takes {s.expect['rounds']}: a rank that waits "
         f"in send before it receives holds up the next. {AT_ONCE}"),
)
COLLECTIVES = {
    "broadcast": (
        *RAISED, *WAITING,
        NOT_COPIED, NOTHING_CAME, ROOT_0,
        *TRAFFIC,
        Hint("rounds", lambda s: s.wrong("rounds"),
             lambda s: f"{s.rounds} rounds, where a binomial tree takes {s.expect['rounds']}: in "
             "each round, every rank that has x sends it to a rank that has not."),
    ),
    "reduce": (
        *RAISED, *WAITING,
        NOT_COPIED,
        Hint("x changed", lambda s: first(s) != s.root,
             lambda s: f"x of rank {first(s)} has changed. Only rank dst's may: add into "
             "a new tensor, total = total + received, or into a clone."),
        ROOT_0, *SUMS,
        *TRAFFIC,
        Hint("rounds", lambda s: s.wrong("rounds"),
             lambda s: f"{s.rounds} rounds, where a binomial tree takes {s.expect['rounds']}. Let "
             "others add too: in each round half of those left hand over a sum."),
    ),
    "scatter": (
        *RAISED, *WAITING,
        CHUNKS_READ,
        Hint("root's chunk", lambda s: untouched(s) == [s.root],
             "The root gets a chunk too: x.copy_(...) of its own, without a message."),
        NOT_COPIED, NOTHING_CAME,
        Hint("wrong chunk", wrong_ranks,
             lambda s: f"Rank {first(s)} has the wrong chunk: rank r gets chunks[r], "
             "whoever is the root."),
        *TRAFFIC,
    ),
    "gather": (
        *RAISED, *WAITING,
        X_READ,
        NOT_COPIED, OWN_CHUNK,
        Hint("own x elsewhere",
             lambda s: s.root in empty_chunks(s) and own_elsewhere(s) is not None,
             lambda s: f"The x of rank {s.root} itself lies in chunks[{own_elsewhere(s)}], and "
             f"chunks[{s.root}] is as it was.",
             "A loop over `rank` gives that name another value."),
        Hint("wrong chunk", wrong_ranks,
             lambda s: f"chunks[{wrong_chunks(s)[0]}] {holds(s, wrong_chunks(s)[0])}; what rank "
             f"{wrong_chunks(s)[0]} gave belongs there."),
        *TRAFFIC,
    ),
    "all_gather": (
        *RAISED, ALL_SEND, *WAITING,
        X_READ,
        Hint("own x first", lambda s: len(untouched(s)) == s.n,
             "All chunks are as they were. First copy x into chunks[rank], for that is what goes "
             "around; chunks[rank] = x would only put another tensor into the list."),
        OWN_CHUNK,
        Hint("x is a chunk", lambda s: s.laid == "in place" and first(s) in wrong_chunks(s),
             "Here x is one of the chunks, and so it was lost: nothing may be written into "
             "chunks[rank] before x is there."),
        Hint("nothing in a chunk", lambda s: wrong_chunks(s) == empty_chunks(s),
             lambda s: f"Nothing has come into chunk {wrong_chunks(s)[0]} of rank "
             f"{first(s)}. A ring takes n - 1 = {s.n - 1} steps, and each brings another "
             "rank's chunk, into the tensor that was given: chunks[r] = ... puts another one into "
             "the list."),
        Hint("wrong chunk", wrong_ranks,
             lambda s: f"On rank {first(s)} chunk {wrong_chunks(s)[0]} "
             f"{holds(s, wrong_chunks(s)[0])}. Whose number has the chunk that comes in a step?",
             "In step k a rank passes on what it got last, number (rank - k) % world_size."),
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
         "With one rank there is nobody to wait for."),
    ALL_SEND,
    Hint("power of two", lambda s: no_power_of_two(s) and no_partner(s),
         lambda s: f"With {s.n} ranks, no power of two, count in a circle: send to (rank + far) % "
         "world_size, receive from (rank - far) % world_size."),
    Hint("other peer", no_partner,
         "In each round, is the rank that you receive from the one that sends to you?"),
    Hint("no messages", lambda s: s["rounds"] == 0, BY_MESSAGES),
    Hint("any message", lambda s: LUCK in str(s["left early"]),
         lambda s: f"It was luck that nobody left early: {s['left early']}. Then a message of a "
         "later round is taken for one of this round. Say from whom you receive."),
    Hint("left early", lambda s: s.wrong("left early"),
         lambda s: f"Somebody left early: {s['left early']}. A rank may go when it has heard of "
         "every other, by a message or through others, and has waited for the messages to come "
         "in."),
    BY_COLLECTIVE,
    Hint("elements", lambda s: s.wrong("elements"),
         lambda s: f"A message has {s.elements or 'no'} elements. Make it one: what counts is that "
         "it comes, and a longer one takes more time."),
    Hint("rounds", lambda s: s.wrong("rounds"),
         lambda s: f"{s.rounds} rounds with {s.n} ranks, where ⌈log2 n⌉ is {s.expect['rounds']}: "
         "let every rank send in each round, twice as far as in the one before, and start it with "
         "isend."),
)
# fmt: on
