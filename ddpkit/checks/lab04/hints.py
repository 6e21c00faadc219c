"""Sentences about wrong answers to lab 04: a table for each exercise."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab04.gradients import Gradients, divided
from ddpkit.checks.shared.hints import no_list
from ddpkit.checks.shared.training import Loss, model, vector, whole
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.text import count

if TYPE_CHECKING:
    from torch import Tensor, dtype

MEAN = "1.running_mean"  # a buffer of a BatchNorm
IN_8_BYTES = {"scale", "1.num_batches_tracked"}
BUFFERS = {MEAN, "1.running_var", "1.num_batches_tracked", "mask"}


def undivided(s: Seen) -> int:
    """Return the number of samples that are left out if each batch is cut into equal parts."""
    return sum(size % s.world_size for size in s.expect["batches"])


def shapes(gradients: list[Tensor]) -> list[list[int]]:
    """Return the shape of each gradient."""
    return [list(g.shape) for g in gradients]


# fmt: off
BROADCAST_PARAMETERS = (
    Hint("other calls", lambda s: s.stuck or s.mismatch,
         "All ranks call dist.broadcast for the same tensors in the same order."),
    Hint("differentiated", lambda s: s.kind == "leaf in place",
         "Autograd must not record the copy into a parameter. Use torch.no_grad()."),
    Hint("new Parameters", lambda s: s.wrong("in place"),
         "The module now has new Parameters, or its Parameters have new memory. An optimizer or a "
         "view from before would still use the old values. Write into the old memory: copy_()."),
    Hint("new buffers", lambda s: s.wrong("buffers in place"),
         "The module now has new buffers, or its buffers have new memory. Write into the old "
         "buffers, in place."),
    Hint("requires_grad", lambda s: s.wrong("frozen"),
         "requires_grad has changed. Send a frozen parameter too, but leave the parameter "
         "frozen."),
    Hint("nothing sent", lambda s: s.wrong("sent") and not s.wrong("model"),
         lambda s: f"The values are right, but {s['sent']} went over the network. A rank can get "
         f"the values of rank {s.src} only from rank {s.src}."),
    Hint("last digits", lambda s: s.unlike.keys() == IN_8_BYTES and s.src in s.unlike["scale"],
         "Some values have lost their last digits: send each tensor in its own dtype."),
    Hint("src changed", lambda s: any(s.src in ranks for ranks in s.unlike.values()),
         lambda s: f"Rank {s.src} itself has changed. Send its values: src={s.src}."),
    Hint("own values", lambda s: s.unlike.keys() >= {"0.weight", MEAN},
         lambda s: "Every rank still has its own values, or the values of a rank other than "
         f"{s.src}. Use src."),
    Hint("frozen", lambda s: s.unlike.keys() == {"scale"},
         "A frozen parameter is part of the model, although no optimizer trains it."),
    Hint("state_dict", lambda s: s.unlike.keys() == {"mask"},
         "state_dict() leaves out a buffer, but module.buffers() has all buffers."),
    Hint("buffers", lambda s: s.unlike.keys() <= BUFFERS,
         "The buffers differ. A BatchNorm's running mean is part of the model too."),
    Hint("some differ", lambda s: s.unlike,
         lambda s: f"Some tensors are not as on rank {s.src}: {', '.join(s.unlike)}. Send every "
         "parameter and every buffer."),
)
SHARD = (
    Hint("chunk", lambda s: s.raised == "IndexError",
         "torch.chunk may make fewer parts than there are ranks; tensor_split makes one part for "
         "each rank."),
    Hint("no list", lambda s: s.batches["returned"], lambda s: no_list(s.batches["returned"])),
    Hint("no int64", lambda s: s.batches["of type"],
         "A part is a tensor of int64 with the numbers of the images: x[part] selects the "
         "images."),
    Hint("steps differ", lambda s: s.batches["steps by rank"],
         "The ranks make different numbers of steps, and the rank with most steps would wait "
         "forever. The list needs a part for each batch, even an empty part."),
    Hint("whole batch", lambda s: sum(s.batches) == s.n * s.world_size and not s.samples["missing"],
         "Every rank gets the whole batch, so all ranks would do the same work. Cut the batch, and "
         "take one part."),
    Hint("handed out twice", lambda s: not s.samples["missing"],
         "No number is missing, but some numbers are handed out twice. The parts of a short batch "
         "need not be equally long: lengths may differ by 1."),
    Hint("missing", lambda s: s.samples["missing"] == undivided(s) and not s.samples["too many"],
         "Some numbers are left out. A remainder that the ranks cannot share equally still "
         "counts."),
    Hint("left out", lambda s: not s.samples["too many"],
         lambda s: f"{count(s.samples['missing'], 'number')} of {s.n} are in no rank's part, and "
         "no number is in two parts. Put together the parts of all ranks, from 0 to world_size - "
         "1."),
    Hint("places", lambda s: s.samples["largest"] < s.batch_size < s.n,
         lambda s: f"All numbers are below {s.batch_size}: they are places in a batch. Return the "
         "numbers at these places."),
    Hint("permutations", lambda s: s.wrong("samples"),
         "Some numbers are missing and some come twice. Do all ranks cut the same permutation? The "
         "seed is the epoch, on every rank."),
    Hint("uneven", lambda s: s.wrong("parts"),
         "One rank has much more work, and all ranks wait for this rank. Lengths may differ by at "
         "most 1."),
    Hint("in order", lambda s: s.wrong("order"),
         "The numbers are not shuffled. lab 01's minibatches shuffles."),
    Hint("seed", lambda s: s.wrong("other epochs"),
         "Two epochs have the same order. Use the whole number of the epoch as the seed."),
    Hint("global seed", lambda s: s.wrong("global seed"),
         "Your code seeded torch's global random numbers, or drew from them: then dropout is also "
         "the same on all ranks. lab 01's minibatches has its own generator."),
    Hint("batch_size each",
         lambda s: s.batches[0] == min(s.n, s.batch_size * s.world_size) != s.expect["batches"][0],
         "batch_size is the size of a batch for all ranks together, not for each rank."),
    Hint("sizes", lambda s: s.wrong("batches") and isinstance(s.batches, list), lambda s:
         f"In each step, the parts of all ranks together have {s.batches} numbers, but the batches "
         f"have {s.expect['batches']}."),
)
GRADIENTS_OF = (
    Hint("no list", lambda s: s.kind == "not a list",
         "Return a list: a generator is empty when it is read a second time."),
    Hint("dtype", lambda s: s.kind == "not its gradient",
         "A gradient has the shape and the dtype of its parameter: torch.zeros_like(p)."),
    Hint("no tensor", lambda s: s.kind == "None",
         "If p.grad is None, there is no tensor yet. Put zeros into p.grad first."),
    Hint("frozen", lambda s: s.wrong("frozen .grad"),
         "The .grad of a frozen parameter (requires_grad is False) has changed. Leave frozen "
         "parameters out, even one with an old .grad."),
    Hint("None", lambda s: any(g is None for g in s.gradients),
         "The list still has a None. Replace None by zeros with the shape and dtype of the "
         "parameter."),
    Hint("too few", lambda s: len(s.gradients) < len(s.expect["gradients"]),
         lambda s: f"The list has {len(s.gradients)} of {len(s.expect['gradients'])} gradients. "
         "Each parameter that requires a gradient has a place in the list, with zeros if .grad is "
         "None."),
    Hint("shared twice", lambda s: len(s.gradients) > len(s.expect["gradients"])
         and all(any(same(g, due) for due in s.expect["gradients"]) for g in s.gradients),
         lambda s: f"There are {len(s.gradients)} gradients for {len(s.expect['gradients'])} "
         "parameters, and some gradients are the same. Name a shared parameter once."),
    Hint("too many", lambda s: len(s.gradients) > len(s.expect["gradients"]),
         lambda s: f"There are {len(s.gradients)} gradients, but only {len(s.expect['gradients'])} "
         "parameters with requires_grad."),
    Hint("gone", lambda s: not any(bool(g.any()) for g in s.gradients),
         "The gradients that were there are gone. Use zeros only for a gradient that is None."),
    Hint("order", lambda s: shapes(s.gradients) != shapes(s.expect["gradients"])
         and sorted(shapes(s.gradients)) == sorted(shapes(s.expect["gradients"])),
         "The gradients come in the order of module.parameters()."),
    Hint("shape", lambda s: shapes(s.gradients) != shapes(s.expect["gradients"]), lambda s:
         f"The gradients have the shapes {shapes(s.gradients)}, but the parameters have "
         f"{shapes(s.expect['gradients'])}."),
    Hint("copies", lambda s: s.wrong("the very .grad"),
         "The list holds copies. Put the zeros into p.grad, and return each p.grad itself."),
)
# fmt: on


def near(got: list[Gradients], wanted: list[Gradients], rtol: float = 1e-5) -> bool:
    """True if all ranks' gradients are close to `wanted`."""
    both = zip(chain(*got), chain(*wanted), strict=True)
    return all(
        a is b if a is None or b is None else bool(a.allclose(b.to(a.dtype), rtol=rtol))
        for a, b in both
    )


