"""Lab 18: sentences for wrong answers in low precision: means, scales of the loss, fp8."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen

if TYPE_CHECKING:
    from torch import Tensor

# mean_by_halves


def _all_are(s: Seen, *names: str) -> bool:
    """True if all ranks have the mean of one of the mistakes `names`, and not the right mean."""
    found = [each for name in names for each in _listed(s.given[name])]
    return s.wrong("mean") and any(all(same(got, one) for got in s["mean"]) for one in found)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else [value]


def _off(s: Seen) -> str:
    """Return a text with the number of wrong elements on rank 0, like "16 of 64 numbers"."""
    got, due = s["mean"][0], s.right
    return f"{int((got != due).sum())} of {len(due)} numbers"


def _half_wide(s: Seen) -> bool:
    return "bfloat16" in str(s["mean"][0].dtype)


def _beyond(s: Seen) -> bool:
    return bool(s.bytes > s.expect["bytes"].most)


def _reduces(s: Seen) -> bool:
    return bool(s.collectives == ["all_reduce"])


def _bytes(s: Seen) -> str:
    return f"The ranks send {s.bytes:,} B, and {s.expect['bytes'].most:,} B are enough"


# fmt: off
MEAN = (
    Hint("does not divide", lambda s: s.kind == "no even chunks" or s.raised == "RuntimeError",
         "The numbers cannot always be divided evenly among the ranks: pad them with zeros, and "
         "cut the zeros off at the end."),
    Hint("changed", lambda s: s.wrong("left alone"), "flat has changed: work on a copy."),
    Hint("dtype", _half_wide, "The mean is bfloat16: return it as float32."),
    Hint("a sum", lambda s: s.n > 1 and _all_are(s, "a_sum"),
         "That is the sum of the ranks: divide by the number of ranks."),
    Hint("whole bytes", lambda s: _reduces(s) and _beyond(s),
         lambda s: f"{_bytes(s)}: an all-reduce in float32 sends 4 bytes a number."),
    Hint("whole bytes back", lambda s: _beyond(s) and _all_are(s, "unrounded"),
         lambda s: f"{_bytes(s)}: the means travel back in bfloat16 too."),
    Hint("ranks differ", lambda s: s.n > 1 and same(s["mean"], s.drifts),
         "Rank 0 has its own part unrounded, and the other ranks have that part rounded: replicas "
         "would drift apart. The owner takes the mean that it sends."),
    Hint("own part finer", lambda s: _all_are(s, "own_finer"),
         lambda s: f"{_off(s)} differ: your own numbers count unrounded on your part. Round them "
         "like those that came."),
    Hint("divided first", lambda s: _all_are(s, "divided_first"),
         lambda s: f"{_off(s)} differ: x / {s.n} is rounded where x was to be. Divide the sum."),
    Hint("rounded at each hop", lambda s: _reduces(s) and s.wrong("mean") and not _beyond(s),
         lambda s: f"{_off(s)} differ: a ring rounds each partial sum. Send the parts to their "
         "owner, and add there."),
    Hint("adds in halves", lambda s: _all_are(s, "in_short"),
         lambda s: f"{_off(s)} differ: the numbers that came are bfloat16, and their sum need not "
         "be."),
    Hint("more bytes", lambda s: not s.wrong("mean") and _beyond(s),
         lambda s: f"The values are right. {_bytes(s)}: each rank adds up its own part alone."),
    Hint("other length", lambda s: len(s["mean"][0]) != len(s.right),
         lambda s: f"{len(s['mean'][0])} numbers for {len(s.right)}: cut off the numbers that "
         "were added to make the division even."),
    Hint("other mean", lambda s: s.wrong("mean"),
         lambda s: f"{_off(s)} differ. Each number of a rank becomes bfloat16, the owner of a part "
         "adds up n such numbers in float32, and the mean becomes bfloat16 once."),
)
# fmt: on

# LossScale


def _took(s: Seen) -> list[list[bool]]:
    return s.stepped  # type: ignore[no-any-return]


def _first_apart(s: Seen) -> tuple[int, int, int] | None:
    """Return (step, rank, rank): the first rank skipped the step, and the second rank did not."""
    for number, column in enumerate(zip(*_took(s), strict=True)):
        if len(set(column)) > 1:
            return number, column.index(False), column.index(True)
    return None


def _apart(s: Seen) -> str | None:
    found = _first_apart(s)
    return found and (
        f"Rank {found[1]} skipped step {found[0]}, and rank {found[2]} did not: from here on they "
        "have parts of two models. Agree first."
    )


def _taken_with(s: Seen, bad: Callable[[float], bool]) -> tuple[int, int] | None:
    """Return a step that should be skipped but was not, and a rank with a `bad` gradient in it."""
    for number, ranks in s.asks.bad.items():
        for rank in ranks:
            found = [x for g in s.asks.gradients[rank][number] for x in g.tolist()]
            if _took(s)[0][number] and any(map(bad, found)):
                return number, rank
    return None


def _with_inf(s: Seen) -> tuple[int, int] | None:
    return _taken_with(s, lambda x: abs(x) == float("inf"))


def _with_nan(s: Seen) -> tuple[int, int] | None:
    return _taken_with(s, lambda x: x != x)


def _too_careful(s: Seen) -> bool:
    return s.large_step >= 0 and not any(own[s.large_step] for own in _took(s))


def _moved_at_a_skip(s: Seen) -> bool:
    """True if a rank's parameters changed in a step for which the answer returned False."""
    for own, took in zip(s.parameters, _took(s), strict=True):
        for number in range(1, len(took)):
            before, after = own[number - 1], own[number]
            still = all(a.equal(b) for a, b in zip(before, after, strict=True))
            if not took[number] and not still:
                return True
    return False


