"""Lab 12: what to say of wrong answers, a table for each exercise."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close
from ddpkit.text import size


def each(got: Any, wanted: Any) -> bool:
    """Whether every rank has this tensor, up to rounding."""
    return all(same(one, Close(wanted)) for one in got)


def gave(s: Seen, wanted: Any) -> bool:
    """Whether the output is wrong, and this on every rank."""
    return s.wrong("output") and each(s.output, wanted)


def by_rank(got: Any, wanted: Any) -> bool:
    """Whether each rank has its tensor."""
    return all(same(one, other) for one, other in zip(got, wanted, strict=True))


def of_one(got: Any, given: Any) -> int | None:
    """Return the rank of which every rank has the given tensor; None if there is no such rank."""
    if len(given) == 1:
        return None
    return next((k for k, one in enumerate(given) if each(got, one)), None)


def on_one(got: Any, wanted: Any) -> list[int]:
    """Return the ranks that have their tensor, if another rank has a wrong one."""
    right_ones = [same(one, Close(other)) for one, other in zip(got, wanted, strict=True)]
    return [] if all(right_ones) else [rank for rank, good in enumerate(right_ones) if good]


def not_on_all(name: str) -> Hint:
    """Return a hint for a sum that one rank of several has."""
    return Hint("on one rank", lambda s: s.n > 1 and s.wrong(name)
                and len(on_one(s[name], s.right[name])) == 1,
                lambda s: f"Rank {on_one(s[name], s.right[name])[0]} has the right {name}, and the "
                "others have not: every rank needs the sum, not one rank alone.")  # fmt: skip


def nearly_right(s: Seen) -> bool:
    """Whether output and gradient are right up to much rounding, and no further."""
    pairs = [pair for name, wanted in s.right.items() for pair in zip(s[name], wanted, strict=True)]
    exact = all(same(got, wanted) for got, wanted in pairs)
    return not exact and all(same(got, Close(wanted, 2)) for got, wanted in pairs)


def right(s: Seen) -> bool:
    """Whether all is right but what is sent."""
    return not s.wrong(*(name for name in s.expect if not name.startswith("sent")))


def sends_more(**why: str) -> Hint:
    """A hint for what is right and sends too much, forward or backward, and why less would do."""
    return Hint("more bytes", lambda s: right(s) and any(map(partial(_too_much, s), why)),
                lambda s: _sent(s, why))  # fmt: skip


def _too_much(s: Seen, phase: str) -> tuple[int, int] | None:
    """What the first rank sends that sends too much, and what would do."""
    pairs = zip(s[f"sent {phase}"], s.expect[f"sent {phase}"], strict=True)
    return next(((ours, enough.most) for ours, enough in pairs if ours > enough.most), None)


def due(s: Seen) -> list[int]:
    """Return the bytes of each rank's part of a layer."""
    return [each.most for each in s.expect["bytes held"]]


def _sent(s: Seen, why: Mapping[str, str]) -> str:
    phase, found = next((each, found) for each in why if (found := _too_much(s, each)))
    ours, enough = map(size, found)
    return f"Right, but {phase} sends {ours} where {enough} would do: {why[phase]}"


