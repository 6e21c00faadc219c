"""Sentences about wrong minibatches, wrong steps of SGD, and wrong sums of gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from ddpkit.checks.shared.hints import no_list
from ddpkit.exercises.hint import Hint, Seen

if TYPE_CHECKING:
    from torch import Tensor

NO_LIST = Hint("no list", lambda s: s.returned, lambda s: no_list(s.returned))
# fmt: off
EPOCH = (
    NO_LIST,
    Hint("not int64", lambda s: s.samples.startswith("of type"),
         "A batch is a tensor of int64 with the numbers of the images: x[batch] selects the "
         "images."),
    Hint("last left out", lambda s: s.rest and s.samples == f"{s.rest} missing, 0 twice"
         and s.sizes == s.expect["sizes"][:-1],
         "The last batch is missing: it is smaller, but it still counts."),
    Hint("out of range", lambda s: s.samples.endswith(" out of range"),
         lambda s: f"The numbers are 0 to n - 1, each once. Here: {s.samples}."),
    Hint("put back", lambda s: s.samples.endswith(" twice") and not s.samples.endswith(" 0 twice"),
         lambda s: "Some numbers come twice. " + (
             "The last batch has only the numbers that are left, so it may be shorter."
             if s.samples.startswith("0 missing") else
             "If you draw each batch separately, the same number may be drawn again. Shuffle all "
             "numbers once (torch.randperm), then cut.")),
    Hint("missing", lambda s: s.wrong("samples"),
         lambda s: f"An epoch has each number from 0 to n - 1 once. Here: {s.samples}."),
    Hint("not shuffled", lambda s: s.order == "as they come",
         "The numbers are not shuffled, or only whole batches are, or only the numbers within "
         "each batch. Shuffle all numbers, then cut: digits that are close together in the data "
         "may be alike."),
    Hint("seed ignored", lambda s: s.seed == "ignored",
         "Another seed must give another order: torch.Generator().manual_seed(seed)."),
    Hint("seed not enough", lambda s: s.seed == "not enough",
         "The same seed must give the same batches, even if random numbers were drawn before. Seed "
         "your own torch.Generator, and pass it as generator=."),
    Hint("global seed", lambda s: s.wrong("global seed"),
         "Your code seeded torch's global random numbers, or drew from them. Make a "
         "torch.Generator, and pass it as generator=."),
    Hint("sizes", lambda s: s.wrong("sizes"),
         "Each batch has batch_size numbers. The last batch has the numbers that are left, so it "
         "may be shorter."),
)
# fmt: on

# Wrong steps that some people write. The first function returns the new velocity, from v, g, lr and
# the momentum m; the second returns the subtracted tensor.
Velocity: TypeAlias = "Callable[[Tensor, Tensor, float, float], Tensor]"
Subtracted: TypeAlias = "Callable[[Tensor, float], Tensor]"
# fmt: off
STEPS: tuple[tuple[str, str, Velocity, Subtracted], ...] = (
    ("uphill", "Downhill is against the gradient: subtract.",
     lambda v, g, lr, m: m * v + g, lambda v, lr: -lr * v),
    ("no lr", "The step must be lr times the velocity, but your step does not use lr.",
     lambda v, g, lr, m: m * v + g, lambda v, lr: v),
    ("damped", "torch does not damp the gradient: the new velocity is m * v + g, not "
     "m * v + (1 - m) * g.",
     lambda v, g, lr, m: m * v + (1 - m) * g, lambda v, lr: lr * v),
    ("lr inside", "Multiply by lr when you take the step, not inside the velocity: lr may change.",
     lambda v, g, lr, m: m * v + lr * g, lambda v, lr: v),
    ("v *= lr", "The velocity itself has been multiplied by lr. Write lr * v, which makes a new "
     "tensor; v *= lr changes the "
     "velocity.", lambda v, g, lr, m: lr * (m * v + g), lambda v, lr: v),
    ("no momentum", "Momentum has no effect. Add momentum times the velocity of the previous "
    "step.",
     lambda v, g, lr, m: g, lambda v, lr: lr * v),
)


def steps_are(velocity: Velocity, subtracted: Subtracted, s: Seen) -> bool:
    """True if the answer's parameters are those after SGD with these formulas.

    `velocity` and `subtracted` are the formulas of a common mistake.
    """
    parameters, velocities = list(s.start), [0.0 * p for p in s.start]
    for given, lr in zip(s.steps, s.rates, strict=True):
        pairs = zip(velocities, given, strict=True)
        velocities = [velocity(v, g, lr, s.momentum) for v, g in pairs]
        parameters = [p - subtracted(v, lr) for p, v in zip(parameters, velocities, strict=True)]
    return s.wrong("parameters") and near(s.parameters, parameters)


STEP = (
    Hint("differentiated", lambda s: s.kind == "leaf in place",
         "Autograd must not record the step. Put the step under `with torch.no_grad():`."),
    Hint("no first step", lambda s: s.kind == "None",
         "A value here is None. At the first step, `velocities` is None: begin with zeros. p.grad "
         "is None as well: the gradients are the second argument."),
    Hint("not returned", lambda s: s.wrong("velocities"),
         "Return the new velocities, one for each parameter: the next step needs them."),
    Hint("unchanged", lambda s: near(s.parameters, s.start),
         "The parameters have not changed. Change the parameters in place with the new velocity: p "
         "-= ..., not p = p - ...."),
    Hint("gradients changed", lambda s: s.wrong("gradients"),
         "The gradients that you were given have changed: a velocity must be a new tensor."),
    Hint("in turn", lambda s: not s.wrong("parameters") and s.wrong("two models in turn"),
         "One model alone is right, but two models that take turns mix their velocities. Use the "
         "velocities that are passed, and keep none between calls."),
    Hint("not in place", lambda s: not s.wrong("parameters") and s.wrong("in place"),
         "The parameters have new memory: a view taken before the step still has the old values. "
         "Change the old memory: p -= ..., or p.data.sub_(...)."),
    *(Hint(name, partial(steps_are, v, step), says) for name, says, v, step in STEPS),
    Hint("velocity", lambda s: s.wrong("parameters"),
         "The new velocity of each parameter is momentum * velocity + gradient (at the first step, "
         "only the gradient). Subtract only lr * velocity from the parameter."),
)


def total(s: Seen, weights: Sequence[float]) -> list[Tensor]:
    """Return, for each parameter, the weighted sum of the micro-batches' gradients."""
    columns = zip(*s.parts, strict=True)
    return [sum(w * g for w, g in zip(weights, each, strict=True)) for each in columns]


