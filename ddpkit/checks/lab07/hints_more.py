"""Lab 07: sentences about wrong trainings, barriers and backends, a table for each exercise."""

from __future__ import annotations

from collections.abc import Iterable

from ddpkit.checks.lab07.hints import OTHER_BYTES, near
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Between


def ends(s: Seen) -> list[list[int] | str]:
    """Return the outcomes of all visits to a barrier, in one list."""
    return [end for of_rank in s.ends for end in of_rank]


def wanted_ends(s: Seen) -> list[list[int] | str]:
    """Return the right outcomes of all visits to a barrier, in one list."""
    return [end for of_rank in s.expect["ends"] for end in of_rank]


def lists(of: Iterable[list[list[int] | str]]) -> list[list[int]]:
    """Return those outcomes of visits that are lists of missing ranks."""
    return [end for of_rank in of for end in of_rank if isinstance(end, list)]


def in_vain(s: Seen) -> list[tuple[list[int], float]]:
    """Return (missing ranks, seconds) for each visit that ended with a list of missing ranks."""
    pairs = [pair for both in zip(s.ends, s.took, strict=True) for pair in zip(*both, strict=True)]
    return [(end, seconds) for end, seconds in pairs if isinstance(end, list)]


def most(s: Seen) -> int:
    """Return the most bytes that all ranks together may send."""
    return sum(each.most if isinstance(each, Between) else each for each in s.expect["bytes"])


def names_itself(s: Seen) -> bool:
    """True if a rank's list of missing ranks is right, except that it also has the rank itself."""
    of_ranks = enumerate(zip(s.ends, s.expect["ends"], strict=True))
    pairs = ((rank, end, wanted) for rank, both in of_ranks
             for end, wanted in zip(*both, strict=True))  # fmt: skip
    return any(isinstance(end, list) and rank in end and isinstance(wanted, list)
               and end == sorted([rank, *wanted]) for rank, end, wanted in pairs)  # fmt: skip


# fmt: off
UNEVEN = (
    Hint("frozen", lambda s: s.frozen and s.kind == "None",
         "A frozen parameter (requires_grad is False) never gets a gradient. Leave it out."),
    Hint("no gradient", lambda s: s.kind == "None",
         "A value is None. A rank that has had no batch has no gradients, and sends zeros."),
    Hint("truth of a batch", lambda s: s.kind == "ambiguous",
         "A batch may be a tensor, which is neither true nor false. Ask `batch is not None`."),
    Hint("no iterator", lambda s: s.kind == "iterator" and s.is_list,
         "`batches` is a list here, and a list is not an iterator. iter(batches) makes an iterator "
         "of a list or a generator."),
    Hint("len", lambda s: s.kind == "iterator",
         "`batches` may be a generator, which has no length and gives each batch once. Use "
         "next(iterator, None)."),
    Hint("flag of some", lambda s: s.mismatch,
         "The ranks do not call the same collectives. A rank without a batch takes part in all "
         "collectives."),
    Hint("leaves", lambda s: s.stuck,
         "A rank has returned, but some ranks still have batches and need all ranks. Continue "
         "without a batch of your own until no rank has a batch."),
    Hint("no list of int", lambda s: not isinstance(s.counts[0], list)
         or any(type(count) is not int for count in s.counts[0]),
         "Return a list of Python ints. int() and tolist() make ints of tensors and floats."),
    Hint("left over", lambda s: len(s.counts[0]) < len(s.right_counts),
         "Batches are left over. Continue as long as any rank has a batch."),
    Hint("one step too many", lambda s: s.counts[0][-1:] == [0],
         "In your last step, no rank has a batch. Ask before you step."),
    Hint("other counts", lambda s: s.wrong("counts"),
         "Return, for each step, the number of ranks that had a batch, on every rank."),
    Hint("drift", lambda s: s.wrong("ranks agree"),
         "The ranks end with different parameters. A rank without a batch takes the same optimizer "
         "step as all ranks."),
    Hint("by all", lambda s: near(s.parameters, s.mistaken["by all"]),
         "Your divisor also counts ranks without a batch, so the gradient shrinks. Divide by the "
         "number of ranks with a batch."),
    Hint("again", lambda s: near(s.parameters, s.mistaken["again"]),
         "An idle rank sends its last gradient again. Call zero_grad() in every step."),
    Hint("repeated", lambda s: near(s.parameters, s.mistaken["repeated"]),
         "An idle rank uses its last batch again, so this batch counts twice."),
    Hint("not trained", lambda s: s.wrong("parameters"),
         "The parameters are not those of one process that trains on all batches: zero_grad, "
         "backward, the mean of the ranks with a batch, step."),
    OTHER_BYTES,
)

