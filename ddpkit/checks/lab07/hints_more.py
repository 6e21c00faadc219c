"""Lab 07: what to say of wrong trainings, barriers and backends, a table for each exercise."""

from __future__ import annotations

from typing import Any

from ddpkit.checks.lab07.hints import OTHER_BYTES, near
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Between


def ends(s: Seen) -> list[Any]:
    """How all visits ended, in one list."""
    return [end for of_rank in s.ends for end in of_rank]


def wanted_ends(s: Seen) -> list[Any]:
    """Return the right ends of all visits, in one list."""
    return [end for of_rank in s.expect["ends"] for end in of_rank]


def lists(s: Seen, of: Any) -> list[list[int]]:
    """The ranks that were named, by visit."""
    return [end for of_rank in of for end in of_rank if isinstance(end, list)]


def in_vain(s: Seen) -> list[tuple[list[int], float]]:
    """The visits that ended in a list of ranks: the list, and the seconds that it took."""
    pairs = [pair for both in zip(s.ends, s.took, strict=True) for pair in zip(*both, strict=True)]
    return [(end, seconds) for end, seconds in pairs if isinstance(end, list)]


def most(s: Seen) -> int:
    """Return the most bytes for all ranks together."""
    return sum(each.most if isinstance(each, Between) else each for each in s.expect["bytes"])


def gives(s: Seen, *tensors: Any) -> bool:
    """Whether rank 0 has this."""
    return near(s.gave[0], tensors[0])


def names_itself(s: Seen) -> bool:
    """True if a rank's list is right but for the rank's own number."""
    of_ranks = enumerate(zip(s.ends, s.expect["ends"], strict=True))
    pairs = ((rank, end, wanted) for rank, both in of_ranks
             for end, wanted in zip(*both, strict=True))  # fmt: skip
    return any(isinstance(end, list) and rank in end and isinstance(wanted, list)
               and end == sorted([rank, *wanted]) for rank, end, wanted in pairs)  # fmt: skip


# fmt: off
UNEVEN = (
    Hint("no gradient", lambda s: s.kind == "None",
         "Something is None: a rank that has had no batch has no gradients, and sends zeros."),
    Hint("truth of a batch", lambda s: s.kind == "ambiguous",
         "A batch may be a tensor, which is neither true nor false: ask `batch is not None`."),
    Hint("no iterator", lambda s: s.kind == "iterator" and s.is_list,
         "`batches` is a list here, and a list is no iterator: iter(batches) makes one of both."),
    Hint("len", lambda s: s.kind == "iterator",
         "`batches` may be a generator, which has no length and gives each batch once: "
         "next(iterator, None)."),
    Hint("flag of some", lambda s: s.mismatch,
         "The ranks do not call the same collectives: those without a batch take part in all of "
         "them."),
    Hint("leaves", lambda s: s.stuck,
         "A rank has returned, and others still have batches, for which they need all: go on "
         "without a batch of your own until nobody has one."),
    Hint("no list of int", lambda s: not isinstance(s.counts[0], list)
         or any(type(count) is not int for count in s.counts[0]),
         "Return a list of Python's int: int() and tolist() make them of tensors and floats."),
    Hint("left over", lambda s: len(s.counts[0]) < len(s.right_counts),
         "Batches are left over: go on as long as any rank has one."),
    Hint("one step too many", lambda s: s.counts[0][-1:] == [0],
         "The last step is one in which nobody has a batch: ask before you step."),
    Hint("other counts", lambda s: s.wrong("counts"),
         "Return, for each step, how many ranks had a batch, on every rank."),
    Hint("drift", lambda s: s.wrong("ranks agree"),
         "The ranks end with different parameters: who has no batch takes the same optimizer "
         "step."),
    Hint("by all", lambda s: near(s.parameters, s.mistaken["by all"]),
         "Ranks without a batch count as well, so the gradient shrinks: divide by those that have "
         "one."),
    Hint("again", lambda s: near(s.parameters, s.mistaken["again"]),
         "An idle rank sends its last gradient again: zero_grad() in every step."),
    Hint("repeated", lambda s: near(s.parameters, s.mistaken["repeated"]),
         "An idle rank uses its last batch again, so that batch counts twice."),
    Hint("not trained", lambda s: s.wrong("parameters"),
         "The parameters are not those of one process that trains on all batches: zero_grad, "
         "backward, the mean of those that have a batch, step."),
    OTHER_BYTES,
)

