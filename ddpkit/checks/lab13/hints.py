"""Lab 13: what to say of wrong answers, a table for each exercise."""

from __future__ import annotations

from functools import partial
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close
from ddpkit.text import size


def close(got: Any, wanted: Any, digits: int = 4) -> bool:
    """Whether values are these, up to rounding."""
    return same(got, Close(wanted, digits))


def most(s: Seen) -> str:
    """Return the most bytes for a rank, as text."""
    return size(max(each.most for each in s.expect["sent"]))


# state_bytes


def other(s: Seen, *, by: Any = None, split: Any = (12, 2, 2), stage: Any = None) -> bool:
    """Whether the bytes are those of other shares, of another split, or of another stage."""
    share = -(-s.parameters // s.n) if by is None else by
    asked = s.stage if stage is None else stage
    return bool(s.bytes == s.held(share, asked, split))


def by_bytes(s: Seen) -> int:
    """What a rank would hold if bytes were dealt out, and not parameters."""
    whole = [each * s.parameters for each in (12, 2, 2)]
    return sum(-(-each // s.n) if place < s.stage else each for place, each in enumerate(whole))


# fmt: off
BYTES = (
    Hint("no int", lambda s: type(s.bytes) is not int, "Bytes come whole: // and not /."),
    Hint("split otherwise", lambda s: other(s, split=(8, 4, 4)),
         "16 bytes as well, but of Adam's are 12, not 8: momentum, variance, and the float32 copy "
         "of the parameters. Parameters and gradients have 2 each."),
    Hint("no copy", lambda s: other(s, split=(8, 2, 2)),
         "The optimizer steps a copy of the parameters in float32: 4 bytes that are missing."),
    Hint("all by n", lambda s: s.stage < 3 and other(s, stage=3),
         "All shared out, that is stage 3 alone."),
    Hint("a stage too far", lambda s: s.stage < 3 and other(s, stage=s.stage + 1),
         "That is the next stage already."),
    Hint("a stage too few", lambda s: s.stage and other(s, stage=s.stage - 1),
         "That is the stage before."),
    Hint("parameters first", lambda s: other(s, split=(2, 2, 12)) or other(s, split=(2, 12, 2)),
         "Stage 1 shares out the optimizer, which is the largest; then come gradients, then "
         "parameters."),
    Hint("rounded down", lambda s: other(s, by=s.parameters // s.n),
         lambda s: f"{s.n} ranks with that many each leave one parameter over, and somebody has "
         "it: the largest share counts."),
    Hint("one too many", lambda s: other(s, by=s.parameters // s.n + 1),
         lambda s: f"{s.n} ranks share these evenly, nothing is left over: nobody has one more."),
    Hint("cut by bytes", lambda s: s.bytes == by_bytes(s),
         "Somebody has a part of a parameter: whole parameters are dealt out, each with all of its "
         "bytes."),
    Hint("gigabytes", lambda s: s.bytes < s.parameters / s.n,
         "Bytes are asked for, no kilobytes or gigabytes."),
    Hint("other", say=lambda s: f"In stage {s.stage} the first {s.stage} of three are shared out: "
         "the optimizer's 12 bytes of each parameter, 2 of the gradient, 2 of the parameter."),
)


# ShardedOptimizer


def not_as_it_was(s: Seen, places: Any) -> bool:
    """Whether any of these parameters has moved."""
    return any(not same(mine[k], s.start[k]) for mine in s.parameters for k in places)


def lacks_others(s: Seen) -> bool:
    """Whether each rank's parameters are right in part."""
    return not s["same on all ranks"]


def last_group_alone(s: Seen) -> bool:
    """Whether the first of several groups is as it was, and the others are not."""
    others = [k for k in range(len(s.start)) if k not in s.first_group]
    moved = partial(not_as_it_was, s)
    return bool(s.first_group) and not moved(s.first_group) and moved(others)


OPTIMIZER = (
    Hint("no groups", lambda s: s.attribute == "param_groups",
         "A scheduler and a user look at `param_groups`: they have to be there."),
    Hint("not made yet", lambda s: s.attribute == "add_param_group",
         "`self.local` is None until the first group comes: make the optimizer with that group, "
         "and give it the others by its add_param_group."),
    Hint("nothing of a group", lambda s: s.kind == "no parameters",
         "A rank may have no number of a group. torch's optimizers refuse an empty list, and take "
         'a group that is empty: [{"params": []}].'),
    Hint("padding", lambda s: s.kind == "split sizes",
         "A line has zeros at its end where n does not divide its length. unflatten wants the "
         "tensors' own numbers: cut off what is behind them."),
    Hint("frozen moved", lambda s: s.frozen and not_as_it_was(s, s.frozen),
         "A frozen parameter has moved. Its requires_grad is False: it is for no optimizer."),
    Hint("unused moved", lambda s: s.unused and not_as_it_was(s, s.unused),
         "A parameter without a gradient has moved, by weight decay: no gradient, `grad` None, is "
         "not the same as zeros."),
    Hint("scheduler unheard", lambda s: s.deaf is not None and close(s.parameters[0], s.deaf),
         "The learning rate is that of the first day: who changes `param_groups` is not heard."),
    Hint("first group heard",
         lambda s: s.first_heard is not None and close(s.parameters[0], s.first_heard),
         "A scheduler changes the lr of every group, and yours hears the first one's alone."),
    Hint("one group", lambda s: s.one_group is not None and close(s.parameters[0], s.one_group),
         "Both groups were stepped alike: a group's own options count, such as its lr."),
    Hint("last group alone", last_group_alone,
         "Only the last group has moved: make the optimizer once, with the first group, and add "
         "the others to it."),
    Hint("not gathered", lacks_others,
         lambda s: f"The parameters of {who(range(s.n))} differ: each has stepped its own part, "
         "and nobody has the others'."),
    Hint("state of all",
         lambda s: min(s["bytes of state"]) > s.expect["bytes of state"][0].most,
         lambda s: f"A rank keeps {size(max(s['bytes of state']))} of state, and "
         f"{size(s.expect['bytes of state'][0].most)} would do: make the optimizer of this rank's "
         "numbers alone. State that is made is kept, used or not."),
    Hint("dealt out by parameter", lambda s: s.wrong("bytes of state"),
         lambda s: f"The ranks keep {', '.join(map(size, s['bytes of state']))}: one parameter "
         "has most of the numbers. Cut it."),
    Hint("no state", lambda s: s["state of all"] < s.expect["state of all"].least,
         lambda s: f"When the steps are over, all ranks together have {size(s['state of all'])} of "
         f"state, and {size(s.expect['state of all'].least)} are needed to go on: a rank keeps the "
         "optimizer's state of each number in the rank's part."),
    Hint("kept elsewhere", lambda s: s.wrong("kept at rest") and not s.wrong("parameters"),
         lambda s: f"Right, but after the steps a rank has {size(max(s['kept at rest']))} more in "
         f"memory than before them, and {size(s.expect['kept at rest'][0].most)} would do."),
    Hint("frozen sent", lambda s: s.frozen and s.wrong("sent") and not s.wrong("parameters"),
         lambda s: f"Right, but a rank sends {size(max(s.sent))} and {most(s)} would do. Do frozen "
         "parameters travel? Nothing steps them, so they are not shared out."),
    Hint("more bytes", lambda s: s.wrong("sent") and not s.wrong("parameters"),
         lambda s: f"Right, but a rank sends {size(max(s.sent))} and {most(s)} would "
         "do: gradients are averaged already, and each stepped number travels once."),
    Hint("not cleared", lambda s: not s["gradients cleared"],
         "zero_grad() has to clear the gradients of the whole parameters."),
    Hint("keeps gradients",
         lambda s: not s["gradients let go"] and not s.wrong("parameters"),
         "Right, but after zero_grad() a whole gradient is still in memory: a piece's `grad` is a "
         "view of it. Clear those of the pieces too, when they are stepped."),
    Hint("loss of the closure", lambda s: s.wrong("loss") and not s.wrong("parameters"),
         "Right, but `step(closure)` does not return the closure's loss, as torch's optimizers "
         "do."),
    Hint("closure not called", lambda s: close(s.parameters[0], s.without_the_last),
         "The last step has a closure, which computes the gradients, and nothing has moved in that "
         "step: call the closure before you look at the gradients."),
    Hint("never stepped", lambda s: close(s.parameters[0], s.start),
         "Nothing has moved: do your pieces share memory with the parameters, and have they "
         "gradients?"),
    Hint("other", say="The parameters are the same on all ranks, and not those of one process. "
         "Compare after one step, on two ranks, with plain SGD."),
)


# reduce_to_owner


def by_rank(got: Any, wanted: Any) -> bool:
    """Whether each rank has its tensor."""
    return all(same(one, each) for one, each in zip(got, wanted, strict=True))


TO_OWNER = (
    Hint("another dtype", lambda s: s.raised == "RankDied" or s.kind == "dtypes",
         "Has the tensor for the chunk the dtype of `flat`?"),
    Hint("sum", lambda s: s.n > 1 and by_rank(s.chunk, s.total.chunk(s.n)),
         "That is the sum, and the mean was asked for."),
    Hint("own batch", lambda s: by_rank(s.chunk, [x.chunk(s.n)[k] for k, x in enumerate(s.own)]),
         "That is what this rank had already: nobody has sent anything."),
    Hint("another's chunk", lambda s: any(
         by_rank(s.chunk, [s.whole_mean.chunk(s.n)[(k + by) % s.n] for k in range(s.n)])
         for by in range(1, s.n)),
         "Rank 0 has another's chunk: chunk r is rank r's."),
    Hint("overwritten", lambda s: by_rank(s.chunk, (-s.whole_mean).chunk(s.n)),
         "As it was asked again, what it had returned before became the second result: each result "
         "needs memory of its own."),
    Hint("whole mean", lambda s: by_rank(s.chunk, [s.whole_mean] * s.n),
         "That is the whole mean: return this rank's chunk alone."),
    Hint("rounded", lambda s: s.wrong("chunk") and all(
         close(one, each, 2) for one, each in zip(s.chunk, s.expect["chunk"], strict=True)),
         "That is nearly the mean: the numbers were rounded. Keep the dtype of `flat`."),
    Hint("line changed", lambda s: not s["left alone"],
         "`flat` has changed: others look at it still. Divide a copy."),
    Hint("more bytes", lambda s: s.wrong("sent") and not s.wrong("chunk"),
         lambda s: f"Right, but a rank sends {size(max(s.sent))} where {most(s)} would "
         "do: the rest is for chunks of others, which it throws away."),
    Hint("a view", lambda s: s.wrong("memory") and not s.wrong("chunk"),
         "Right, but it is a view, and keeps the whole line in memory. A clone() does not."),
    Hint("other", lambda s: s.wrong("chunk"),
         "That is no mean of the ranks' lines: add up all ranks' numbers of this rank's chunk, "
         "each once, and divide by the number of ranks."),
)


# FullyShard


def alive(s: Seen, when: str) -> int:
    """Blocks in memory at a moment of the step."""
    return int(s["blocks in memory"][when])


def gradients(s: Seen, times: float) -> bool:
    """Whether the ranks' gradients are the right ones so many times."""
    return learns(s, [[times * each for each in mine] for mine in s.right])


def learns(s: Seen, wanted: Any) -> bool:
    """True if these are the ranks' gradients of shards."""
    pairs = zip(s.gradients, wanted, strict=True)
    return all(close(one, each, 1 if s.dtype else 3) for one, each in pairs)


SHARDED = (
    Hint("no work", lambda s: s.attribute == "wait",
         "gather() has to return a Work, for others to wait for: all_gather(…, async_op=True) "
         "gives one."),
    Hint("flat is gone", lambda s: s.attribute == "untyped_storage",
         "`flat` has to stay, without numbers: the views look at its storage. Only the memory "
         "goes, by resize_(0)."),
    Hint("no memory", lambda s: s.kind == "freed" or s.raised == "RankDied",
         "The numbers were gone when the block computed. Has `flat` its memory back before each "
         "forward, and before each backward, and has somebody waited for the gather? And is it "
         "the same memory that the views look at?"),
    Hint("None", lambda s: s.unused and s.kind in ("None", "not its gradient"),
         "A view may have `grad` None: what nothing has used counts as zeros, and keeps its place "
         "in the line."),
    Hint("returns nothing", lambda s: s.kind == "None",
         "The next block was given None: forward returns the block's output."),
    Hint("needs no gradient", lambda s: s.kind == "no hook",
         "Not each tensor can have a hook. Under no_grad, and behind frozen blocks alone, the "
         "output has requires_grad False, and no backward will come. The first block's input is "
         "such a tensor, too."),
    Hint("no zeros at the end", lambda s: s.kind == "no even chunks",
         "n has to divide the length of what is scattered: `line` adds zeros for that."),
    Hint("another dtype", lambda s: s.error and s.dtype,
         "`flat` is in bfloat16 here, and the shard in float32: what travels is in flat's dtype, "
         "and shard.grad in the shard's."),
    Hint("too little memory", lambda s: s.kind == "storage too small",
         "The memory of `flat` is too small for the numbers: resize_ of a storage counts bytes, "
         "and `nbytes` has them."),
    Hint("another line", lambda s: s.kind == "unequal lists",
         "all_gather wants a line of n chunks. Has `flat` still all its numbers? Its memory goes "
         "away by resize_(0) of its storage, and its shape stays."),
    Hint("sum", lambda s: s.n > 1 and gradients(s, s.n),
         lambda s: f"The gradient is {s.n} times too large: the ranks' mean was asked for."),
    Hint("divided twice", lambda s: s.n > 1 and gradients(s, 1 / s.n),
         lambda s: f"The gradient is {s.n} times too small: reduce_to_owner gives a mean already."),
    Hint("last backward alone", lambda s: s.backwards > 1 and s.wrong("gradients"),
         "shard.grad *grows* by each backward, as a gradient does: add to what is there, and leave "
         "nothing in the views."),
    Hint("own batch", lambda s: s.n > 1 and learns(s, s.own),
         "These are the gradients of the rank's own batch: the gradients of other ranks' batches "
         "do not arrive."),
    Hint("stale", lambda s: not s.wrong("gradients") and close(s.output[0], s.untrained, 3),
         "The gradients are right, and the net computes with the parameters that it had at first: "
         "gather from the shards as they are now."),
    Hint("not freed", lambda s: alive(s, "between") > 0,
         lambda s: f"Right, but {alive(s, 'between')} blocks are in memory when the forward is "
         "over: let each go when it has computed."),
    Hint("stays", lambda s: alive(s, "rest") > 0,
         lambda s: f"Between two steps {alive(s, 'rest')} blocks' bytes stay in memory. Does "
         "free() give the memory away? Does no view keep its `grad`?"),
    Hint("many operations", lambda s: s.wrong("operations"),
         lambda s: f"{s.operations} operations in a step, and {s.expect['operations'].most} would "
         "do: "
         "two gathers and one reduction for a block, however many parameters it has."),
    Hint("another width", lambda s: s.dtype and s.wrong("sent") and not s.wrong("gradients"),
         lambda s: f"Right, but a rank sends {size(max(s.sent))} in a step, and {most(s)} would do "
         f"in {s.dtype}. Gathers and reduce-scatters are in flat's dtype."),
    Hint("more bytes", lambda s: s.wrong("sent"),
         lambda s: f"Right, but a rank sends {size(max(s.sent))} in a step, and {most(s)} would "
         "do: only one's own chunk of the gradient is needed."),
    Hint("another direction", lambda s: s.wrong("directions"),
         "`before` is told 1 in a forward and -1 in a backward: who prefetches goes so many blocks "
         "on."),
    Hint("waits", lambda s: s.wrong("gathers waited for at once") and not s.wrong("gradients"),
         "Right, but gather() waits until all is there. It shall start, and return at once: who "
         "waits is wait(), and meanwhile a rank may compute."),
    Hint("gradients", lambda s: s.wrong("gradients"),
         "A shard's gradient is this rank's chunk of the line of gradients: in the order of the "
         "views, frozen parameters left out."),
)


# prefetch


def fetched_again(s: Seen) -> int:
    """How many units are gathered after their backward."""
    order = s.order.split()
    backward = [(place, name[1:]) for place, name in enumerate(order) if name[0] == "b"]
    return sum(f"g{number}" in order[place:] for place, number in backward)


AHEAD = (
    Hint("other attributes", lambda s: s.attribute,
         lambda s: f"Of a unit you need begin() and wait(), and no `{s.attribute}`."),
    Hint("beyond the last", lambda s: s.raised == "IndexError",
         "Behind the last unit is none."),
    Hint("first not begun", lambda s: s.raised == "RuntimeError",
         "A unit was waited for that had not begun to gather: the first of a forward has no unit "
         "before it that would fetch it."),
    Hint("not there", lambda s: s.wrong("computes without parameters"),
         lambda s: f"{s['computes without parameters'].split()[0]} computes on numbers that are "
         "not there: wait for unit k."),
    Hint("all at the start", lambda s: s.order.split().index("f0") > 2,
         lambda s: f"{s['units in memory']} units in memory at a time: only the next one."),
    Hint("wrong way", lambda s: fetched_again(s) > 1,
         "In a backward units come from the last to the first: after unit 3 comes 2, and that is "
         "k + step."),
    Hint("round the end", lambda s: s.wrong("left in memory"),
         lambda s: f"Unit {s['left in memory'].split()[0]} is gathered when nobody needs it any "
         "more: behind the last comes none, and none before the first (units[-1] is the last)."),
    Hint("waits for the next", lambda s: s["computes while one is fetched"] == "nothing"
         and not s.wrong("order"),
         "The next unit begins, and is waited for at once: nothing is on its way as k computes."),
    Hint("forward alone", lambda s: s["computes while one is fetched"].find("b") < 0
         and s["computes while one is fetched"] != "nothing",
         "In a backward nothing is on its way: there the next unit is the one before, k - 1."),
    Hint("nothing ahead", lambda s: s["computes while one is fetched"] == "nothing",
         "Each unit is gathered when it is needed: begin the next one too, before k computes."),
    Hint("other", say=lambda s: f"It happens so: {s.order}. It should: {s.expect['order']}."),
)
# fmt: on