# fmt: off
FUNCTIONS = (  # a table of a function of autograd begins with these
    Hint("gradients for nothing", lambda s: s.kind == "gradient count",
         "backward returns a gradient for each input of forward but ctx, and no more."),
    Hint("gradient's shape", lambda s: s.kind == "gradient's shape",
         "The gradient that backward returns has another shape than what forward was given."),
    Hint("no gradient", lambda s: any(one is None and out.shape == came.shape
         for one, out, came in zip(s.gradient, s.output, s.gradients, strict=True)),
         "x gets no gradient: backward returned None. Even where it does nothing, it returns the "
         "gradient that it was given."),
    Hint("not left alone", lambda s: s.kind == "shares memory" or not s["left alone"],
         "x, or the gradient, has changed in place, and is not yours: others go on with it. Work "
         "on a copy."),
    Hint("another shape", lambda s: s.kind in ("shapes", "factors"),
         "Tensors of different shapes meet in an operation: print the shapes of both."),
    Hint("rounded", nearly_right,
         "The numbers are nearly right: they were rounded. Keep the dtype of what you are given."),
)
COPIED = (
    *FUNCTIONS,
    Hint("swapped", lambda s: any(s["sent forward"]) and by_rank(s.gradient, s.gradients),
         "Here slices begin: all ranks have x already, and forward has nothing to add. What each "
         "has only a part of is the gradient."),
    Hint("in both", lambda s: any(s["sent forward"]),
         "Forward or backward, not both: all ranks have x already, and forward has nothing to "
         "add."),
    Hint("own part", lambda s: by_rank(s.gradient, s.gradients),
         "Each rank has its own part of the gradient still. Every slice has used x, so their parts "
         "have to be added."),
    Hint("mean", lambda s: each(s.gradient, sum(s.gradients) / s.n),
         "That is the mean of the parts. Parts of a sum are added, not averaged."),
    Hint("one rank's", lambda s: of_one(s.gradient, s.gradients) is not None,
         lambda s: f"Every rank has rank {of_one(s.gradient, s.gradients)}'s part of the gradient: "
         "the parts of all ranks have to be added."),
    not_on_all("gradient"),
    Hint("other gradient", lambda s: s.wrong("gradient"),
         "The gradient of x is the sum of the ranks' gradients, each once, and nothing else."),
    Hint("other output", lambda s: s.wrong("output as it was"),
         "Forward returns x as it is."),
    sends_more(backward="one all_reduce."),
)
SUMMED = (
    *FUNCTIONS,
    Hint("swapped", lambda s: any(s["sent backward"]) and by_rank(s.output, s.xs),
         "Here slices end: each rank has a part of the sum, and forward adds them. Backward has "
         "the whole gradient on every rank already."),
    Hint("in both", lambda s: any(s["sent backward"]) and each(s.gradient, sum(s.gradients)),
         "The gradients of all ranks are added: forward or backward, not both. All ranks go on "
         "with the same sum, so each has the whole gradient of it already."),
    Hint("sent back", lambda s: any(s["sent backward"]),
         "Backward sends something. All ranks go on with the same sum, so each has the whole "
         "gradient of it already: return the gradient as it is."),
    Hint("own part", lambda s: by_rank(s.output, s.xs),
         "Each rank has its own part still: add them up."),
    Hint("mean", lambda s: each(s.output, sum(s.xs) / s.n),
         "That is the mean of the parts. Parts of a sum are added, not averaged."),
    Hint("divided gradient", lambda s: not s.wrong("output") and s.n > 1
         and by_rank(s.gradient, [one / s.n for one in s.gradients]),
         "The gradient is divided by the number of ranks. A sum hands each of its parts the whole "
         "gradient."),
    Hint("one rank's", lambda s: of_one(s.output, s.xs) is not None,
         lambda s: f"Every rank has rank {of_one(s.output, s.xs)}'s x: the x of all ranks have to "
         "be added."),
    not_on_all("output"),
    Hint("other output", lambda s: s.wrong("output"),
         "The output is the sum of the ranks' x, each once, and nothing else."),
    Hint("other gradient", lambda s: s.wrong("gradient as it was"),
         "Backward returns the gradient as it is."),
    sends_more(forward="one all_reduce."),
)
X_S_PART = Hint("x's part", lambda s: not s.wrong("output") and s.n > 1
    and same(sum(s.gradient_of_x), Close(s.of_x)),
    "Output and weights are right, but each rank has only its own part of the gradient of x: "
    "every layer below would learn nonsense. Where do slices begin?")
LEARN = (  # hints for SlicedMLP and SlicedAttention
    Hint("learns otherwise", lambda s: not s.wrong("output", "gradient of x")
         and s.wrong("after 3 steps"), lambda s:
         "The first output is right, and after 3 steps of SGD it is not: a parameter has not the "
         f"gradient that it has in one process. Is it that of {s.last_bias}?"),
    Hint("a rank learns otherwise", lambda s: not s.wrong("output", "gradient of x")
         and s.wrong("numbers that learn otherwise"), lambda s:
         "The outputs are right, but after 3 steps of SGD some ranks have parameters that one "
         f"process does not have ({s['numbers that learn otherwise']} numbers, by rank). Is "
         f"{s.last_bias} added on every rank, after the sum?"),
)
NO_GRADIENT_OF_X = Hint("no gradient of x", lambda s: not s.wrong("output")
    and None in s.gradient_of_x, "x gets no gradient at all: is it detached on its way, or is a "
    "sum made outside of autograd? `Copied` and `Summed` know their backward.")
OWN_PART = Hint("own part", lambda s: s.n > 1 and not same(s.output[0], Close(s.output[1])),
    "The ranks have different outputs: each has its own part of a sum.")
