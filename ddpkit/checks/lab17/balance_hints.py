"""Lab 17: the hints for the balance loss, the bias and the gradients of experts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ddpkit.checks.lab17.hints import CHANGED, is_model, right_but, sends_more
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close


def _loss_as(*names: str) -> Callable[[Seen], object]:
    return lambda s: any(s.wrong("loss") and is_model(s.loss, s.given[name]) for name in names)


def _added(why: str) -> Any:
    return lambda s: (said := sends_more(s)) and said + why


# fmt: off
MINLENGTH = Hint(
    "minlength", lambda s: s.mismatch or s.kind in ("shapes", "factors"),
    "bincount stops at the largest number that was chosen, so the counts of two ranks may have "
    "different lengths: give the number of experts as minlength.")
LOSS = (
    MINLENGTH,
    Hint("changed", lambda s: s.wrong("left alone"), CHANGED),
    Hint("each rank alone", lambda s: s.n > 1 and _loss_as("own")(s),
         lambda s: f"{s.loss[0]:.2f} on rank 0, {s.loss[1]:.2f} on rank 1: each rank has counted "
         "its own choices. Count the choices of all ranks."),
    Hint("not times experts", _loss_as("not_times"),
         "The loss is too small by the number of experts: it has to be 1 where all is even."),
    Hint("counts tokens", _loss_as("of_tokens"),
         lambda s: f"Where all is even, this loss is {s.k}: a token has {s.k} choices, so the "
         "shares have to be shares of the choices, not of the tokens."),
    Hint("sum for mean", _loss_as("summed"),
         "The probabilities are added up over the tokens: take their mean."),
    Hint("first choices", _loss_as("first"),
         "Only the first choices were counted: all k choices of a token count."),
    Hint("no gradient", _loss_as("of_all", "of_all_summed"),
         "The mean probability is that of all ranks. An all-reduce leaves the graph, so the "
         "gradient would be wrong: keep this rank's own mean probability."),
    Hint("smooth shares", _loss_as("smooth", "smooth_own"),
         "The shares come from the probabilities: take the shares of the choices. Counts have no "
         "gradient, and need none."),
    Hint("rounded", _loss_as("zero"),
         "The loss is 0: an integer division has rounded the shares down to 0."),
    Hint("no gradient", lambda s: right_but(s, "gradient"),
         "The loss is right, and the gradient of the probabilities is wrong: the router learns "
         "through this rank's mean probability, so it has to stay in the graph."),
    Hint("more bytes", sends_more, _added("one number for each expert has to travel.")),
    Hint("other", lambda s: s.wrong("loss"),
         "The loss is wrong: the number of experts times the sum, over experts, of the share of "
         "all choices times this rank's mean probability."),
)


# nudged


def _bias_as(s: Seen, name: str) -> bool:
    models = s.given[name]
    nested = models if isinstance(models[0], list) else [models]
    return s.wrong("bias") and any(is_model(s.bias, each) for each in nested)


def _two_signs(s: Seen) -> str | None:
    """Return a sentence about the first expert with unequal biases on rank 0 and another rank."""
    for rank in range(1, s.n):
        if differing := (s.bias[rank] != s.bias[0]).nonzero().flatten().tolist():
            expert = differing[0]
            first, other = (float(s.bias[each][expert]) for each in (0, rank))
            return (f"The bias of expert {expert} is {first:g} on rank 0 and {other:g} on rank "
                    f"{rank}: their routers would drift apart. Count the choices of all ranks.")
    return None


def _near(s: Seen) -> str:
    high, low = max(s.total), min(s.total)
    return (f"Choices of {high:,} and {low:,} are rounded until they look alike, or as another "
            "number: count in integers, or in float64.")


BIAS = (
    MINLENGTH,
    Hint("changed", lambda s: s.wrong("left alone"),
         "Your code changed the old bias in place. Return a new tensor."),
    Hint("own counts", lambda s: s.n > 1 and _bias_as(s, "own"), _two_signs),
    Hint("own mean", lambda s: s.n > 1 and _bias_as(s, "own_mean"),
         "The counts are of all ranks, and the mean is that of this rank's own choices."),
    Hint("more for the full", lambda s: _bias_as(s, "reversed"),
         "The expert with the most choices has got more: the sign is reversed."),
    Hint("other dtype", lambda s: any(each.dtype != s.old.dtype for each in s.bias),
         lambda s: f"The new bias is {s.bias[0].dtype}, and the old bias is {s.old.dtype}: keep "
         "the dtype."),
    Hint("rounded counts", lambda s: max(s.total) > 256 and _bias_as(s, "short"), _near),
    Hint("not the sign", lambda s: _bias_as(s, "in_proportion"),
         "The step grows with the distance from the mean: each bias moves by `rate`, or not at "
         "all."),
    Hint("forgotten", lambda s: _bias_as(s, "forgotten"),
         "The old bias is missing: add the step to the bias of the step before."),
    Hint("rounded mean", lambda s: sum(s.total) % len(s.total) != 0 and _bias_as(s, "rounded_mean"),
         lambda s: f"The mean is {sum(s.total) / len(s.total):g} and was rounded: an expert with "
         f"{sum(s.total) // len(s.total)} choices has fewer, and one with "
         f"{sum(s.total) // len(s.total) + 1} has more."),
    Hint("median", lambda s: _bias_as(s, "median"),
         "The counts are compared with their median: compare them with their mean."),
    Hint("never still", lambda s: _bias_as(s, "never_still"),
         lambda s: f"Expert {s.total.index(sum(s.total) // len(s.total))} has exactly the mean, "
         "and its bias moves: compare the whole counts with their mean; the sign of 0 is 0."),
    Hint("more bytes", sends_more, _added("one number for each expert has to travel.")),
    Hint("other", lambda s: s.wrong("bias"),
         "The bias is wrong: count each expert's choices on all ranks, compare with the mean "
         "count, and move each bias by `rate` up, down, or not at all."),
)


# average_gradients


def _factor(s: Seen, kind: str) -> float | None:
    """Return the factor by which all gradients of a kind are too large; None if factors differ."""
    found = set()
    for got, right in zip(s[kind], s.right[kind], strict=True):
        for one, other in zip(got, right, strict=True):
            if one is None:
                return None
            at = other.abs().argmax()
            top = other.flatten()[at].item()
            if not top:
                continue
            factor = one.flatten()[at].item() / top
            if not factor or not same(one, Close(other * factor)):
                return None
            found.add(round(factor, 4))
    return found.pop() if len(found) == 1 else None


def _gradients_as(s: Seen, kind: str, name: str) -> bool:
    """True if the gradients of `kind` are wrong, and equal those of the mistake `name`."""
    for model in s.given[name]:
        every = model if isinstance(model[0], list) else [model] * s.n
        pairs = zip(s[kind], every, strict=True)
        if s.wrong(kind) and all(is_model(got, wanted) for got, wanted in pairs):
            return True
    return False


def _is_own(s: Seen, kind: str) -> bool:
    """True if each rank still has the gradients from before the answer's call."""
    given = s.given["own" if kind == "experts" else "own_shared"][0]
    return all(is_model(got, own) for got, own in zip(s[kind], given, strict=True))