def everywhere(s: Seen, divisor: int) -> list[Gradients]:
    """Return, for every rank, the sums of the gradients divided by `divisor`."""
    return [divided(s.sums, divisor)] * s.n


def pairs(s: Seen) -> list[tuple[Tensor | None, Tensor | None]]:
    """Return pairs of a returned gradient and its right value, for all gradients of all ranks."""
    return list(zip(chain(*s.means), chain(*s.expect["means"]), strict=True))


def partly_own(s: Seen) -> bool:
    """True if each gradient of each rank is the mean, or else still the rank's own gradient."""
    rows = zip(chain(*s.means), chain(*s.own), chain(*s.expect["means"]), strict=True)
    return all(
        near([[g]], [[mean]]) or near([[g]], [[0 * mean if own is None else own]])
        for g, own, mean in rows
    )


def ordered(by_rank: list[Gradients]) -> list[Gradients]:
    """Return each gradient as a vector, sorted in ascending order."""
    return [[g if g is None else g.flatten().sort().values for g in of_rank] for of_rank in by_rank]


def of_who_has_one(s: Seen) -> list[Gradients]:
    """Return, for every rank, the sums divided by the number of ranks that have the gradient."""
    have = [sum(g is not None for g in of_ranks) for of_ranks in zip(*s.own, strict=True)]
    pairs = zip(s.sums, have, strict=True)
    return [[None if g is None else g / max(1, ranks) for g, ranks in pairs]] * s.n