COPIES = (
    Hint("views", lambda s: not s.wrong("output") and min(s["bytes held"]) >= s.whole,
         "The whole weights are still in memory. Is the whole layer still there? And a slice of a "
         "tensor is a view, which keeps all of it alive: copy the slice."),
    Hint("not a copy", lambda s: not s["left alone"],
         "As the slice learns, the layer that it was cut from changes too: they share memory. "
         "Copy what you take."),
)
SLICED = (
    Hint("shapes", lambda s: s.kind == "factors" or s.raised == "IndexError",
         "The shapes do not fit. torch keeps W transposed: (out, in). What are columns in the "
         "formula are rows of `weight`, and rows are columns."),
    Hint("bias of other rows", lambda s: s.kind in ("state sizes", "shapes"),
         "A weight or a sum does not fit its bias. The first bias has a number for each of the "
         "rank's hidden numbers; the second bias is whole on every rank."),
    X_S_PART,
    Hint("bias in each", lambda s: gave(s, s.bias_in_each),
         lambda s: f"The second bias is in the sum {s.n} times: add it after the sum."),
    Hint("no bias", lambda s: gave(s, s.no_bias), "The second bias is missing."),
    OWN_PART,
    NO_GRADIENT_OF_X,
    Hint("no activation", lambda s: gave(s, s.no_activation),
         "The activation between the two layers is missing."),
    Hint("dealt in turn", lambda s: gave(s, s.dealt),
         "The hidden numbers are dealt in turn (rank 0 has 0, n, 2n, …). A rank has its part of "
         "`tensor_split`, neighbours; the check gives it right weights for these alone."),
    Hint("the same part", lambda s: gave(s, s.first_part),
         "Every rank takes the first part of the hidden numbers. Rank r takes part r."),
    Hint("cut off", lambda s: gave(s, s.cut_off),
         "Some hidden numbers are nobody's: n does not divide their number. tensor_split leaves "
         "none out."),
    Hint("activation of parts", lambda s: gave(s, s.after_parts),
         "GELU of a part of a sum is no part of GELU of the sum. Cut the first layer so that each "
         "rank has *whole* hidden numbers, a few of them."),
    *COPIES,
    Hint("other parts", lambda s: s.wrong("bytes held"),
         lambda s: f"The ranks hold {s['bytes held']} bytes, and their slices are "
         f"{due(s)}: cut the hidden numbers as tensor_split does."),
    sends_more(forward="the hidden numbers need not travel.",
               backward="each number of the gradient of x has to be summed once."),
    *LEARN,
    Hint("other output", lambda s: s.wrong("output"),
         "The output is not that of one process. Follow one hidden number of a rank: a row of the "
         "first weight with its bias, the activation, a column of the second weight."),
    Hint("other gradient", say="The output is right, and the gradient of x is not: begin with the "
         "gradient that each rank has of its own slice."),
)
ATTENTION = (
    Hint("chunk", lambda s: s.raised == "IndexError",
         "An index is too large. If it comes from chunk(): that gives n parts at most, such as 2 "
         "of 4 heads on 3 ranks. tensor_split always gives n."),
    Hint("shapes", lambda s: s.kind in ("shapes", "factors", "state sizes", "no view"),
         "The shapes do not fit. A rank's heads are rows of `in_proj_weight`, in each of its three "
         "parts, and columns of `out_proj.weight`."),
    X_S_PART,
    Hint("bias in each", lambda s: gave(s, s.bias_in_each),
         lambda s: f"The bias of `out_proj` is in the sum {s.n} times: add it after the sum."),
    Hint("no bias", lambda s: gave(s, s.no_bias), "The bias of `out_proj` is missing."),
    Hint("no bias of queries", lambda s: gave(s, s.no_bias_of_queries),
         "`in_proj_bias` is missing: queries, keys and values have one, cut as their weight is."),
    OWN_PART,
    NO_GRADIENT_OF_X,
    Hint("dealt in turn", lambda s: gave(s, s.dealt),
         "The heads are dealt in turn (rank 0 has 0, n, 2n, …). A rank has its part of "
         "`tensor_split`, neighbours; the check gives it right weights for these alone."),
    Hint("the same part", lambda s: gave(s, s.first_part),
         "Every rank takes the first heads. Rank r takes part r."),
    Hint("in thirds", lambda s: gave(s, s.as_it_lies),
         "`in_proj_weight` has the rows of all queries, then those of all keys, then of all "
         "values. Take your heads from each of the three."),
    Hint("every other row", lambda s: gave(s, s.every_other),
         "The numbers of a head lie side by side: head 0 has the first head_dim rows of each part, "
         "and head 1 the next."),
    Hint("cut off", lambda s: gave(s, s.cut_off),
         "Some heads are nobody's: n does not divide their number. tensor_split leaves none out."),
    *COPIES,
    Hint("other heads", lambda s: s.wrong("bytes held"),
         lambda s: f"The ranks hold {s['bytes held']} bytes, and their heads are "
         f"{due(s)}: share out the heads as tensor_split does."),
    sends_more(forward="what a head makes need not travel.",
               backward="each number of the gradient of x has to be summed once."),
    *LEARN,
    Hint("other output", lambda s: s.wrong("output"),
         "The output is not that of one process. Follow one head: its rows of queries, keys and "
         "values with their biases, and its columns of `out_proj.weight`."),
    Hint("other gradient", say="The output is right, and the gradient of x is not: begin with the "
         "gradient that each rank has of its own heads."),
)
HALO = (
    *FUNCTIONS,
    Hint("wraps round", lambda s: s.wrong("output") and by_rank(s.output, s.wrapped),
         "Above the first row of an image is nothing, and below the last: zeros, not the other "
         "end."),
    Hint("own rows", lambda s: s.wrong("output") and by_rank(s.output, s.repeated),
         "These are the strip's own rows once more: above it come the last rows of the rank "
         "above."),
    Hint("upside down", lambda s: s.wrong("output") and by_rank(s.output, s.upside_down),
         "Top and bottom are swapped: what the rank above sends belongs above."),
    Hint("one row", lambda s: s.k > 1 and [len(one[0, 0]) for one in s.output]
         == [len(one[0, 0]) + 2 for one in s.xs], "k rows of each neighbour: here k is 2."),
    Hint("dropped", lambda s: not s.wrong("output") and by_rank(s.gradient, s.dropped),
         "The rows that neighbours lent had an effect there, and their gradient is thrown away: "
         "send it back to those who lent them."),
    Hint("at the wrong edge", lambda s: not s.wrong("output") and by_rank(s.gradient, s.crossed),
         "What comes back from the rank below belongs to this strip's last rows, which it has "
         "borrowed; what comes from above to the first."),
    Hint("instead of added", lambda s: not s.wrong("output")
         and (by_rank(s.gradient, s.instead) or by_rank(s.gradient, s.instead_at_rims)),
         "A row at the edge has two gradients: that of its own strip and that of the neighbour's. "
         "Add them."),
    Hint("in a row", lambda s: not s["all at once"] and not s.wrong("output", "gradient"),
         "Right, but each rank waits for the one before it, and the last one for all: that is a "
         "latency for each rank. Start all messages, then wait."),
    sends_more(forward="k rows to each neighbour.", backward="k rows to each neighbour."),
    Hint("own rows at the rim", lambda s: s.wrong("output") and by_rank(s.output, s.own_rims),
         "Between strips the halo is right. Above the first row of the image, and below the last, "
         "are zeros."),
    Hint("other rows", lambda s: s.wrong("output"),
         "The halo has wrong rows. Above strip 1 come the last k rows of strip 0, below strip 0 "
         "the first k rows of strip 1, each in its order."),
    Hint("other gradient", say="The output is right. For the gradient, follow the first k rows of "
         "`gradient`: they belong to rows that the rank above lent, and go back to it."),
)
PARTS = (  # of Gathered and Scattered
    *FUNCTIONS,
    Hint("along dim 0", lambda s: any(one.shape != right.shape for one, right
         in zip(s.output, s.expect["output"], strict=True)),
         "The output has another shape. The sequence is dim 1. Chunks that stand one below the "
         "other in memory have to be put side by side."),
)
ANOTHER_S = Hint("another's part", lambda s: any(_turned(s, name) for name in s.right),
    "These are parts of other ranks: part r is rank r's.")
