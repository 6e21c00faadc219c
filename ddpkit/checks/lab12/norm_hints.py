"""Lab 12: sentences about wrong answers to global_norm."""

from __future__ import annotations

from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint
from ddpkit.exercises.values import Close


def floats(got: Any, wanted: Any) -> bool:
    """True if the ranks' numbers are equal to `wanted`."""
    return same(list(map(float, got)), list(map(Close, wanted)))


# fmt: off
NORM = (
    Hint("not all call", lambda s: s.stuck == "returned",
         "Ranks wait in a collective that a further rank has not called. A rank whose slices have "
         "no gradient must call all_reduce too, with 0."),
    Hint("None", lambda s: s.kind == "None",
         "A parameter that was not used has no gradient: its `grad` is None."),
    Hint("changed", lambda s: not s["left alone"],
         "The gradients have changed. Compute squares and sums in new tensors, not in place."),
    Hint("own", lambda s: s.n > 1 and floats(s.norm, s.own),
         "Each rank has its own norm, and would clip by its own factor. Then the whole layers "
         "would no longer be the same on all ranks."),
    Hint("counted by all", lambda s: s.n > 1 and floats(s.norm, s.counted),
         lambda s: f"The parameters that every rank has whole are counted {s.n} times."),
    Hint("left out", lambda s: floats(s.norm, s.slices_alone),
         "The parameters that every rank has whole are left out."),
    Hint("norms added", lambda s: floats(s.norm, s.added) or floats(s.norm, s.each_added),
         "Do not add norms: add squares, and take the root at the end."),
    Hint("mean", lambda s: floats(s.norm, s.mean),
         "The result is the mean over the ranks, of squares. Add the parts of a sum."),
    Hint("largest", lambda s: floats(s.norm, s.largest),
         "The result is the largest of the ranks' norms. The gradient of the whole model is "
         "longer."),
    Hint("no root", lambda s: floats(s.norm, s.squared), "The result is the square of the norm."),
    Hint("no float", lambda s: any(type(one) is not float for one in s.norm),
         "Return a float: .item() of a tensor."),
    Hint("rounded", lambda s: s.wrong("norm") and same(s.norm, [Close(s.norm_of_all, 2)] * s.n),
         "The result is nearly the norm, so a number was rounded. Squares need all their digits."),
    Hint("mixed up", lambda s: s.n > 1 and floats(s.norm, s.mixed_up),
         "You add up over the ranks the parameters that every rank has whole, but not the slices. "
         "`sliced(p)` is True for a parameter that differs by rank."),
    Hint("not on all", lambda s: s.wrong("norm") and len(set(s.norm)) > 1,
         "The ranks find different norms. Each rank needs the sum of all ranks' squares."),
    Hint("other norm", lambda s: s.wrong("norm"),
         "The norm is the root of the sum of the squares of all numbers in all gradients. Each "
         "parameter of the whole model counts once."),
    Hint("more bytes", lambda s: not s.wrong("norm"),
         "The norm is right, but you send more than one number. Add up this rank's squares of all "
         "slices, and then all ranks' sums, in one all_reduce of at most 8 bytes."),
)
# fmt: on
