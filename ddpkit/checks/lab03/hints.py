"""What to say of wrong all-reduces and of wrong predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import isclose
from typing import Any

from ddpkit.checks.lab03.rings import WRONG_RINGS, Ring, around
from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.counts import noun
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.rank.group.methods import COLLECTIVES


def collectives(s: Seen) -> list[str]:
    """The collectives of torch.distributed that the answer called."""
    return [name for name in s.to.split() if name in COLLECTIVES.values()]


def worker(names: list[str]) -> str:
    """The first of these collectives that moves data, which a barrier does not."""
    return next(name for name in names if name != "barrier")


def wrong_sum(s: Seen) -> str:
    """The name of the first sum that is wrong."""
    names: Iterable[str] = s.inputs
    return next(name for name in names if s.wrong(name))


def got(s: Seen) -> Any:
    return s[wrong_sum(s)]


def due(s: Seen) -> Any:
    return s.expect[wrong_sum(s)]


def times(s: Seen) -> Any:
    """How often each rank's part is in each element, [rank, element]: it is read from the digits.

    Raises: the wrong sum is no tensor of the right size, or has fractions.
    """
    import torch

    if not_whole(s):
        raise ValueError("a sum of whole numbers is whole")

    parts = torch.stack([x.reshape(-1) for x in s.inputs[wrong_sum(s)]]).double()
    ones = torch.tensor([10.0**rank for rank in range(s.n)]).double().view(-1, 1)
    return got(s).reshape(-1).double().div(ones, rounding_mode="floor") % 10 * ones / parts


def not_whole(s: Seen) -> bool:
    """True if the wrong sum has fractions; all inputs are whole numbers."""
    return not same(got(s), got(s).floor())


def of_two_calls(s: Seen) -> bool:
    """Whether the wrong sum, as it is after all calls, has what another call of its shape gave."""
    name = wrong_sum(s)
    others = [each for each in s.inputs if each != name and s.expect[each].shape == due(s).shape]
    return any(
        same(got(s), total)
        for each in others
        for total in (s.expect[each], s.expect[each] + due(s), s[each])
    )


def whole(s: Seen) -> int:
    """How many elements n chunks of equal length have."""
    return int(due(s).numel() // s.n * s.n)


def end_left_out(s: Seen) -> bool:
    begin, end = times(s)[:, : whole(s)], times(s)[:, whole(s) :]
    return bool((begin == 1).all()) and bool((end == 0).any())


def tell(what: str, is_wrong: Callable[[Any], Any], s: Seen) -> str:
    """What is wrong in the first element in which somebody's part is not there once.

    Raises IndexError: there is none.
    """
    wrong = is_wrong(times(s))
    element = int(wrong.any(dim=0).nonzero()[0])
    whose = who(wrong[:, element].nonzero().reshape(-1).tolist())
    return f"On rank {s.on_rank}, element {element} {what.format(whose)}."


def goes_round(ring: Ring, s: Seen) -> bool:
    """True if this mistake gives the wrong sum, in the right number of rounds."""
    if s.way.name != "ring" or s.wrong(*({"bytes", "messages"} & s.expect.keys())):
        return False
    sums = around(ring, [x.reshape(-1) for x in s.inputs[wrong_sum(s)]])
    return same(got(s).reshape(-1), sums[s.on_rank])


def hidden_master(s: Seen) -> bool:
    """Whether one rank sent as much as all others, and more than it should."""
    first, *others = s.bytes
    return bool(first == sum(others) and s.expect["bytes"][0] < first)


def by_size(counts: list[int]) -> str:
    """ "2, 1 and 1"."""
    *most, least = map(str, counts)
    return f"{', '.join(most)} and {least}"


def bytes_of_a_rank(s: Seen) -> str:
    """A sentence: "Rank 0 sent 96 bytes to ranks 1, 2 and 3; a ring sends 48 to rank 1"."""
    right = s.expect["bytes"]
    rank = next(rank for rank in range(s.n) if s.bytes[rank] != right[rank])
    to, due_to = (peers(rank, each) for each in (s.to, s.expect["to"]))
    return f"Rank {rank} sent {s.bytes[rank]} bytes{to}; {s.way.a} sends {right[rank]}{due_to}."


def peers(rank: int, to: str) -> str:
    """ " to ranks 1 and 2", or "" if the rank sends nothing, or it is not settled to whom."""
    found = [int(pair.partition("→")[2]) for pair in to.split() if pair.startswith(f"{rank}→")]
    return f" to {who(found)}" if found else ""


def too_many_rounds(s: Seen) -> bool:
    """Whether a ring goes on when it is done: in each round more, all chunks are sent once."""
    most = max(s.expect["messages"])
    rounds, nbytes, right = s.messages[0], total(s.bytes), total(s.expect["bytes"])
    alike = all(each == rounds for each in s.messages)
    return s.way.name == "ring" and alike and rounds > most and nbytes * most == right * rounds


def total(counts: int | list[int]) -> int:
    return counts if isinstance(counts, int) else sum(counts)


WITHOUT_ROUNDS = ("all_to_all", "master_worker")

# fmt: off
SUM = (
    *MESSAGES,
    Hint("not all call it", lambda s: s.stuck and s.way.name == "tree",
         "A rank waits for one that does something else. If you call reduce and broadcast: every "
         "rank has to call both, in the same order and with the same root, not rank 0 alone.",
         "If you send and receive by hand: draw an arrow for each message, from the rank that "
         "sends it to the one that receives it, and look which end is missing."),
    Hint("has returned", lambda s: s.stuck == "returned", lambda s:
         "A rank has returned, and another still waits for it: go through the rounds on paper "
         f"with {s.n} ranks, and count who sends and who receives."),
    Hint("all send", lambda s: s.stuck == "send",
         "All wait in send. Start it with dist.isend, then receive, then wait for it."),
    Hint("all receive", lambda s: s.stuck == "receive" and s.way.name in WITHOUT_ROUNDS,
         "All wait for a message, and none is under way: start yours with dist.isend before you "
         "receive, or let one rank send first."),
    Hint("circle", lambda s: s.stuck,
         "In each round, is the rank that I receive from the one that sends to me? Draw an arrow "
         "for each message."),
    Hint("not contiguous", lambda s: s.kind == "not contiguous",
         "A message must lie in one piece: send x.contiguous(), and make room like that."),
    Hint("lengths differ", lambda s: s.mismatch == "message",
         "A message and the room for it differ in length. n need not divide the length, and "
         "some chunks may be empty: take both from the same torch.tensor_split."),
    Hint("fewer than n pieces", lambda s: s.raised == "IndexError",
         "A tensor may be shorter than n: torch.chunk then gives fewer than n pieces."),
    Hint("one rank", lambda s: s.error and s.n == 1,
         "With one rank there is nobody to talk to: the sum is x, in a tensor of its own."),
    Hint("no view", lambda s: s.kind == "no view",
         "x may lie in memory in another order, and a clone of it too: then it has no view(-1). "
         "x.clone(memory_format=torch.contiguous_format) has."),
    Hint("to itself", lambda s: s.kind == "to itself",
         "A rank sends nothing to itself, and adds its own without a message."),
    Hint("both ways", lambda s: s.kind == "no such rank" and s.way.name == "butterfly" and s.n == 4,
         "A rank was named that there is not. In an exchange each of two ranks names the other: "
         "with 4 ranks, who is whose partner at distance 1, and at distance 2?",
         "Partners at distance 1, 2 or 4 differ in one binary digit: rank ^ distance."),
    Hint("no such rank", lambda s: s.kind == "no such rank", lambda s:
         f"A rank was named that there is not: with {s.n} ranks there are ranks 0 to {s.n - 1}.",
         lambda s: "Not every rank has a partner in every round: some come in before, and get the "
         "sum afterwards." if s.way.name == "butterfly"
         else "In a circle, after the last rank comes rank 0: % world_size."),
    Hint("works in place", lambda s: s.kind == "None" and s.way.name == "tree",
         "Something here is None. reduce and broadcast work in place and return None: do not "
         "assign what they return."),
    Hint("no cast", lambda s: s.kind == "no cast",
         "x may hold integers. Nothing has to be divided here."),
    Hint("barrier", lambda s: collectives(s) == ["barrier"],
         "No barrier is needed: what a rank receives is there when its recv or wait() returns."),
    Hint("collective", collectives, lambda s:
         f"Use isend, send and recv only: {worker(collectives(s))} would do the work for you."),
    Hint("x changed", lambda s: s.x == "changed",
         "x has changed: add into a copy of it, x.clone()."),
    Hint("x returned", lambda s: s.x == "returned",
         "What you return lies in the memory of x: return a tensor of its own, a clone."),
    # So many bytes as is right, but to others: whatever the sum is, this comes first.
    Hint("other peers", lambda s: not s.wrong("bytes") and s.wrong("to"), lambda s:
         f"The messages go {s.to}; in {s.way.a} they go {s.expect['to']}."),
    Hint("sender's number", lambda s: type(got(s)) is int and got(s) in range(s.n),
         "You return a number, and not the sum. recv writes into the tensor that it is given, and "
         "returns the number of the sender: do not assign it."),
    Hint("no tensor", lambda s: not hasattr(got(s), "new_empty"), lambda s:
         f"You return a {type(got(s)).__name__}; the sum is a tensor."),
    Hint("dtype", lambda s: getattr(got(s), "dtype", None) != due(s).dtype, lambda s:
         f"x is of {due(s).dtype}, and so is the sum; you return {got(s).dtype}."),
    Hint("shape", lambda s: got(s).shape != due(s).shape, lambda s:
         f"The sum has the shape of x, {list(due(s).shape)}; you return {list(got(s).shape)}."),
    Hint("of two calls", of_two_calls,
         "Two calls with the same shape have got into each other: here a sum has what another call "
         "gave. Nothing may be kept from one call to the next: make a new tensor in each."),
    Hint("mean", lambda s: same(got(s) * s.n, due(s)),
         "That is the mean. An all-reduce gives the sum; who wants a mean divides it."),
    Hint("end left out", end_left_out, lambda s:
         f"The end of x is left out, from element {whole(s)} on: n need not divide the length."),
    *(Hint(each.name, partial(goes_round, each), each.says, each.more) for each in WRONG_RINGS),
    Hint("lacks", say=partial(tell, "lacks what {} gave", lambda t: t == 0),
         more=lambda s: s.way.lacks),
    Hint("twice", say=partial(tell, "has what {} gave more than once", lambda t: t > 1),
         more=lambda s: s.way.twice),
    Hint("not whole", not_whole, lambda s:
         f"On rank {s.on_rank}, numbers are not whole, but all numbers of x are whole: add, "
         "and do not divide."),
    Hint("bits", lambda s: s.wrong("bits"),
         "Ranks that add in different orders differ in the last bits. Let all add in the same "
         "order, that of the ranks."),
    Hint("too many rounds", too_many_rounds, lambda s:
         f"The chunks are right, but each rank sends {s.messages[0]} of them, one in each round: "
         f"with {s.n} ranks {max(s.expect['messages'])} rounds are enough, 2(n - 1).",
         "Each half takes n - 1 rounds: the own chunk is there already."),
    Hint("bytes of all", lambda s: s.wrong("bytes") and isinstance(s.bytes, int), lambda s:
         f"With {s.n} ranks all together sent {s.bytes} bytes; {s.way.a} sends "
         f"{s.expect['bytes']}. {s.way.much}"),
    Hint("hidden master", hidden_master, lambda s:
         f"One rank is a hidden master: it alone sent {s.bytes[0]} bytes; in {s.way.a}, "
         f"{s.expect['bytes'][0]}. {s.way.much}"),
    Hint("bytes", lambda s: s.wrong("bytes"), lambda s: f"{bytes_of_a_rank(s)} {s.way.much}"),
    Hint("uneven chunks", lambda s: s["most by a rank"] > s.expect["most by a rank"], lambda s:
         f"With {s.n} ranks one of them sent {s['most by a rank']} bytes, where "
         f"{s.expect['most by a rank']} will do. {s.way.much}",
         "The chunks have different lengths: cut the elements, x.view(-1), not the rows of x."),
    Hint("other shares", lambda s: s.wrong("messages") and max(s.messages) <=
         max(s.expect["messages"]), lambda s:
         f"With {s.n} ranks they send {by_size(s.messages)} messages; in {s.way.a}, "
         f"{by_size(s.expect['messages'])}.", lambda s: s.way.much),
    Hint("small messages", lambda s: s.wrong("messages"), lambda s:
         f"The right bytes, but in {max(s.messages)} messages from a rank, where {s.way.a} has "
         f"{max(s.expect['messages'])}. Each message costs a latency."),
    Hint("in a row", lambda s: s.latencies > s.expect["latencies"], lambda s:
         f"{s.latencies} messages go in a row, where {s.way.a} has {s.expect['latencies']}.",
         lambda s: s.way.row),
    Hint("at once", lambda s: s.latencies < s.expect["latencies"], lambda s:
         f"Only {s.latencies} in a row, where {s.way.a} has {s.expect['latencies']} rounds: too "
         "much is under way at once. A round begins when the one before it is over."),
)
# fmt: on


def miscounted(s: Seen) -> tuple[str, str, float, float]:
    """The first price that is wrong, with how many ranks, and how much of it was counted and due.

    Raises StopIteration: there is none.
    """
    return next(
        (price, ranks, s[price][ranks], right)
        for price in ("latencies", "tensors")
        for ranks, right in s.expect[price].items()
        if s[price][ranks] != right
    )


def times_too_much(factor: Callable[[Seen], float], s: Seen) -> bool:
    """Whether the count that is wrong is so many times the right one."""
    _, _, counted, right = miscounted(s)
    return right != 0 and isclose(counted, factor(s) * right, rel_tol=1e-3)


def only_tensors(factor: Callable[[Seen], float], s: Seen) -> bool:
    """Whether latencies are right, and tensors so many times what they should be."""
    return miscounted(s)[0] == "tensors" and times_too_much(factor, s)


def correct(algorithm: str, s: Seen) -> str | None:
    """The count that is wrong; None if another algorithm is asked for."""
    price, ranks, counted, right = miscounted(s)
    told = f"{ranks.capitalize()} you count {counted:g} {noun(price, counted)}, not {right:g}."
    return told if s.algorithm == algorithm else None


# fmt: off
PRICE = (
    Hint("one rank", lambda s: miscounted(s)[1] == "with 1 rank",
         "One rank alone sends nothing, and needs no time."),
    Hint("milliseconds", partial(times_too_much, lambda s: 1000),
         "That is in milliseconds: give seconds."),
    Hint("bits", partial(only_tensors, lambda s: 8),
         "The bytes take 8 times too long: the bandwidth is in bytes per second, not in bits."),
    Hint("times bandwidth", partial(only_tensors, lambda s: s.bandwidth**2),
         "Bytes are multiplied by the bandwidth: a link of more bytes per second takes less time.",
         "t is nbytes / bandwidth."),
    *(Hint(algorithm, say=partial(correct, algorithm), more=sentence) for algorithm, sentence in (
        ("all_to_all",
         "All messages are under way at once and share a latency; a link carries n - 1."),
        ("round_robin", "n - 1 rounds, in each a latency and a tensor."),
        ("master_worker",
         "In, and out again: 2 latencies, and n - 1 tensors each way on one link."),
        ("tree",
         "Up and down take ceil(log2 n) rounds each: (n - 1).bit_length() counts them."),
        ("butterfly",
         "log2 n rounds; where n is no power of two, floor(log2 n) and two more."),
        ("ring",
         "2(n - 1) rounds, in each a latency and a chunk, which is 1/n of a tensor."),
    )),
    Hint("not their sum", say=
         "Both prices are right, but not their sum: latencies * latency + tensors * S / "
         "bandwidth."),
)
# fmt: on
