"""Lab 13: sentences about wrong answers, a table for each exercise."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close
from ddpkit.text import size


def close(got: object, wanted: object, digits: int = 4) -> bool:
    """True if the values are equal to `wanted`, up to rounding."""
    return same(got, Close(wanted, digits))


def most(s: Seen) -> str:
    """Return the most bytes that a rank may send, as text."""
    return size(max(each.most for each in s.expect["sent"]))


# state_bytes


def other(
    s: Seen, *, by: float | None = None, split: Sequence[int] = (12, 2, 2), stage: int | None = None
) -> bool:
    """True if a wrong share, a wrong split or a wrong stage explains the answer's bytes."""
    share = -(-s.parameters // s.n) if by is None else by
    asked = s.stage if stage is None else stage
    return bool(s.bytes == s.held(share, asked, split))


def by_bytes(s: Seen) -> int:
    """Return a rank's bytes if single bytes, not whole parameters, were divided evenly."""
    whole = [each * s.parameters for each in (12, 2, 2)]
    return sum(-(-each // s.n) if place < s.stage else each for place, each in enumerate(whole))


# fmt: off
BYTES = (
    Hint("no int", lambda s: type(s.bytes) is not int, "Bytes are whole numbers. Use //, not /."),
    Hint("split otherwise", lambda s: other(s, split=(8, 4, 4)),
         "The sum of your split is 16 bytes too, but Adam has 12 of them, not 8: momentum, "
         "variance, and the float32 copy of the parameters. Parameters and gradients have 2 "
         "each."),
    Hint("no copy", lambda s: other(s, split=(8, 2, 2)),
         "The optimizer steps a float32 copy of the parameters. The 4 bytes of this copy are "
         "missing."),
    Hint("all by n", lambda s: s.stage < 3 and other(s, stage=3),
         "Your result shares out all three parts, as only stage 3 does."),
    Hint("a stage too far", lambda s: s.stage < 3 and other(s, stage=s.stage + 1),
         "Your result is the result of the next stage."),
    Hint("a stage too few", lambda s: s.stage and other(s, stage=s.stage - 1),
         "Your result is the result of the previous stage."),
    Hint("parameters first", lambda s: other(s, split=(2, 2, 12)) or other(s, split=(2, 12, 2)),
         "Stage 1 shares out the optimizer, which is the largest part. Stage 2 adds the gradients, "
         "and stage 3 the parameters."),
    Hint("rounded down", lambda s: other(s, by=s.parameters // s.n),
         lambda s: f"If each of the {s.n} ranks has only {s.parameters // s.n:,} parameters, at "
         "least one parameter is left over. Some rank has this parameter too, and the largest "
         "share counts."),
    Hint("one too many", lambda s: other(s, by=s.parameters // s.n + 1),
         lambda s: f"{s.n} ranks share these parameters evenly, without a remainder. No rank has "
         "one more."),
    Hint("cut by bytes", lambda s: s.bytes == by_bytes(s),
         "In your result, a rank has a part of a parameter. Share out whole parameters, each with "
         "all its bytes."),
    Hint("gigabytes", lambda s: s.bytes < s.parameters / s.n,
         "Return bytes, not kilobytes or gigabytes."),
    Hint("other", say=lambda s: f"In stage {s.stage}, the first {s.stage} of three parts are "
         "shared out: the optimizer's 12 bytes of each parameter, 2 of the gradient, 2 of the "
         "parameter."),
)


# ShardedOptimizer


def not_as_it_was(s: Seen, places: Any) -> bool:
    """True if any rank changed one of the parameters with the indices `places`."""
    return any(not same(mine[k], s.start[k]) for mine in s.parameters for k in places)


def lacks_others(s: Seen) -> bool:
    """True if the parameters differ between the ranks."""
    return not s["same on all ranks"]


def last_group_alone(s: Seen) -> bool:
    """True if the first of two groups of parameters is unchanged, and the rest is not."""
    others = [k for k in range(len(s.start)) if k not in s.first_group]
    moved = partial(not_as_it_was, s)
    return bool(s.first_group) and not moved(s.first_group) and moved(others)


OPTIMIZER = (
    Hint("no groups", lambda s: s.attribute == "param_groups",
         "Schedulers and users read `param_groups`. Your optimizer must have this attribute."),
    Hint("not made yet", lambda s: s.attribute == "add_param_group",
         "`self.local` is None until the first group comes. Make the optimizer with the first "
         "group, and pass further groups to its add_param_group."),
    Hint("nothing of a group", lambda s: s.kind == "no parameters",
         "A rank may have no number of a group. torch's optimizers refuse an empty list, but "
         'accept a group that is empty: [{"params": []}].'),
    Hint("padding", lambda s: s.kind == "split sizes",
         "A line has zeros at its end if n does not divide its length. unflatten needs only the "
         "tensors' own numbers, so cut off the zeros."),
    Hint("frozen moved", lambda s: s.frozen and not_as_it_was(s, s.frozen),
         "A frozen parameter has changed. No optimizer may step a parameter with requires_grad "
         "False."),
    Hint("unused moved", lambda s: s.unused and not_as_it_was(s, s.unused),
         "A parameter without a gradient has changed, by weight decay. A `grad` of None is not the "
         "same as zeros."),
    Hint("scheduler unheard", lambda s: s.deaf is not None and close(s.parameters[0], s.deaf),
         "The learning rate is still the first: your optimizer ignores changes of "
         "`param_groups`."),
    Hint("first group heard",
         lambda s: s.first_heard is not None and close(s.parameters[0], s.first_heard),
         "A scheduler changes the lr of every group, but your optimizer reads only the first "
         "group's lr."),
    Hint("one group", lambda s: s.one_group is not None and close(s.parameters[0], s.one_group),
         "Both groups were stepped alike, but each group has its own options, such as its lr."),
    Hint("last group alone", last_group_alone,
         "Only the last group has changed. Make the optimizer once, with the first group, and add "
         "further groups to it."),
    Hint("not gathered", lacks_others,
         lambda s: f"The parameters of {who(range(s.n))} differ: each rank has stepped its own "
         "part, and has not received the remaining parts."),
    Hint("state of all",
         lambda s: min(s["bytes of state"]) > s.expect["bytes of state"][0].most,
         lambda s: f"A rank keeps {size(max(s['bytes of state']))} of state, where "
         f"{size(s.expect['bytes of state'][0].most)} are enough. Make the optimizer only for this "
         "rank's numbers: a state stays in memory, used or not."),
    Hint("dealt out by parameter", lambda s: s.wrong("bytes of state"),
         lambda s: f"The ranks keep {', '.join(map(size, s['bytes of state']))}, because one "
         "parameter has most of the numbers. Cut this parameter."),
    Hint("no state", lambda s: s["state of all"] < s.expect["state of all"].least
         and not s.wrong("parameters"),
         lambda s: f"The parameters are right, but all ranks together have "
         f"{size(s['state of all'])} of state, and {size(s.expect['state of all'].least)} are "
         "necessary to continue. A rank must keep the optimizer's state of each number in its "
         "part."),
    Hint("kept elsewhere", lambda s: s.wrong("kept at rest") and not s.wrong("parameters"),
         lambda s: "The parameters are right, but after the steps a rank has "
         f"{size(max(s['kept at rest']))} more in memory than before, where "
         f"{size(s.expect['kept at rest'][0].most)} are enough."),
    Hint("frozen sent", lambda s: s.frozen and s.wrong("sent") and not s.wrong("parameters"),
         lambda s: f"The parameters are right, but a rank sends {size(max(s.sent))}, where "
         f"{most(s)} are enough. Do you send frozen parameters? No optimizer steps them, so do not "
         "share them out."),
    Hint("more bytes", lambda s: s.wrong("sent") and not s.wrong("parameters"),
         lambda s: f"The parameters are right, but a rank sends {size(max(s.sent))}, where "
         f"{most(s)} are enough. The gradients are averaged already, and each stepped number needs "
         "to be sent once."),
    Hint("not cleared", lambda s: not s["gradients cleared"],
         "zero_grad() must clear the gradients of the whole parameters."),
    Hint("keeps gradients",
         lambda s: not s["gradients let go"] and not s.wrong("parameters"),
         "The parameters are right, but after zero_grad() a whole gradient is still in memory, "
         "because a piece's `grad` is a view of it. Clear the gradients of the pieces too, after "
         "the step."),
    Hint("loss of the closure", lambda s: s.wrong("loss") and not s.wrong("parameters"),
         "The parameters are right, but `step(closure)` does not return the closure's loss, as "
         "torch's optimizers do."),
    Hint("closure not called", lambda s: close(s.parameters[0], s.without_the_last),
         "The last step has a closure, which computes the gradients, but no parameter has changed "
         "in this step. Call the closure before you read the gradients."),
    Hint("closure again", lambda s: max(s["calls of the closure"]) > 1
         and not s.wrong("parameters"),
         "The parameters are right, but the closure ran more than once in a step. The given lines "
         "call it: call `self.local.step()` without a closure."),
    Hint("never stepped", lambda s: close(s.parameters[0], s.start),
         "No parameter has changed. Do your pieces share memory with the parameters, and do the "
         "pieces have gradients?"),
    Hint("other", say="The parameters are the same on all ranks, but differ from those of one "
         "process. Compare after one step, on two ranks, with plain SGD."),
)


# reduce_to_owner


def by_rank(got: Sequence[object], wanted: Sequence[object]) -> bool:
    """True if each rank r has the tensor `wanted[r]`."""
    return all(same(one, each) for one, each in zip(got, wanted, strict=True))


TO_OWNER = (
    Hint("another dtype", lambda s: s.raised == "RankDied" or s.kind == "dtypes",
         "Does the tensor for the chunk have the dtype of `flat`?"),
    Hint("sum", lambda s: s.n > 1 and by_rank(s.chunk, s.total.chunk(s.n)),
         "The result is the sum, but the mean is asked for."),
    Hint("own batch", lambda s: by_rank(s.chunk, [x.chunk(s.n)[k] for k, x in enumerate(s.own)]),
         "The result is this rank's own chunk: no rank has sent any numbers."),
    Hint("another's chunk", lambda s: any(
         by_rank(s.chunk, [s.whole_mean.chunk(s.n)[(k + by) % s.n] for k in range(s.n)])
         for by in range(1, s.n)),
         "Rank 0 has the chunk of a different rank. Chunk r belongs to rank r."),
    Hint("overwritten", lambda s: by_rank(s.chunk, (-s.whole_mean).chunk(s.n)),
         "A second call has overwritten the result of the first call. Each result needs its own "
         "memory."),
    Hint("whole mean", lambda s: by_rank(s.chunk, [s.whole_mean] * s.n),
         "The result is the whole mean. Return only this rank's chunk."),
    Hint("rounded", lambda s: s.wrong("chunk") and all(
         close(one, each, 2) for one, each in zip(s.chunk, s.expect["chunk"], strict=True)),
         "The result is nearly the mean: the numbers were rounded. Keep the dtype of `flat`."),
    Hint("line changed", lambda s: not s["left alone"],
         "`flat` has changed, but later code still reads it. Divide a copy."),
    Hint("more bytes", lambda s: s.wrong("sent") and not s.wrong("chunk"),
         lambda s: f"The chunk is right, but a rank sends {size(max(s.sent))}, where {most(s)} are "
         "enough. The rest is for chunks of further ranks, which this rank drops."),
    Hint("a view", lambda s: s.wrong("memory") and not s.wrong("chunk"),
         "The chunk is right, but it is a view, which keeps the whole line in memory. A clone() of "
         "the chunk does not."),
    Hint("other", lambda s: s.wrong("chunk"),
         "The result is not the mean of the ranks' lines. Add up all ranks' numbers of this rank's "
         "chunk, each once, and divide by the number of ranks."),
)


# FullyShard


def alive(s: Seen, when: str) -> int:
    """Return the number of blocks in memory at the moment `when` of the step."""
    return int(s["blocks in memory"][when])


def gradients(s: Seen, times: float) -> bool:
    """True if the ranks' gradients are `times` the right gradients."""
    return learns(s, [[times * each for each in mine] for mine in s.right])


def learns(s: Seen, wanted: Sequence[object]) -> bool:
    """True if the gradients of the ranks' shards are equal to `wanted`."""
    pairs = zip(s.gradients, wanted, strict=True)
    return all(close(one, each, 1 if s.dtype else 3) for one, each in pairs)


SHARDED = (
    Hint("no work", lambda s: s.attribute == "wait",
         "gather() has to return a Work, so that a caller can wait: all_gather(…, async_op=True) "
         "returns a Work."),
    Hint("flat is gone", lambda s: s.attribute == "untyped_storage",
         "`flat` has to stay, without its numbers, because the views use its storage. Free only "
         "the memory, with resize_(0)."),
    Hint("no memory", lambda s: s.kind == "freed" or s.raised == "RankDied",
         "The numbers were gone when the block computed. Does `flat` get its memory back before "
         "each forward and each backward? Does your code wait for the gather? And is the memory "
         "the same that the views use?"),
    Hint("None", lambda s: s.unused and s.kind in ("None", "not its gradient"),
         "A view may have `grad` None. An unused view counts as zeros, and keeps its place in the "
         "line."),
    Hint("returns nothing", lambda s: s.kind == "None",
         "The next block got None. forward must return the block's output."),
    Hint("needs no gradient", lambda s: s.kind == "no hook",
         "Not every tensor can have a hook. Under no_grad, and after only frozen blocks, the "
         "output has requires_grad False, and no backward will come. The first block's input is "
         "such a tensor, too."),
    Hint("no zeros at the end", lambda s: s.kind == "no even chunks",
         "n must divide the length of the scattered line: `line` adds zeros for that."),
    Hint("another dtype", lambda s: s.error and s.dtype,
         "`flat` is in bfloat16 here, and the shard is in float32. Send numbers in flat's dtype, "
         "but keep shard.grad in the shard's dtype."),
    Hint("too little memory", lambda s: s.kind == "storage too small",
         "The memory of `flat` is too small for the numbers. resize_ of a storage counts bytes, "
         "and `nbytes` is the right count."),
    Hint("another line", lambda s: s.kind == "unequal lists",
         "all_gather needs a line of n chunks. Does `flat` still have all its numbers? resize_(0) "
         "of its storage frees the memory, and the shape stays."),
    Hint("sum", lambda s: s.n > 1 and gradients(s, s.n),
         lambda s: f"The gradient is {s.n} times too large. The mean over the ranks is asked "
         "for."),
    Hint("divided twice", lambda s: s.n > 1 and gradients(s, 1 / s.n),
         lambda s: f"The gradient is {s.n} times too small. reduce_to_owner already returns a "
         "mean."),
    Hint("last backward alone", lambda s: s.backwards > 1 and s.wrong("gradients"),
         "shard.grad *grows* with each backward, like any gradient. Add to shard.grad, and leave "
         "no gradient in the views."),
    Hint("own batch", lambda s: s.n > 1 and learns(s, s.own),
         "The gradients are those of the rank's own batch. The gradients of further ranks' batches "
         "do not arrive."),
    Hint("stale", lambda s: not s.wrong("gradients") and close(s.output[0], s.untrained, 3),
         "The gradients are right, but the net computes with the first parameters. Gather from the "
         "current shards."),
    Hint("not freed", lambda s: alive(s, "between") > 0,
         lambda s: f"The result is right, but {alive(s, 'between')} blocks are in memory after the "
         "forward. Free each block when it has computed."),
    Hint("stays", lambda s: alive(s, "rest") > 0,
         lambda s: f"Between two steps, the bytes of {alive(s, 'rest')} blocks stay in memory. "
         "Does free() free the memory? Does any view keep its `grad`?"),
    Hint("many operations", lambda s: s.wrong("operations"),
         lambda s: f"You use {s.operations} operations in a step, where "
         f"{s.expect['operations'].most} are enough: two gathers and one reduction for each block, "
         "for any number of parameters."),
    Hint("another width", lambda s: s.dtype and s.wrong("sent") and not s.wrong("gradients"),
         lambda s: f"The result is right, but a rank sends {size(max(s.sent))} in a step, where "
         f"{most(s)} are enough in {s.dtype}. Gathers and reduce-scatters must be in flat's "
         "dtype."),
    Hint("more bytes", lambda s: s.wrong("sent"),
         lambda s: f"The result is right, but a rank sends {size(max(s.sent))} in a step, where "
         f"{most(s)} are enough. A rank needs only its own chunk of the gradient."),
    Hint("another direction", lambda s: s.wrong("directions"),
         "`before` must get 1 in a forward and -1 in a backward. A prefetch goes so many blocks "
         "ahead."),
    Hint("waits", lambda s: s.wrong("gathers waited for at once") and not s.wrong("gradients"),
         "The result is right, but gather() waits until all numbers are there. gather() must start "
         "and return at once. Only wait() waits, so that a rank may compute meanwhile."),
    Hint("gradients", lambda s: s.wrong("gradients"),
         "A shard's gradient must be this rank's chunk of the line of gradients, in the order of "
         "the views, without frozen parameters."),
)


# prefetch


def fetched_again(s: Seen) -> int:
    """Return the number of units that are gathered again after their backward."""
    order = s.order.split()
    backward = [(place, name[1:]) for place, name in enumerate(order) if name[0] == "b"]
    return sum(f"g{number}" in order[place:] for place, number in backward)


AHEAD = (
    Hint("other attributes", lambda s: s.attribute,
         lambda s: f"A unit has begin() and wait(). You need no `{s.attribute}`."),
    Hint("beyond the last", lambda s: s.raised == "IndexError",
         "There is no unit after the last unit."),
    Hint("first not begun", lambda s: s.raised == "RuntimeError",
         "Your code waits for a unit that has not begun to gather. The first unit of a forward has "
         "no previous unit that would fetch it."),
    Hint("not there", lambda s: s.wrong("computes without parameters"),
         lambda s: f"{s['computes without parameters'].split()[0]} computes without its numbers. "
         "Wait for unit k."),
    Hint("all at the start", lambda s: s.order.split().index("f0") > 2,
         lambda s: f"There are {s['units in memory']} units in memory at a time. Fetch only the "
         "next unit."),
    Hint("wrong way", lambda s: fetched_again(s) > 1,
         "In a backward, units come from the last to the first: unit 2 comes after unit 3. The "
         "next unit is k + step."),
    Hint("round the end", lambda s: s.wrong("left in memory"),
         lambda s: f"Unit {s['left in memory'].split()[0]} is gathered, but no computation needs "
         "the unit any more. There is no unit after the last, and none before the first (units[-1] "
         "is the last unit)."),
    Hint("waits for the next", lambda s: s["computes while one is fetched"] == "nothing"
         and not s.wrong("order"),
         "The next unit begins, and your code waits for it at once. No unit is under way while "
         "unit k computes."),
    Hint("forward alone", lambda s: s["computes while one is fetched"].find("b") < 0
         and s["computes while one is fetched"] != "nothing",
         "In a backward, no unit is under way. The next unit there is unit k - 1."),
    Hint("nothing ahead", lambda s: s["computes while one is fetched"] == "nothing",
         "Each unit is gathered only when it is needed. Begin the next unit too, before unit k "
         "computes."),
    Hint("other", say=lambda s: f"Your order is: {s.order}. The right order is: "
    f"{s.expect['order']}."),
)
# fmt: on