def _rule(s: Seen, **rules: bool) -> bool:
    due = s.asks.with_rules(s.asks.bad, **rules)
    return same(s.stepped, due["stepped"]) and same(s.scales, due["scales"])


def _trained_with(s: Seen, used: Callable[[float, float], float]) -> bool:
    """True if the gradients were divided by `used(scale, next scale)` instead of the scale."""
    if s.wrong("stepped", "scales"):
        return False
    scales = [s.asks.scale, *s.scales[0]]
    numbers = [used(a, b) for a, b in pairwise(scales)]
    return all(
        _near(own, s.asks.trained(rank, numbers, s.stepped[rank]))
        for rank, own in enumerate(s.parameters)
    )


def _near(own: Tensor, due: Tensor) -> bool:
    pairs = [(a, b) for x, y in zip(own, due, strict=True) for a, b in zip(x, y, strict=True)]
    return all(bool(((a - b).abs() <= 1e-3 * b.abs().clamp(min=1e-3)).all()) for a, b in pairs)


def _first_other_scale(s: Seen) -> tuple[int, float, float]:
    pairs = enumerate(zip(s.scales[0], s.expect["scales"][0], strict=True))
    return next((number, got, due) for number, (got, due) in pairs if got != due)


def _counts_on(s: Seen) -> str:
    number, got, due = _first_other_scale(s)
    return (
        f"After step {number}, your scale is {got:g}, but {due:g} is right: a skip begins the "
        "count anew."
    )


def _collectives(s: Seen) -> int:
    return int(max(s.collectives))


# fmt: off
SCALE = (
    Hint("must take part", lambda s: s.stuck or s.mismatch,
         "A rank may have no gradient at all, and the other ranks wait for its word: every rank "
         "takes part in each step's collective."),
    Hint("the opposite", lambda s: s.stepped == [[not x for x in own]
                                                 for own in s.expect["stepped"]],
         "step returns True for a step, and False for a skipped one."),
    Hint("cleaned", lambda s: all(all(own) for own in _took(s)) and not _gives_nan(s),
         "No step was skipped: the numbers beside an inf are as wrong as the inf itself. Skip the "
         "whole step."),
    Hint("ranks differ", _first_apart, _apart),
    Hint("nan passes", lambda s: _with_nan(s) and not _with_inf(s),
         lambda s: f"Step {_with_nan(s)[0]} was taken with a nan on rank {_with_nan(s)[1]}: nan is "  # type: ignore[index]
         "neither infinite nor finite."),
    Hint("only if all", _with_inf,
         lambda s: f"Step {_with_inf(s)[0]} was taken with an inf on rank {_with_inf(s)[1]}: "  # type: ignore[index]
         "no rank steps if a gradient of any rank is infinite."),
    Hint("too careful", _too_careful,
         lambda s: f"Step {s.large_step} was skipped: 3e38 is finite, and so are all gradients; "
         "their sum is not. Ask each number."),
    Hint("steps anyway", _moved_at_a_skip,
         "step returned False, and parameters have moved by momentum: a skipped step changes "
         "nothing."),
    Hint("counts on", lambda s: _rule(s, reset=False), _counts_on),
    Hint("never smaller", lambda s: _rule(s, halve=False),
         "The scale is never halved: then every later step is skipped too."),
    Hint("not unscaled", lambda s: _trained_with(s, lambda now, new: 1.0),
         "The gradients were not divided by the scale before the step."),
    Hint("new scale", lambda s: _trained_with(s, lambda now, new: new),
         "This step's gradients belong to the scale that this step's loss had: divide before the "
         "scale changes."),
    Hint("one by one", lambda s: not s.wrong("stepped", "scales", "parameters")
         and s.wrong("collectives") and _collectives(s) > s.asks.steps,
         lambda s: f"Your code makes {_collectives(s)} collectives, but {s.asks.steps} are enough: "
         "one word for all gradients."),
    Hint("other scale", lambda s: not s.wrong("stepped") and s.wrong("scales"),
         lambda s: "After step {}, your scale is {:g}, but {:g} is right.".format(
             *_first_other_scale(s))),
)
# fmt: on


