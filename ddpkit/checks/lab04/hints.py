"""What to say of wrong answers to lab 04: a table for each exercise."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

from ddpkit.checks.lab04.gradients import Gradients, divided
from ddpkit.checks.shared.hints import no_list
from ddpkit.checks.shared.training import Loss, model, vector, whole
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.text import count

MEAN = "1.running_mean"  # of a BatchNorm
IN_8_BYTES = {"scale", "1.num_batches_tracked"}
BUFFERS = {MEAN, "1.running_var", "1.num_batches_tracked", "mask"}


def undivided(s: Seen) -> int:
    """How many numbers are left out where each part of a batch is as long as the shortest."""
    return sum(size % s.world_size for size in s.expect["batches"])


def shapes(gradients: Gradients) -> list[list[int]]:
    """Return the shape of each gradient."""
    return [list(g.shape) for g in gradients]


# fmt: off
BROADCAST_PARAMETERS = (
    Hint("other calls", lambda s: s.stuck or s.mismatch,
         "All ranks call dist.broadcast for the same tensors in the same order."),
    Hint("differentiated", lambda s: s.kind == "leaf in place",
         "Copying into a parameter is not to be differentiated: torch.no_grad()."),
    Hint("new Parameters", lambda s: s.wrong("in place"),
         "The module has new Parameters now, or the Parameters have new memory: an optimizer or a "
         "view of before would go on with the old values. Write into the old memory: copy_()."),
    Hint("new buffers", lambda s: s.wrong("buffers in place"),
         "The module has new buffers now, or the buffers have new memory: write into the old "
         "buffers, in place."),
    Hint("requires_grad", lambda s: s.wrong("frozen"),
         "requires_grad has changed: a frozen parameter is sent, and stays frozen."),
    Hint("nothing sent", lambda s: s.wrong("sent") and not s.wrong("model"),
         lambda s: f"The values are right, and {s['sent']} went over the network: a rank can have "
         f"those of rank {s.src} from rank {s.src} alone."),
    Hint("last digits", lambda s: s.unlike.keys() == IN_8_BYTES and s.src in s.unlike["scale"],
         "Some values have lost their last digits: send each tensor in its own dtype."),
    Hint("src changed", lambda s: any(s.src in ranks for ranks in s.unlike.values()),
         lambda s: f"Rank {s.src} itself has changed: its values are the ones to send, in "
         f"src={s.src}."),
    Hint("own values", lambda s: s.unlike.keys() >= {"0.weight", MEAN},
         lambda s: f"Every rank still has its own values, or another rank's than {s.src}'s: use "
         "src."),
    Hint("frozen", lambda s: s.unlike.keys() == {"scale"},
         "A frozen parameter is part of the model, though nobody trains it."),
    Hint("state_dict", lambda s: s.unlike.keys() == {"mask"},
         "state_dict() leaves a buffer out: module.buffers() has all buffers."),
    Hint("buffers", lambda s: s.unlike.keys() <= BUFFERS,
         "The buffers differ: a BatchNorm's running mean is part of the model too."),
    Hint("some differ", lambda s: s.unlike,
         lambda s: f"Not as on rank {s.src}: {', '.join(s.unlike)}. Every parameter and "
         "every buffer is sent."),
)
SHARD = (
    Hint("chunk", lambda s: s.raised == "IndexError",
         "torch.chunk may make fewer parts than there are ranks; tensor_split makes all."),
    Hint("no list", lambda s: s.batches["returned"], lambda s: no_list(s.batches["returned"])),
    Hint("no int64", lambda s: s.batches["of type"],
         "A part is a tensor of int64, which says which images to take: x[part]."),
    Hint("steps differ", lambda s: s.batches["steps by rank"],
         "The ranks make different numbers of steps, and the rank with most would wait for ever. "
         "The list has a part for each batch, an empty part too."),
    Hint("whole batch", lambda s: sum(s.batches) == s.n * s.world_size and not s.samples["missing"],
         "Every rank gets the whole batch: all would do the same work. Cut it, take one part."),
    Hint("handed out twice", lambda s: not s.samples["missing"],
         "No number is missing, and some are handed out twice. The parts of a short batch need not "
         "be equally long: lengths may differ by 1."),
    Hint("missing", lambda s: s.samples["missing"] == undivided(s) and not s.samples["too many"],
         "Some numbers are left out: what does not divide by the ranks still counts."),
    Hint("left out", lambda s: not s.samples["too many"],
         lambda s: f"{count(s.samples['missing'], 'number')} of {s.n} are in no rank's part, and "
         "none is in two. Put together the parts of all ranks, from 0 to world_size - 1."),
    Hint("places", lambda s: s.samples["largest"] < s.batch_size < s.n,
         lambda s: f"All numbers are below {s.batch_size}: these are places in a batch, and the "
         "numbers at these places are asked for."),
    Hint("permutations", lambda s: s.wrong("samples"),
         "Some numbers are missing and others twice. Do all ranks cut the same permutation? The "
         "seed is the epoch, on every rank."),
    Hint("uneven", lambda s: s.wrong("parts"),
         "One rank has much more work than the others, who wait: lengths differ by 1 at most."),
    Hint("in order", lambda s: s.wrong("order"),
         "The numbers are not shuffled: lab 01's minibatches does that."),
    Hint("seed", lambda s: s.wrong("other epochs"),
         "Two epochs have the same order: let the seed be the number of the epoch, all of it."),
    Hint("global seed", lambda s: s.wrong("global seed"),
         "torch's global random numbers were seeded, or drawn from: then dropout, too, is the same "
         "on all ranks. lab 01's minibatches has a generator of its own."),
    Hint("batch_size each",
         lambda s: s.batches[0] == min(s.n, s.batch_size * s.world_size) != s.expect["batches"][0],
         "A batch is batch_size for all ranks together, not for each."),
    Hint("sizes", lambda s: s.wrong("batches") and isinstance(s.batches, list), lambda s:
         f"The parts of all ranks together have {s.batches} numbers in the steps, and the batches "
         f"{s.expect['batches']}."),
)
GRADIENTS_OF = (
    Hint("no list", lambda s: s.kind == "not a list",
         "Give back a list: a generator is empty for who goes over it again."),
    Hint("dtype", lambda s: s.kind == "not its gradient",
         "A gradient has the shape and the dtype of its parameter: torch.zeros_like(p)."),
    Hint("no tensor", lambda s: s.kind == "None",
         "Where p.grad is None there is no tensor yet: put zeros there first."),
    Hint("frozen", lambda s: s.wrong("frozen .grad"),
         "A frozen parameter (requires_grad is False) has no gradient, and needs none."),
    Hint("None", lambda s: any(g is None for g in s.gradients),
         "A None is left in the list: make it zeros, of the shape and dtype of the parameter."),
    Hint("too few", lambda s: len(s.gradients) < len(s.expect["gradients"]),
         lambda s: f"{len(s.gradients)} of {len(s.expect['gradients'])} gradients. Each "
         "parameter that requires a gradient has a place in the list; zeros where .grad is None."),
    Hint("shared twice", lambda s: len(s.gradients) > len(s.expect["gradients"])
         and all(any(same(g, due) for due in s.expect["gradients"]) for g in s.gradients),
         lambda s: f"{len(s.gradients)} gradients for {len(s.expect['gradients'])} parameters, and "
         "some gradients are the same: name a shared parameter once."),
    Hint("too many", lambda s: len(s.gradients) > len(s.expect["gradients"]),
         lambda s: f"{len(s.gradients)} gradients for {len(s.expect['gradients'])} parameters with "
         "requires_grad."),
    Hint("gone", lambda s: not any(bool(g.any()) for g in s.gradients),
         "The gradients that were there are gone: zeros are for those that are None."),
    Hint("order", lambda s: shapes(s.gradients) != shapes(s.expect["gradients"])
         and sorted(shapes(s.gradients)) == sorted(shapes(s.expect["gradients"])),
         "The gradients come in the order of module.parameters()."),
    Hint("shape", lambda s: shapes(s.gradients) != shapes(s.expect["gradients"]), lambda s:
         f"The gradients have the shapes {shapes(s.gradients)}, and the parameters "
         f"{shapes(s.expect['gradients'])}."),
    Hint("copies", lambda s: s.wrong("the very .grad"),
         "These are copies: put the zeros into p.grad, and return the p.grad themselves."),
)
# fmt: on


def near(got: list[Gradients], wanted: list[Gradients], rtol: float = 1e-5) -> bool:
    """Whether all ranks' gradients are these, up to rounding."""
    both = zip(chain(*got), chain(*wanted), strict=True)
    return all(
        a is b if a is None or b is None else bool(a.allclose(b.to(a.dtype), rtol=rtol))
        for a, b in both
    )


