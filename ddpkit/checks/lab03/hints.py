"""Sentences about wrong all-reduces and wrong predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import isclose
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab03.rings import WRONG_RINGS, Ring, around
from ddpkit.checks.shared.messages import MESSAGES
from ddpkit.exercises.compare import same
from ddpkit.exercises.counts import noun
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.rank.group.methods import COLLECTIVES
from ddpkit.text import count

if TYPE_CHECKING:
    from torch import Tensor


def collectives(s: Seen) -> list[str]:
    """Return the collectives of torch.distributed that the answer called."""
    return [name for name in s.to.split() if name in COLLECTIVES.values()]


def worker(names: list[str]) -> str:
    """Return the first collective in `names` that moves data; a barrier moves none."""
    return next(name for name in names if name != "barrier")


def wrong_sum(s: Seen) -> str:
    """Return the name of the first input with a wrong sum."""
    names: Iterable[str] = s.inputs
    return next(name for name in names if s.wrong(name))


def got(s: Seen) -> Any:
    return s[wrong_sum(s)]


def due(s: Seen) -> Any:
    return s.expect[wrong_sum(s)]


def times(s: Seen) -> Any:
    """Return the number of times that each rank's part is in each element: [rank, element].

    The function reads the first wrong sum. The counts come from the digits of the sum
    (`sums.inputs_for`). Raises an error if the wrong sum is not a tensor of the right size, or has
    fractions.
    """
    import torch

    if not_whole(s):
        raise ValueError("a sum of whole numbers is whole")

    parts = torch.stack([x.reshape(-1) for x in s.inputs[wrong_sum(s)]]).double()
    ones = torch.tensor([10.0**rank for rank in range(s.n)]).double().view(-1, 1)
    return got(s).reshape(-1).double().div(ones, rounding_mode="floor") % 10 * ones / parts


def not_whole(s: Seen) -> bool:
    """True if the wrong sum has fractions, although all inputs are whole numbers."""
    return not same(got(s), got(s).floor())


def of_two_calls(s: Seen) -> bool:
    """True if the wrong sum contains the result of another call: the calls share one tensor."""
    name = wrong_sum(s)
    others = [each for each in s.inputs if each != name and s.expect[each].shape == due(s).shape]
    return any(
        same(got(s), total)
        for each in others
        for total in (s.expect[each], s.expect[each] + due(s), s[each])
    )


def whole(s: Seen) -> int:
    """Return the number of elements in n chunks of equal length, without the remainder."""
    return int(due(s).numel() // s.n * s.n)


def end_left_out(s: Seen) -> bool:
    begin, end = times(s)[:, : whole(s)], times(s)[:, whole(s) :]
    return bool((begin == 1).all()) and bool((end == 0).any())


def tell(what: str, is_wrong: Callable[[Tensor], Tensor], s: Seen) -> str:
    """Return a sentence about the first element in which a rank's part is missing or repeated.

    Raises IndexError if there is no such element.
    """
    wrong = is_wrong(times(s))
    element = int(wrong.any(dim=0).nonzero()[0])
    whose = who(wrong[:, element].nonzero().reshape(-1).tolist())
    return f"On rank {s.on_rank}, element {element} {what.format(whose)}."


def goes_round(ring: Ring, s: Seen) -> bool:
    """True if a ring with this mistake explains the wrong sum, and bytes and messages are right."""
    if s.way.name != "ring" or s.wrong(*({"bytes", "messages"} & s.expect.keys())):
        return False
    sums = around(ring, [x.reshape(-1) for x in s.inputs[wrong_sum(s)]])
    return same(got(s).reshape(-1), sums[s.on_rank])


def hidden_master(s: Seen) -> bool:
    """True if rank 0 alone sent as many bytes as all other ranks together.

    In addition, rank 0 must have sent more bytes than in a right answer. If ranks may swap roles
    (`Way.settled` is false), the rank that sent the most bytes counts in the place of rank 0.
    """
    first, *others = s.bytes
    return bool(first == sum(others) and s.expect["bytes"][0] < first)


def by_size(counts: list[int]) -> str:
    """Return the counts in words, for example "4, 2 and 1"."""
    *most, least = map(str, counts)
    return f"{', '.join(most)} and {least}"


def bytes_of_a_rank(s: Seen) -> str:
    """Return a sentence with the bytes and peers of the first rank that sent wrong bytes.

    The sentence also gives the right bytes and peers.
    """
    right = s.expect["bytes"]
    rank = next(rank for rank in range(s.n) if s.bytes[rank] != right[rank])
    to, due_to = (peers(rank, each) for each in (s.to, s.expect["to"]))
    return f"Rank {rank} sent {s.bytes[rank]} bytes{to}; {s.way.a} sends {right[rank]}{due_to}."


def peers(rank: int, to: str) -> str:
    """Return a text like " to ranks 1 and 2".

    Return "" if the rank sends nothing, or if a right answer may choose its peers.
    """
    found = [int(pair.partition("→")[2]) for pair in to.split() if pair.startswith(f"{rank}→")]
    return f" to {who(found)}" if found else ""


def too_many_rounds(s: Seen) -> bool:
    """True if a ring continues after the sum is complete.

    Each further round sends all chunks once more.
    """
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
         "A rank waits for a rank that does something different. If you call reduce and broadcast, "
         "every rank, not only rank 0, has to call both, in the same order and with the same "
         "root.",
         "If you send and receive by hand: draw an arrow for each message, from the sender to the "
         "receiver, and look for arrows with a missing end."),
    Hint("has returned", lambda s: s.stuck == "returned", lambda s:
         "A rank has returned while a second rank still waits for the first. Go through the "
         f"rounds on paper with {s.n} ranks, and count the senders and the receivers."),
    Hint("all send", lambda s: s.stuck == "send",
         "All ranks wait in send. Start the send with dist.isend, then receive, then wait for the "
         "send."),
    Hint("all receive", lambda s: s.stuck == "receive" and s.way.name in WITHOUT_ROUNDS,
         "All ranks wait for a message, and no message is under way. Start your send with "
         "dist.isend before you receive, or let one rank send first."),
    Hint("circle", lambda s: s.stuck,
         "In each round, does the rank from which your rank receives also send to your rank? Draw "
         "an arrow for each message."),
    Hint("not contiguous", lambda s: s.kind == "not contiguous",
         "Messages must be contiguous: send x.contiguous(), receive into such a tensor."),
    Hint("lengths differ", lambda s: s.mismatch == "message",
         "A message and the tensor that receives it differ in length. n need not divide the "
         "length, and some chunks may be empty: take both lengths from the same "
         "torch.tensor_split."),
    Hint("fewer than n pieces", lambda s: s.raised == "IndexError",
         "A tensor may be shorter than n. Then torch.chunk gives fewer than n pieces."),
    Hint("one rank", lambda s: s.error and s.n == 1,
         "With one rank there is no rank to talk to. The sum is x, in a tensor of its own."),
    Hint("no view", lambda s: s.kind == "no view",
         "x may be laid out in memory in a different order, and then x.clone() has this order too. "
         "Such a tensor has no view(-1), but x.clone(memory_format=torch.contiguous_format) has "
         "one."),
    Hint("to itself", lambda s: s.kind == "to itself",
         "A rank sends no message to itself. Add the rank's own tensor without a message."),
    Hint("both ways", lambda s: s.kind == "no such rank" and s.way.name == "butterfly" and s.n == 4,
         "Your code names a rank that does not exist. In an exchange, each of the two ranks names "
         "the other one: with 4 ranks, which pairs exchange at distance 1, and which at distance "
         "2?",
         "Partners at distance 1, 2 or 4 differ in one binary digit: rank ^ distance."),
    Hint("no such rank", lambda s: s.kind == "no such rank", lambda s:
         f"Your code names a rank that does not exist: {s.n} ranks have the numbers 0 to "
         f"{s.n - 1}.",
         lambda s: "Not every rank has a partner in every round: some ranks send their "
         "tensor before the first round, and get the sum after the last round."
         if s.way.name == "butterfly"
         else "In a circle, rank 0 comes after the last rank: % world_size."),
    Hint("works in place", lambda s: s.kind == "None" and s.way.name == "tree",
         "A value here is None. reduce and broadcast work in place and return None, so do not "
         "assign their result."),
    Hint("no cast", lambda s: s.kind == "no cast",
         "x may hold integers. No division is needed here."),
    Hint("barrier", lambda s: collectives(s) == ["barrier"],
         "No barrier is needed: when recv or wait() returns, the message is already in the "
         "tensor."),
    Hint("collective", collectives, lambda s:
         f"torch's {worker(collectives(s))} would do the work for you. " + (
             "Call lab 02's reduce and broadcast, without dist."
             if s.way.name == "tree" else "Use only isend, send and recv.")),
    Hint("x changed", lambda s: s.x == "changed",
         "x has changed. Add into a copy of x, x.clone()."),
    Hint("x returned", lambda s: s.x == "returned",
         "The returned tensor shares the memory of x. Return a clone."),
    # This hint precedes the hints about sums, because it applies to right and to wrong sums.
    Hint("other peers", lambda s: not s.wrong("bytes") and s.wrong("to"), lambda s:
         f"The messages go {s.to}; in {s.way.a}, the messages go {s.expect['to']}."),
    Hint("sender's number", lambda s: type(got(s)) is int and got(s) in range(s.n),
         "You return a number, not the sum. recv writes into the tensor that you pass, and returns "
         "the number of the sender. Do not assign the result of recv."),
    Hint("no tensor", lambda s: not hasattr(got(s), "new_empty"), lambda s:
         f"You return a {type(got(s)).__name__}, but the sum is a tensor."),
    Hint("dtype", lambda s: getattr(got(s), "dtype", None) != due(s).dtype, lambda s:
         f"x has the dtype {due(s).dtype}, and so must the sum; you return {got(s).dtype}."),
    Hint("shape", lambda s: got(s).shape != due(s).shape, lambda s:
         f"The sum has the shape of x, {list(due(s).shape)}; you return {list(got(s).shape)}."),
    Hint("of two calls", of_two_calls,
         "Two calls with the same shape share memory: a sum holds the result of another call. "
         "Keep nothing between calls, and make a new tensor in each call."),
    Hint("mean", lambda s: same(got(s) * s.n, due(s)),
         "The result is the mean, but an all-reduce gives the sum. The caller divides the sum if a "
         "mean is needed."),
    Hint("end left out", end_left_out, lambda s:
         f"The end of x is left out, from element {whole(s)} on: n need not divide the length."),
    *(Hint(each.name, partial(goes_round, each), each.says, each.more) for each in WRONG_RINGS),
    Hint("lacks", say=partial(tell, "lacks the part of {}", lambda t: t == 0),
         more=lambda s: s.way.lacks),
    Hint("twice", say=partial(tell, "has the part of {} more than once", lambda t: t > 1),
         more=lambda s: s.way.twice),
    Hint("not whole", not_whole, lambda s:
         f"On rank {s.on_rank}, the sum has fractions, but all numbers of x are whole. Add, and do "
         "not divide."),
    Hint("bits", lambda s: s.wrong("bits"),
         "Ranks that add in different orders differ in the last bits. Let all ranks add in the "
         "same order, the order of the ranks."),
    Hint("too many rounds", too_many_rounds, lambda s:
         f"The chunks are right, but each rank sends {s.messages[0]} chunks, one in each round. "
         f"With {s.n} ranks, 2(n - 1) = {max(s.expect['messages'])} rounds are enough.",
         "Each half takes n - 1 rounds, because each rank already has its own chunk."),
    Hint("bytes of all", lambda s: s.wrong("bytes") and isinstance(s.bytes, int), lambda s:
         f"With {s.n} ranks, all ranks together sent {s.bytes} bytes; {s.way.a} sends "
         f"{s.expect['bytes']}. {s.way.much}"),
    Hint("hidden master", hidden_master, lambda s:
         f"One rank is a hidden master: this rank alone sent {s.bytes[0]} bytes, and in {s.way.a} "
         f"{s.expect['bytes'][0]}. {s.way.much}"),
    Hint("bytes", lambda s: s.wrong("bytes"), lambda s: f"{bytes_of_a_rank(s)} {s.way.much}"),
    Hint("uneven chunks", lambda s: s["most by a rank"] > s.expect["most by a rank"], lambda s:
         f"With {s.n} ranks, one rank sent {s['most by a rank']} bytes, but "
         f"{s.expect['most by a rank']} bytes are enough. {s.way.much}",
         "The chunks have different lengths: cut the elements, x.view(-1), not the rows of x."),
    Hint("other shares", lambda s: s.wrong("messages") and max(s.messages) <=
         max(s.expect["messages"]), lambda s:
         f"With {s.n} ranks, the ranks send {by_size(s.messages)} messages; in {s.way.a}, "
         f"{by_size(s.expect['messages'])}.", lambda s: s.way.much),
    Hint("small messages", lambda s: s.wrong("messages"), lambda s:
         f"The number of bytes is right, but a rank sends {max(s.messages)} messages, where "
         f"{s.way.a} has {max(s.expect['messages'])}. Each message costs a latency."),
    Hint("in a row", lambda s: s.latencies > s.expect["latencies"], lambda s:
         f"{s.latencies} messages follow each other in a row, where {s.way.a} has "
         f"{s.expect['latencies']}.",
         lambda s: s.way.row),
    Hint("at once", lambda s: s.latencies < s.expect["latencies"], lambda s:
         f"The longest row of messages has {count(s.latencies, 'message')}, where {s.way.a} has "
         f"{s.expect['latencies']} rounds: too many messages are under way at once. Begin a round "
         "when the previous round is over."),
)
# fmt: on


def miscounted(s: Seen) -> tuple[str, str, float, float]:
    """Return the first wrong count of the answer, with its name, ranks and right value.

    The result is ("latencies" or "tensors", the number of ranks as text, the answer's count, the
    right count). Raises StopIteration if all counts are right.
    """
    return next(
        (price, ranks, s[price][ranks], right)
        for price in ("latencies", "tensors")
        for ranks, right in s.expect[price].items()
        if s[price][ranks] != right
    )


def times_too_much(factor: Callable[[Seen], float], s: Seen) -> bool:
    """True if the first wrong count is `factor` times the right count."""
    _, _, counted, right = miscounted(s)
    return right != 0 and isclose(counted, factor(s) * right, rel_tol=1e-3)


def only_tensors(factor: Callable[[Seen], float], s: Seen) -> bool:
    """True if the latencies are right, and a count of tensors is `factor` times the right count."""
    return miscounted(s)[0] == "tensors" and times_too_much(factor, s)


def correct(algorithm: str, s: Seen) -> str | None:
    """Return a sentence about the first wrong count; None if the case has another algorithm."""
    price, ranks, counted, right = miscounted(s)
    told = f"{ranks.capitalize()} you count {counted:g} {noun(price, counted)}, not {right:g}."
    return told if s.algorithm == algorithm else None


# fmt: off
PRICE = (
    Hint("one rank", lambda s: miscounted(s)[1] == "with 1 rank",
         "A single rank sends nothing, and needs no time."),
    Hint("milliseconds", partial(times_too_much, lambda s: 1000),
         "The result is in milliseconds. Return seconds."),
    Hint("bits", partial(only_tensors, lambda s: 8),
         "The bytes take 8 times too long: the bandwidth is in bytes per second, not in bits per "
         "second."),
    Hint("times bandwidth", partial(only_tensors, lambda s: s.bandwidth**2),
         "The bytes are multiplied by the bandwidth, but a link with more bytes per second needs "
         "less time.",
         "t is nbytes / bandwidth."),
    *(Hint(algorithm, say=partial(correct, algorithm), more=sentence) for algorithm, sentence in (
        ("all_to_all",
         "All messages are under way at once and share one latency; a link carries n - 1 "
         "tensors."),
        ("round_robin", "n - 1 rounds, each with one latency and one tensor."),
        ("master_worker",
         "Tensors go in, and the sum goes out: 2 latencies, and n - 1 tensors in each direction on "
         "one link."),
        ("tree",
         "Up and down take ceil(log2 n) rounds each; (n - 1).bit_length() computes this number."),
        ("butterfly",
         "log2 n rounds; if n is not a power of two, floor(log2 n) and two more rounds."),
        ("ring",
         "2(n - 1) rounds, each with one latency and one chunk of 1/n of a tensor."),
    )),
    Hint("not their sum", say=
         "Both prices are right, but the sum is not: latencies * latency + tensors * S / "
         "bandwidth."),
)
# fmt: on