BARRIER = (
    Hint("looks for ever", lambda s: "looks for ever" in ends(s),
         "It looks at the store again and again, and gives the others no time: sleep between two "
         "looks, or let the store wait."),
    Hint("another error", lambda s: any(isinstance(end, str) and "Error" in end
                                        for end in ends(s)),
         lambda s: "It ends in "
         + next(end for end in ends(s) if isinstance(end, str) and "Error" in end)
         + ": only who waits in vain raises, and a RuntimeError."),
    Hint("each its time", lambda s: s.timeout < s.longest < 100,
         lambda s: f"A rank waits {s.longest:g} s, with a timeout of {s.timeout:g} s: the time is "
         "for all together, not for each."),
    Hint("its own time", lambda s: s.longest >= 100,
         "It waits as long as the store likes, which is minutes: store.wait takes a timedelta."),
    Hint("no list", lambda s: "no list" in ends(s),
         "Name the missing ranks as a list in the message: f\"ranks {missing} …\"."),
    Hint("silent", lambda s: s.wrong("ends") and "passes" in ends(s) and not lists(s, s.ends),
         "A rank goes on though others have not come: raise RuntimeError, and tell two barriers "
         "apart by their names."),
    Hint("keys go", lambda s: s.deleted and s.wrong("ends"),
         "A rank deletes a key that others may still look for: let keys stay."),
    Hint("too early", lambda s: s.wrong("ends") and any(seconds < 0.99 * s.timeout
                                                        for _, seconds in in_vain(s)),
         lambda s: f"A rank gives up before {s.timeout:g} s are over: wait as long as that."),
    Hint("nobody missing", lambda s: s.wrong("ends") and any(not end for end, _ in in_vain(s)),
         "A rank waits in vain though all have come: whoever sees all of them may return."),
    Hint("rank 0 alone", lambda s: s.ends[0] and s.ends[0] == s.expect["ends"][0]
         and any(end == "passes" for end in ends(s)) and s.wrong("ends"),
         "Some ranks pass though others have not come: each rank that waits must hear of it."),
    Hint("itself", names_itself,
         "A rank names itself, and it is there: it leaves its own word first, and names others."),
    Hint("who came", lambda s: any(0 in named for named in lists(s, s.ends))
         and not any(0 in named for named in lists(s, s.expect["ends"])),
         "It names ranks that have come: name those that have not."),
    Hint("not all", lambda s: s.wrong("ends") and any(
             set(end) < set(wanted) for end, wanted in zip(ends(s), wanted_ends(s), strict=True)
             if isinstance(end, list) and isinstance(wanted, list)),
         "Name all that are missing, not only the first one."),
    Hint("other ends", lambda s: s.wrong("ends"),
         lambda s: "By rank, the calls end with the missing ranks, or pass: "
         f"{s.ends}, and should end with {s.expect['ends']}."),
)

RING = (
    Hint("by another", lambda s: s.collectives,
         lambda s: f"It calls {s.collectives[0]} of torch.distributed, which does the work: here "
         "it is your ring's."),
    Hint("recursion", lambda s: s.raised == "RecursionError",
         "An all-reduce over your own group calls your function again: use ring()."),
    Hint("no view", lambda s: s.kind == "no view" or s.kind == "not contiguous",
         "The tensor may have gaps: ring() copies it, copy_() puts the sum back."),
    Hint("too late", lambda s: s.maximum and "too late" in s.gave,
         "NotImplementedError is raised when a tensor has changed already: ask for the operation "
         "first."),
    Hint("any operation", lambda s: s.maximum,
         "A maximum was asked for, and a ring of sums cannot give it: raise NotImplementedError "
         "unless options.reduceOp is dist.ReduceOp.SUM."),
    Hint("only the first", lambda s: s.several and near(s.gave[0][0], s.expect["gave"][0][0]),
         "c10d hands in a list of tensors: sum each of them."),
    Hint("not written back", lambda s: near(s.gave[0], s.inputs[0]),
         "c10d looks at the tensors that it gave you: put the sum into them."),
    Hint("the mean", lambda s: near(s.gave[0] * s.n, s.expect["gave"][0]),
         "That is the mean: an all-reduce sums, and DDP divides by itself."),
    Hint("too many bytes", lambda s: sum(s.bytes) > most(s),
         lambda s: f"{sum(s.bytes)} bytes were sent, and {most(s)} are enough: that is no ring."),
    OTHER_BYTES,
    Hint("other sums", lambda s: s.wrong("gave"),
         "The tensors do not hold the sums over all ranks."),
)
# fmt: on