def everywhere(s: Seen, divisor: int) -> list[Gradients]:
    """The sums, divided, on every rank."""
    return [divided(s.sums, divisor)] * s.n


def pairs(s: Seen) -> list[tuple[Any, Any]]:
    """Each gradient and what it is to be, of all ranks."""
    return list(zip(chain(*s.means), chain(*s.expect["means"]), strict=True))


def ordered(by_rank: list[Gradients]) -> list[Gradients]:
    """The numbers of each gradient, in order of size."""
    return [[g if g is None else g.flatten().sort().values for g in of_rank] for of_rank in by_rank]


def of_who_has_one(s: Seen) -> list[Gradients]:
    """The sums, divided by how many ranks have such a gradient, on every rank."""
    have = [sum(g is not None for g in of_ranks) for of_ranks in zip(*s.own, strict=True)]
    pairs = zip(s.sums, have, strict=True)
    return [[None if g is None else g / max(1, ranks) for g, ranks in pairs]] * s.n


def besides(s: Seen) -> int:
    """The bytes that rank 0 moved beyond those of the gradients."""
    moved, due = (int(calls.split()[-2]) for calls in (s.calls, s.expect["calls"]))
    return moved - due


def from_the_start(s: Seen) -> list[Gradients]:
    """Means that all begin where the first gradient of their dtype begins in the flat vector."""
    import torch

    flat: dict[Any, list[Any]] = {}
    for mean in s.expect["means"][0]:
        if mean is not None:
            flat.setdefault(mean.dtype, []).append(mean.flatten())
    vectors = {dtype: torch.cat(parts) for dtype, parts in flat.items()}
    return [
        [None if g is None else vectors[g.dtype][: g.numel()].view(g.shape) for g in of_rank]
        for of_rank in s.expect["means"]
    ]