GATHERED = (
    *PARTS,
    Hint("one below the other", lambda s: s.wrong("output") and by_rank(s.output, s.reshaped),
         "The shape is right, and the tokens are not where they belong: the ranks' chunks lie one "
         "below the other in memory. Put them side by side along dim 1."),
    Hint("own slice", lambda s: by_rank(s.gradient, s.own),
         "Every rank has a gradient for your part, since all ranks got it: add them."),
    Hint("mean", lambda s: by_rank(s.gradient, [one / s.n for one in s.expect["gradient"]]),
         "That is the mean. What several have used gets the sum of their gradients."),
    sends_more(forward="each rank gives its own part, and nothing else.",
               backward="each rank needs the sum of its own part alone."),
    ANOTHER_S,
    Hint("other output", lambda s: s.wrong("output"),
         "The output is not the parts of ranks 0, 1, … side by side along dim 1."),
    Hint("other gradient", say="The output is right. The gradient of this rank's part is the sum "
         "of all ranks' gradients of that part."),
)
SCATTERED = (
    *PARTS,
    Hint("own slice", lambda s: by_rank(s.output, s.own),
         "Each rank has a part of the sum for every token: add, then cut."),
    Hint("mean", lambda s: by_rank(s.output, [one / s.n for one in s.expect["output"]]),
         "That is the mean. Parts of a sum are added."),
    Hint("only its own", lambda s: not s.wrong("output") and by_rank(s.gradient, s.alone),
         "Zeros where other ranks have the gradient: each token's sum went on from one rank, and "
         "all ranks had a part of it. Gather their gradients."),
    Hint("divided gradient", lambda s: not s.wrong("output") and s.n > 1
         and by_rank(s.gradient, [one / s.n for one in s.right["gradient"]]),
         "The gradient is divided by the number of ranks. A sum hands each of its parts the whole "
         "gradient."),
    sends_more(forward="an all_reduce is this, and an all_gather besides.",
               backward="each rank gives its own part, and nothing else."),
    ANOTHER_S,
    Hint("other output", lambda s: s.wrong("output"),
         "The output is not this rank's part of the sum of all ranks' x, along dim 1."),
    Hint("other gradient", say="The output is right. The gradient of x is the gradients of ranks "
         "0, 1, … side by side: rank r's part of the sum went on from rank r."),
)
NORM = (
    Hint("None", lambda s: s.kind == "None",
         "A parameter that was not used has no gradient: its `grad` is None."),
    Hint("changed", lambda s: not s["left alone"],
         "The gradients have changed: squares and sums are made beside them, not in place."),
    Hint("own", lambda s: s.n > 1 and floats(s.norm, s.own),
         "Each rank has a norm of its own: it would clip by a factor of its own, and the whole "
         "layers would no longer be the same on all ranks."),
    Hint("counted by all", lambda s: s.n > 1 and floats(s.norm, s.counted),
         lambda s: f"What every rank has whole is counted {s.n} times."),
    Hint("left out", lambda s: floats(s.norm, s.slices_alone),
         "The parameters that every rank has whole are left out."),
    Hint("norms added", lambda s: floats(s.norm, s.added) or floats(s.norm, s.each_added),
         "Norms do not add, squares do: the root comes last."),
    Hint("mean", lambda s: floats(s.norm, s.mean),
         "That is the mean over the ranks, of squares: parts of a sum are added."),
    Hint("largest", lambda s: floats(s.norm, s.largest),
         "That is the largest of the ranks' norms. The gradient of the whole model is longer."),
    Hint("no root", lambda s: floats(s.norm, s.squared), "That is the square of the norm."),
    Hint("no float", lambda s: any(type(one) is not float for one in s.norm),
         "Return a number, a float: .item() of a tensor."),
    Hint("rounded", lambda s: s.wrong("norm") and same(s.norm, [Close(s.norm_of_all, 2)] * s.n),
         "That is nearly the norm: something was rounded. Squares need all their digits."),
    Hint("mixed up", lambda s: s.n > 1 and floats(s.norm, s.mixed_up),
         "What every rank has whole is added up over the ranks, and the slices are not: `sliced(p)`"
         " is True for those that differ from rank to rank."),
    Hint("not on all", lambda s: s.wrong("norm") and len(set(s.norm)) > 1,
         "The ranks find different norms: each needs the sum of all ranks' squares."),
    Hint("other norm", lambda s: s.wrong("norm"),
         "The norm is the root of a sum: of the squares of all numbers in all gradients, each "
         "parameter of the whole model once."),
    Hint("more bytes", lambda s: not s.wrong("norm"),
         "Right, but more than one number travels: add up this rank's squares of all slices, and "
         "then all ranks' sums, in one all_reduce of at most 8 bytes."),
)
# fmt: on


def floats(got: Any, wanted: Any) -> bool:
    """Whether the ranks' numbers are these."""
    return same(list(map(float, got)), list(map(Close, wanted)))


def _turned(s: Seen, name: str) -> bool:
    """True if each rank's part is that of the rank so many ranks on."""
    got, parts = s[name], s.right[name]
    if not s.wrong(name) or s.n == 1 or same(parts[0], parts[1]):
        return False
    return any(by_rank(got, parts[by:] + parts[:by]) for by in range(1, s.n))