def besides(s: Seen) -> int:
    """Return the bytes that rank 0 moved beyond the bytes of a right answer."""
    moved, due = (int(calls.split()[-2]) for calls in (s.calls, s.expect["calls"]))
    return moved - due


def from_the_start(s: Seen) -> list[Gradients]:
    """Return the result of a common mistake: each mean is read from the start of the flat vector.

    There is one flat vector for each dtype.
    """
    import torch

    flat: dict[dtype, list[Tensor]] = {}
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
         "Here each rank iterates a set in a different order, as is possible under torchrun, so "
         "the ranks reduce different dtypes together. dict.fromkeys keeps an order that all ranks "
         "share."),
    Hint("other dtypes", lambda s: s.mismatch == "dtype",
         "The ranks call one collective with different dtypes. All ranks have to visit the same "
         "gradients in the same order, and a set has no order."),
    Hint("same list", lambda s: (s.stuck or s.mismatch) and s.missing,
         "Visit the same list of gradients on all ranks: gradients_of(module)."),
    Hint("same calls", lambda s: s.stuck or s.mismatch,
         "All ranks must make the same calls, in the same order."),
    Hint("view", lambda s: s.kind == "no view",
         "A gradient may have its own strides, which view() cannot flatten. Use g.flatten()."),
    Hint("None", lambda s: s.kind == "None",
         "A gradient may be None on some rank. Take the gradients from gradients_of(module)."),
    Hint("dtypes", lambda s: s.kind in ("dtypes", "not its gradient"),
         "A gradient has its parameter's dtype. Make one vector for each dtype."),
    Hint("sum", lambda s: s.n > 1 and near(s.means, everywhere(s, 1)),
         "The result is the sum: no division by the number of ranks has reached p.grad."),
    Hint("divided twice", lambda s: s.n > 1 and near(s.means, everywhere(s, s.n**2)),
         "The result is divided by the number of ranks twice."),
    Hint("parameters", lambda s: s.wrong("parameters"),
         "The parameters have changed. Average the gradients, p.grad."),
    Hint("own gradients", lambda s: s.n > 1 and near(s.means, s.own),
         "Each rank still has its own gradients. Copy the means back into the gradients."),
    Hint("on rank 0 alone", lambda s: s.n > 1 and near(s.means, s.expect["means"][:1] + s.own[1:]),
         "Only rank 0 has the means, but every rank needs the means."),
    Hint("rounded", lambda s: s.wrong("means") and near(s.means, s.expect["means"], rtol=1e-2),
         "Only the first digits of the means are right, so some step rounds. Add and divide in the "
         "dtype of the gradient."),
    # An answer that counts the ranks sends one more number for each gradient, of at most 8 bytes.
    # An answer that averages a shared gradient twice may send as few additional bytes.
    Hint("counted", lambda s: near(s.means, s.expect["means"]) and not s.shared
         and 0 < besides(s) <= 8 * len(s.sums),
         lambda s: f"Here the means are right, but {besides(s)} bytes were sent in addition to the "
         f"gradients: {s.calls}, where {s.expect['calls']} is enough. Do not count the divisor: it "
         "is the number of all ranks, even if some ranks have no such gradient."),
    Hint("other root", lambda s: s.wrong("root") and not s.wrong("means", "calls"), lambda s:
         f"The means are right, but rank {s.root} computes them. Gather to rank 0, and scatter "
         "from rank 0."),
    Hint("other calls", lambda s: near(s.means, s.expect["means"]),
         lambda s: f"Here the means are right, but by different calls: {s.calls}. The exercise "
         f"asks for {s.makes}: {s.expect['calls']}."),
    Hint("of who has one", lambda s: near(s.means, of_who_has_one(s)),
         lambda s: "Your code divides a sum by the number of ranks that have the gradient. A "
         f"missing gradient counts as zeros, so with {s.n} ranks divide by {s.n}."),
    Hint("from the start", lambda s: near(s.means, from_the_start(s)),
         "Each gradient got the numbers at the beginning of the flat vector. A gradient's numbers "
         "begin where those of the previous gradient end."),
    Hint("frozen", lambda s: any(g is not None and mean is None for g, mean in pairs(s)),
         "A frozen parameter has got a gradient. Leave frozen parameters out."),
    Hint("still None", lambda s: any(g is None and mean is not None for g, mean in pairs(s)),
         "A gradient that was None is still None. It counts as zeros, and afterwards it is the "
         "mean."),
    Hint("shape", lambda s: any(g is not None is not mean and g.shape != mean.shape
                                for g, mean in pairs(s)),
         "A gradient has changed its shape. Copy the mean back in the shape of the gradient."),
    Hint("some own", lambda s: partly_own(s),
         "Some gradients are the mean, and some are still a rank's own. Every rank needs the mean "
         "of every gradient."),
    Hint("ranks differ", lambda s: not near(s.means, s.means[:1] * s.n),
         "The ranks differ. All ranks have to add up, and all ranks have to divide."),
    Hint("wrong places", lambda s: near(ordered(s.means), ordered(s.expect["means"])),
         "The means are right, but in the wrong places. A gradient may have its own strides: "
         "flatten and view_as go by rows for all strides."),
    Hint("no mean", say="A mean is the sum over all ranks, divided by the number of ranks, "
         "dist.get_world_size(). A missing gradient counts as zeros."),
)
AVERAGE_FLAT = (
    Hint("one dtype of two", lambda s: near(s.means, s.expect["means"])
         and s.calls.startswith("all_reduce ×1,"),
         lambda s: f"torch.cat made one dtype out of two: {s.calls}, where {s.expect['calls']} is "
         "enough. Make one vector for each dtype."),
    *AVERAGE,
)
# fmt: on