# fmt: off
AVERAGE = (
    Hint("a set", lambda s: s.sets,
         "Here each rank has another order of what is in a set, as it may be under torchrun: so "
         "they reduce different dtypes together. dict.fromkeys keeps an order, which all share."),
    Hint("other dtypes", lambda s: s.mismatch == "dtype",
         "The ranks call one collective with different dtypes. All ranks have to go through the "
         "same gradients in the same order, and a set has no order."),
    Hint("same list", lambda s: (s.stuck or s.mismatch) and s.missing,
         "Go through the same list of gradients on all ranks: gradients_of(module)."),
    Hint("same calls", lambda s: s.stuck or s.mismatch,
         "All ranks must make the same calls, in the same order."),
    Hint("view", lambda s: s.kind == "no view",
         "A gradient may have strides of its own, which view() cannot flatten: g.flatten()."),
    Hint("None", lambda s: s.kind == "None",
         "A gradient may be None on some rank: take them from gradients_of(module)."),
    Hint("dtypes", lambda s: s.kind in ("dtypes", "not its gradient"),
         "A gradient has its parameter's dtype: make one vector for each dtype."),
    Hint("sum", lambda s: s.n > 1 and near(s.means, everywhere(s, 1)),
         "That is the sum: divide by the number of ranks."),
    Hint("divided twice", lambda s: s.n > 1 and near(s.means, everywhere(s, s.n**2)),
         "That is divided by the number of ranks twice."),
    Hint("parameters", lambda s: s.wrong("parameters"),
         "The parameters have changed: it is the gradients, p.grad, that are averaged."),
    Hint("own gradients", lambda s: s.n > 1 and near(s.means, s.own),
         "Each rank still has its own gradients: copy the means back into them."),
    Hint("on rank 0 alone", lambda s: s.n > 1 and near(s.means, s.expect["means"][:1] + s.own[1:]),
         "Only rank 0 has the means: the others need them too."),
    Hint("rounded", lambda s: s.wrong("means") and near(s.means, s.expect["means"], rtol=1e-2),
         "The means are right in their first digits only: something is rounded on the way. Add and "
         "divide in the dtype of the gradient."),
    # At most a number for each gradient. One that is shared and averaged twice may be as short.
    Hint("counted", lambda s: near(s.means, s.expect["means"]) and not s.shared
         and 0 < besides(s) <= 8 * len(s.sums),
         lambda s: f"Here the means are right, and {besides(s)} bytes more than the gradients were "
         f"sent: {s.calls}, where {s.expect['calls']} would do. The divisor need not be counted: "
         "it is the number of all ranks, also where some have no such gradient."),
    Hint("other root", lambda s: s.wrong("root") and not s.wrong("means", "calls"), lambda s:
         f"The means are right, but rank {s.root} makes them: gather to rank 0, and scatter from "
         "it."),
    Hint("other calls", lambda s: near(s.means, s.expect["means"]),
         lambda s: f"Here the means are right, by other calls: {s.calls}. It is {s.makes}: "
         f"{s.expect['calls']}."),
    Hint("of who has one", lambda s: near(s.means, of_who_has_one(s)),
         lambda s: "A sum was divided by the number of ranks that have such a gradient: a missing "
         f"one counts as zeros, so with {s.n} ranks divide by {s.n}."),
    Hint("from the start", lambda s: near(s.means, from_the_start(s)),
         "Each gradient has got what stands at the beginning of the flat vector: it goes on where "
         "the gradient before it ends."),
    Hint("frozen", lambda s: any(g is not None and mean is None for g, mean in pairs(s)),
         "A frozen parameter has got a gradient: leave it out."),
    Hint("still None", lambda s: any(g is None and mean is not None for g, mean in pairs(s)),
         "A gradient that was None still is: it counts as zeros, and has the mean afterwards."),
    Hint("ranks differ", lambda s: not near(s.means, s.means[:1] * s.n),
         "The ranks differ: all of them have to add up, and all to divide."),
    Hint("wrong places", lambda s: near(ordered(s.means), ordered(s.expect["means"])),
         "The right means in the wrong places. A gradient may have strides of its own: flatten and "
         "view_as go by rows, whatever these are."),
    Hint("no mean", say="A mean is the sum over all ranks, of zeros where a rank has none, divided "
         "by the number of ranks: dist.get_world_size()."),
)
AVERAGE_FLAT = (
    Hint("one dtype of two", lambda s: near(s.means, s.expect["means"])
         and s.calls.startswith("all_reduce ×1,"),
         lambda s: f"torch.cat made one dtype of two: {s.calls} where {s.expect['calls']} would "
         "do. Take one vector for each dtype."),
    *AVERAGE,
)
# fmt: on