BARRIER = (
    Hint("looks for ever", lambda s: "looks for ever" in ends(s),
         "Your code looks at the store again and again without a pause, and leaves the other ranks "
         "no time. Sleep between two looks, or let the store wait."),
    Hint("another error", lambda s: any(isinstance(end, str) and "Error" in end
                                        for end in ends(s)),
         lambda s: "Your barrier ends in "
         + next(end for end in ends(s) if isinstance(end, str) and "Error" in end)
         + ". Raise only a RuntimeError, and only on a rank that waits in vain."),
    Hint("each its time", lambda s: 1.2 * s.timeout < s.longest < 100,
         lambda s: f"A rank waits {s.longest:g} s, but the timeout is {s.timeout:g} s. The timeout "
         "is for all ranks together, not for each rank."),
    Hint("its own time", lambda s: s.longest >= 100,
         "Your barrier waits as long as the store allows, which is minutes. Pass store.wait a "
         "timedelta."),
    Hint("no list", lambda s: "no list" in ends(s),
         "Name the missing ranks as a list in the message: f\"ranks {missing} …\"."),
    Hint("silent", lambda s: s.wrong("ends") and "passes" in ends(s) and not lists(s.ends),
         "A rank continues although some ranks have not come. Raise RuntimeError, and tell two "
         "barriers apart by their names."),
    Hint("keys go", lambda s: s.deleted and s.wrong("ends"),
         "A rank deletes a key that a slower rank may still need. Do not delete keys."),
    Hint("too early", lambda s: s.wrong("ends") and any(seconds < 0.99 * s.timeout
                                                        for _, seconds in in_vain(s)),
         lambda s: f"A rank gives up before {s.timeout:g} s are over. Wait for the whole "
         "timeout."),
    Hint("nobody missing", lambda s: s.wrong("ends") and any(not end for end, _ in in_vain(s)),
         "A rank waits in vain although all ranks have come. A rank that sees all ranks may "
         "return."),
    Hint("rank 0 alone", lambda s: s.ends[0] and s.ends[0] == s.expect["ends"][0]
         and any(end == "passes" for end in ends(s)) and s.wrong("ends"),
         "Some ranks pass although some have not come. Each rank that waits must hear of the "
         "missing ranks."),
    Hint("itself", names_itself,
         "A rank names itself, but it is there. A rank first leaves its own key, and names only "
         "missing ranks."),
    Hint("who came", lambda s: any(0 in named for named in lists(s.ends))
         and not any(0 in named for named in lists(s.expect["ends"])),
         "You name ranks that have come. Name the ranks that have not come."),
    Hint("not all", lambda s: s.wrong("ends") and any(
             set(end) < set(wanted) for end, wanted in zip(ends(s), wanted_ends(s), strict=True)
             if isinstance(end, list) and isinstance(wanted, list)),
         "Name all missing ranks, not only the first."),
    Hint("other ends", lambda s: s.wrong("ends"),
         lambda s: f"The ends of the calls, by rank, are {s.ends}, but the right ends are "
         f"{s.expect['ends']}."),
)

RING = (
    Hint("by another", lambda s: s.collectives,
         lambda s: f"You call {s.collectives[0]} of torch.distributed, which does the work. Your "
         "ring has to do the work here."),
    Hint("recursion", lambda s: s.raised == "RecursionError",
         "An all-reduce over your own group calls your function again. Use ring()."),
    Hint("no view", lambda s: s.kind == "no view" or s.kind == "not contiguous",
         "The tensor may have gaps. Pass a copy to ring(), and put the sum back with copy_()."),
    Hint("too late", lambda s: s.other_than_sum and "too late" in s.gave,
         "NotImplementedError is raised when a tensor has already changed. Check the operation "
         "first."),
    Hint("any operation", lambda s: s.other_than_sum,
         lambda s: f"The case asks for a {s.other_than_sum}, which a ring of sums cannot compute. "
         "Raise NotImplementedError unless options.reduceOp is dist.ReduceOp.SUM."),
    Hint("only the first", lambda s: s.several and near(s.gave[0][0], s.expect["gave"][0][0]),
         "c10d passes a list of tensors. Sum each of them."),
    Hint("not written back", lambda s: near(s.gave[0], s.inputs[0]),
         "c10d reads the tensors that it passed to you. Put the sum into them."),
    Hint("the mean", lambda s: near(s.gave[0] * s.n, s.expect["gave"][0]),
         "The result is the mean. An all-reduce sums, and DDP divides afterwards."),
    Hint("too many bytes", lambda s: sum(s.bytes) > most(s),
         lambda s: f"The ranks sent {sum(s.bytes)} bytes, but {most(s)} bytes are enough for a "
         "ring."),
    OTHER_BYTES,
    Hint("other sums", lambda s: s.wrong("gave"),
         "The tensors do not hold the sums over all ranks."),
)
# fmt: on