def leads_there(s: Seen, **mistake: object) -> bool:
    """True if a process that trains with this mistake gets the answer's parameters in each step."""
    return bool(s.after_each.allclose(s.trained(**mistake), rtol=1e-6))


def unchanged(s: Seen) -> Any:
    """Return a tensor [rank, step]: True if the rank still has rank 0's initial parameters."""
    return (s.after_each == vector(model(s.seed))).all(dim=2)


# fmt: off
LOSSES: tuple[tuple[str, Loss, str], ...] = (  # common mistakes
    ("mean of means", lambda losses: sum(losses.means) / losses.n,
     "A mean of means gives each image of a short part too much weight."),
    ("mean, divided", lambda losses: sum(losses.means) / sum(losses.images),
     "The loss is a mean already. Take the sum over the part, and divide the sum by the images."),
    ("summed loss", lambda losses: sum(losses.sums),
     "The result is the gradient of the summed loss. Divide by the images of the whole batch."),
    ("ranks, not images", lambda losses: sum(losses.sums) / losses.n,
     "The result is the sum over a batch, divided by the number of ranks. Divide by the images of "
     "the batch too."),
    ("too small", lambda losses: whole(losses) / losses.n,
     "The step is too small by the number of ranks: averaging already divides by this number."),
    ("too large", lambda losses: whole(losses) * losses.n,
     "The step is too large by the number of ranks. Are the gradients averaged, and not added up? "
     "And is lr the given lr?"),
    ("apart", lambda losses: losses.sums[losses.rank] * losses.n / sum(losses.images),
     "Each rank trains a different model. Average the gradients before the step."),
)
TRAIN = (
    Hint("empty part", lambda s: s.stuck or s.mismatch,
         "A rank with an empty part must still take part in the step: all ranks wait for this rank "
         "in each all_reduce."),
    Hint("steps", lambda s: s.wrong("steps"),
         "Each part is one step, on all ranks. Use all parts, one after the next."),
    Hint("mode", lambda s: s.wrong("for training"),
         "The model is not in training mode: model.eval() turns off dropout and the statistics of "
         "batch norms."),
    Hint("start", lambda s: s.wrong("start"),
         "The ranks start from different models. Call broadcast_parameters(model) first."),
    Hint("no change", lambda s: unchanged(s).all(),
         "No step has changed the model: zero_grad() drops the gradients of backward()."),
    Hint("late change", lambda s: unchanged(s)[:, :-1].all(),
         "When your code asks for the next part, the model has not changed. Take a part, then make "
         "a step."),
    Hint("momentum", lambda s: s.momentum and leads_there(s, momentum=0.0),
         "Momentum has no effect. Pass momentum to the optimizer, and keep the same optimizer."),
    Hint("momentum by default", lambda s: not s.momentum and leads_there(s, momentum=0.9),
         "The case asks for no momentum, but your steps have momentum. The default of momentum is "
         "0."),
    Hint("old gradients", lambda s: leads_there(s, zero_grad=False),
         "Old gradients are still in .grad. Call zero_grad() before backward."),
    *(Hint(name, partial(leads_there, loss=loss), says) for name, loss, says in LOSSES),
    Hint("ranks differ", lambda s: s.wrong("ranks"),
         "The ranks make different steps. Each rank must take the same mean, after the "
         "averaging."),
    Hint("other batch", say="One process starts from rank 0's model. In each step, the process "
         "takes the gradient of the mean over all images of the whole batch, and makes a step of "
         "SGD with momentum."),
)
# fmt: on