def _gives_nan(s: Seen) -> bool:
    """True if parameters are no longer finite: the answer let inf or nan into a step."""
    return any(not p.isfinite().all() for own in s.parameters for each in own for p in each)


# gather_fp8


def _more_of_them(s: Seen) -> bool:
    return s.n > 1 and not s.wrong("off") and max(s.collectives) > 1


def _shape(s: Seen) -> object:
    return next((x for own in s.off for x in _listed(own) if isinstance(x, str)), None)


def _like(word: str) -> Callable[[Seen], bool]:
    return lambda s: s.wrong("off") and s["looks like"] == word


def _shrinks(s: Seen) -> str:
    tensors = [t.abs().max().item() for t in s.asks.whole]
    small = tensors.index(min(tensors))
    times = max(tensors) / min(tensors)
    return (
        f"Tensor {small} is {times:,.0f} times smaller than tensor {tensors.index(max(tensors))}, "
        "and vanishes under a common scale: each shard has a scale of its own."
    )


# fmt: off
FP8 = (
    Hint("fp8 in gloo", lambda s: s.kind in ("bytes of a tensor", "dtypes"),
         "gloo does not know float8, and a view of four bytes as one float32 needs an address that "
         "4 divides: send x.view(torch.uint8), with the scales first."),
    Hint("changed", lambda s: s.wrong("left alone"), "A shard has changed: work on new tensors."),
    Hint("shape", _shape,
         lambda s: f"Return a float32 tensor for each shard, joined along the first dimension; "
         f"this is {_shape(s)}."),
    Hint("zeros", _like("nan"),
         "A shard of zeros came back as nan: 0 / 0. Its scale may be any number but 0."),
    Hint("scales of others", _like("own scales"),
         "Rank 1's numbers come with rank 1's scale: carry the scales along."),
    Hint("coarser", _like("e5m2"),
         "Your errors are up to 12 %, but 6 % are enough: e5m2 has one bit of fraction less than "
         "e4m3."),
    Hint("range", lambda s: s.wrong("off") and s["looks like"].startswith("largest"),
         lambda s: f"The largest number is sent as {s['looks like'].split()[1]}: send it as 448. "
         "With more it is cut off, and with less small numbers lose a bit."),
    Hint("beyond 448", _like("no scale"),
         "Without a scale small numbers vanish, and numbers beyond 448 are cut off."),
    Hint("one for all", _like("one scale"), _shrinks),
    Hint("converted", _like("converted"),
         "The bytes were converted: view shows the same bits under another type, and to() and "
         "float() make other numbers."),
    Hint("not multiplied", _like("not multiplied"),
         "The numbers came as they were sent, divided by their scale: multiply by the scale."),
    Hint("other values", lambda s: s.wrong("off") and not s.wrong("bytes"),
         "Values are off by more than the rounding to a byte. A number is sent as x / scale in "
         "e4m3, with scale = (largest absolute value) / 448, and comes back times the same scale."),
    Hint("several collectives", _more_of_them,
         lambda s: f"{max(s.collectives)} collectives: the scales can travel in the same message."),
    Hint("more bytes", lambda s: s.bytes > s.expect["bytes"].most,
         lambda s: f"All ranks together send {s.bytes:,} B, but {s.expect['bytes'].most:,} B are "
         "enough: a byte for each number, and four bytes for each shard's scale."),
)
# fmt: on