def leads_there(s: Seen, **mistake: object) -> bool:
    """Whether one process that makes this mistake has the answer's models."""
    return bool(s.after_each.allclose(s.trained(**mistake), rtol=1e-6))


def unchanged(s: Seen) -> Any:
    """Whether the model is as in the beginning, by rank and step."""
    return (s.after_each == vector(model(s.seed))).all(dim=2)


# fmt: off
LOSSES: tuple[tuple[str, Loss, str], ...] = (  # usual mistakes
    ("mean of means", lambda losses: sum(losses.means) / losses.n,
     "A mean of means gives each image of a short part too much weight."),
    ("mean, divided", lambda losses: sum(losses.means) / sum(losses.images),
     "The loss is a mean already: take the sum over the part, and divide that by the images."),
    ("summed loss", lambda losses: sum(losses.sums),
     "That is the gradient of the summed loss: divide by the images of the whole batch."),
    ("ranks, not images", lambda losses: sum(losses.sums) / losses.n,
     "That is the sum over a batch, divided by the number of ranks: and by its images."),
    ("too small", lambda losses: whole(losses) / losses.n,
     "The step is too small by the number of ranks: averaging divides by it already."),
    ("too large", lambda losses: whole(losses) * losses.n,
     "The step is too large by the number of ranks: gradients are added up, not averaged."),
    ("apart", lambda losses: losses.sums[losses.rank] * losses.n / sum(losses.images),
     "Each rank goes its own way: average before the step."),
)
TRAIN = (
    Hint("empty part", lambda s: s.stuck or s.mismatch,
         "A rank with an empty part must take part in the step all the same: the others wait for "
         "it in each all_reduce."),
    Hint("steps", lambda s: s.wrong("steps"),
         "Each part is one step, on all ranks: take them all, one after the other."),
    Hint("mode", lambda s: s.wrong("for training"),
         "The model is not in the mode for training: model.eval() turns dropout and the statistics "
         "of batch norms off."),
    Hint("start", lambda s: s.wrong("start"),
         "The ranks start from different models: broadcast_parameters(model) comes first."),
    Hint("no change", lambda s: unchanged(s).all(),
         "No step has changed the model: zero_grad() forgets what backward() has made."),
    Hint("late change", lambda s: unchanged(s)[:, :-1].all(),
         "When the next part is asked for, nothing has changed: take a part, make a step."),
    Hint("momentum", lambda s: s.momentum and leads_there(s, momentum=0.0),
         "Momentum has no effect: the optimizer needs it, and must live on."),
    Hint("momentum by default", lambda s: not s.momentum and leads_there(s, momentum=0.9),
         "Nobody asked for momentum here, and there is some: without it momentum is 0."),
    Hint("old gradients", lambda s: leads_there(s, zero_grad=False),
         "Old gradients are still in .grad: zero_grad() before backward."),
    *(Hint(name, partial(leads_there, loss=loss), says) for name, loss, says in LOSSES),
    Hint("ranks differ", lambda s: s.wrong("ranks"),
         "The ranks make different steps: each takes the same mean, and after averaging."),
    Hint("other batch", say="One process starts from rank 0's model. Its gradient is that of the "
         "mean over all images of this step's batch, and its step that of SGD with momentum."),
)
# fmt: on