PIECES = (
    NO_LIST,
    Hint("parameters changed", lambda s: s.wrong("parameters"),
         "The parameters have changed. accumulate takes no step: it only returns gradients."),
    Hint("all at once", lambda s: s.images_at_a_time == [sum(s.lengths)] != s.lengths,
         "All images went through the model at once. Pass one micro-batch at a time."),
    Hint("other pieces", lambda s: not s.wrong("gradients") and s.wrong("images at a time"),
         lambda s: "The gradients are right. But the loss was computed on "
         f"{', '.join(map(str, s.images_at_a_time))} images, and the micro-batches have "
         f"{', '.join(map(str, s.lengths))}. Use each micro-batch once."),
    Hint("graphs held", lambda s: s.wrong("graphs held") and not s.wrong("gradients"),
         "The gradients are right, but the graphs of several micro-batches were in memory "
         "together, and memory has no room for several. Take the gradient of a micro-batch before "
         "the next forward."),
    Hint("added up", lambda s: s.n > 1 and near(s.gradients, total(s, [1] * s.n)),
         "The gradients are added up. The losses are means, so take the (weighted) mean of the "
         "gradients."),
    Hint("only the last", lambda s: s.n > 1 and near(s.gradients, s.parts[-1]),
         "Your result is the gradient of the last micro-batch alone. Add up the gradients of all "
         "micro-batches."),
    Hint("plain mean", lambda s: s.n > 1 and near(s.gradients, total(s, [1 / s.n] * s.n)),
         "A plain mean gives each image of the short micro-batch too much weight. "
         "Weight each gradient by its share of the images."),
    Hint("summed loss", lambda s: near(s.gradients, total(s, s.lengths)),
         "The result is the gradient of the summed loss. Divide by the number of all images."),
    Hint("old grad", lambda s: near(s.gradients, [g + 1 for g in s.whole]),
         "p.grad was not empty before, and backward() adds to p.grad. Clear p.grad first."),
    Hint("not all", lambda s: len(s.images_at_a_time) < s.n,
         lambda s: f"There are {s.n} micro-batches, but the loss was computed on only "
         f"{len(s.images_at_a_time)}."),
    Hint("cleared each time",
         lambda s: s.n > 1 and near(
             s.gradients, [g * s.lengths[-1] / sum(s.lengths) for g in s.parts[-1]]),
         "Only the last micro-batch counts. Clear p.grad once, before the first micro-batch."),
    Hint("share", lambda s: s.wrong("gradients"),
         "The gradients are not those of the mean loss over all images. Weight each gradient by "
         "its share of the images: the micro-batch's len(y), divided by the number of all "
         "images."),
)
# fmt: on


def near(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    import torch

    return all(torch.allclose(a, b, rtol=1e-9) for a, b in zip(one, other, strict=True))