def _times(s: Seen) -> str | None:
    for kind, about in (
        ("experts", "The gradient of an expert is a sum over the tokens of all {n} ranks"),
        ("shared", "The router's gradients are summed over all {n} ranks"),
    ):
        factor = _factor(s, kind)
        if factor and factor != 1:
            times = (f"{factor:g} times too large" if factor > 1
                     else f"{1 / factor:g} times too small")
            return f"{times}: {about.format(n=s.n)}, so divide by {s.n}."
    return None


GRADIENTS = (
    Hint("skips", lambda s: s.stuck and s.missing,
         "A rank waits for another rank that has skipped an all-reduce: an expert without rows "
         "has no gradient, and its gradient counts as 0. Every rank of a group takes part."),
    Hint("none left", lambda s: s.n > 1 and any(
         g is None for kind in ("shared", "experts") for own in s[kind] for g in own),
         "A gradient is still None: the gradient of an expert without rows is 0."),
    Hint("left as they were", lambda s: s.n > 1 and all(
         _is_own(s, kind) for kind in ("shared", "experts")),
         "All gradients are as they were: write the averages into p.grad."),
    Hint("other experts mixed in", lambda s: s.ep > 1 and _gradients_as(s, "experts", "mixed"),
         "The gradients of different experts are added up: another rank has another expert in the "
         "same place of its list. Only the ranks of `same` have the same experts."),
    Hint("replicas differ", lambda s: s.same > 1 and _gradients_as(s, "experts", "own"),
         lambda s: f"{who(s.groups[0]).capitalize()} have the same experts, and different "
         "gradients: their copies would drift apart."),
    Hint("shared by all", lambda s: s.same < s.n and _gradients_as(s, "shared", "shared_by_same"),
         lambda s: f"The router is on all {s.n} ranks: its gradients are averaged over all "
         "ranks, not over `same` alone."),
    Hint("shared left", lambda s: s.n > 1 and _gradients_as(s, "shared", "own_shared"),
         "Each rank has its own gradients of the shared parameters: average them over all ranks."),
    Hint("another factor", lambda s: bool(_times(s)), _times),
    Hint("parameters changed", lambda s: s.wrong("left alone"),
         "Your code changed a parameter. Change only the gradients."),
    Hint("more bytes", sends_more, _added("each gradient has to travel once, in its group.")),
    Hint("other", lambda s: s.wrong("shared", "experts"),
         "A gradient is wrong: sum the shared gradients over all ranks, sum the experts' "
         "gradients over `same`, and divide both by the number of all ranks."),
)
# fmt: on
