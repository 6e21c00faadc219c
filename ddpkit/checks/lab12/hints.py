"""Lab 12: sentences about wrong answers, a table for each exercise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close
from ddpkit.text import size


def each(got: Iterable[object], wanted: object) -> bool:
    """True if every rank has the tensor `wanted`, up to rounding."""
    return all(same(one, Close(wanted)) for one in got)


def gave(s: Seen, wanted: object) -> bool:
    """True if the answer's output is wrong, and every rank has the output `wanted`."""
    return s.wrong("output") and each(s.output, wanted)


def by_rank(got: Sequence[object], wanted: Sequence[object]) -> bool:
    """True if each rank r has the tensor `wanted[r]`."""
    return all(same(one, other) for one, other in zip(got, wanted, strict=True))


def of_one(got: Sequence[object], given: Sequence[object]) -> int | None:
    """Return a rank k if all ranks have the tensor `given[k]`; otherwise None."""
    if len(given) == 1:
        return None
    return next((k for k, one in enumerate(given) if each(got, one)), None)


def on_one(got: Sequence[object], wanted: Sequence[object]) -> list[int]:
    """Return the ranks that have the right tensor; return [] if all ranks have the right tensor."""
    right_ones = [same(one, Close(other)) for one, other in zip(got, wanted, strict=True)]
    return [] if all(right_ones) else [rank for rank, good in enumerate(right_ones) if good]


def not_on_all(name: str) -> Hint:
    """Return a hint for answers in which only one of several ranks has the right sum `name`."""
    return Hint("on one rank", lambda s: s.n > 1 and s.wrong(name)
                and len(on_one(s[name], s.right[name])) == 1,
                lambda s: f"Rank {on_one(s[name], s.right[name])[0]} has the right {name}, but the "
                "remaining ranks do not. Every rank needs the sum.")  # fmt: skip


def nearly_right(s: Seen) -> bool:
    """True if output and gradient are nearly right: they were rounded to a shorter dtype."""
    pairs = [pair for name, wanted in s.right.items() for pair in zip(s[name], wanted, strict=True)]
    exact = all(same(got, wanted) for got, wanted in pairs)
    return not exact and all(same(got, Close(wanted, 2)) for got, wanted in pairs)


def right(s: Seen) -> bool:
    """True if everything except the number of sent bytes is right."""
    return not s.wrong(*(name for name in s.expect if not name.startswith("sent")))


def sends_more(**why: str) -> Hint:
    """Return a hint about too many sent bytes; `why` maps "forward" or "backward" to the reason."""
    return Hint("more bytes", lambda s: right(s) and any(map(partial(_too_much, s), why)),
                lambda s: _sent(s, why))  # fmt: skip


def _too_much(s: Seen, phase: str) -> tuple[int, int] | None:
    """Return (sent bytes, allowed bytes) for the first rank that sends too much in this phase."""
    pairs = zip(s[f"sent {phase}"], s.expect[f"sent {phase}"], strict=True)
    return next(((ours, enough.most) for ours, enough in pairs if ours > enough.most), None)


def due(s: Seen) -> list[int]:
    """Return the bytes of each rank's part of a layer."""
    return [each.most for each in s.expect["bytes held"]]


def _sent(s: Seen, why: Mapping[str, str]) -> str:
    phase, found = next((each, found) for each in why if (found := _too_much(s, each)))
    ours, enough = map(size, found)
    return f"The result is right, but {phase} sends {ours}, and {enough} are enough: {why[phase]}"


# fmt: off
FUNCTIONS = (  # the first hints of each table about an autograd function
    Hint("gradients for nothing", lambda s: s.kind == "gradient count",
         "backward must return one gradient for each input of forward except ctx."),
    Hint("gradient's shape", lambda s: s.kind == "gradient's shape",
         "The gradient that backward returns must have the shape of forward's input."),
    Hint("no gradient", lambda s: any(one is None and out.shape == came.shape
         for one, out, came in zip(s.gradient, s.output, s.gradients, strict=True)),
         "x gets no gradient, because backward returned None. A backward that computes nothing "
         "must still return the gradient that it gets."),
    Hint("not left alone", lambda s: s.kind == "shares memory" or not s["left alone"],
         "You have changed x or the gradient in place, but later code still uses them. Work on a "
         "copy."),
    Hint("another shape", lambda s: s.kind in ("shapes", "factors"),
         "Tensors of different shapes meet in an operation. Print the shapes of both."),
    Hint("rounded", nearly_right,
         "The numbers are nearly right: they were rounded. Keep the dtype of the inputs."),
)
COPIED = (
    *FUNCTIONS,
    Hint("swapped", lambda s: any(s["sent forward"]) and by_rank(s.gradient, s.gradients),
         "Slices begin here: all ranks have x already, so forward has nothing to add. Only the "
         "gradient is in parts."),
    Hint("in both", lambda s: any(s["sent forward"]),
         "Add in forward or in backward, not in both. All ranks have x already, so forward has "
         "nothing to add."),
    Hint("own part", lambda s: by_rank(s.gradient, s.gradients),
         "Each rank still has its own part of the gradient. Every slice has used x, so the parts "
         "have to be added."),
    Hint("mean", lambda s: each(s.gradient, sum(s.gradients) / s.n),
         "The result is the mean of the parts. Add the parts of a sum, and do not average."),
    Hint("one rank's", lambda s: of_one(s.gradient, s.gradients) is not None,
         lambda s: f"Every rank has rank {of_one(s.gradient, s.gradients)}'s part of the gradient. "
         "Add the parts of all ranks."),
    not_on_all("gradient"),
    Hint("other gradient", lambda s: s.wrong("gradient"),
         "The gradient of x must be the sum of the ranks' gradients, each added once."),
    Hint("other output", lambda s: s.wrong("output as it was"),
         "forward must return x unchanged."),
    sends_more(backward="one all_reduce."),
)
SUMMED = (
    *FUNCTIONS,
    Hint("swapped", lambda s: any(s["sent backward"]) and by_rank(s.output, s.xs),
         "Slices end here: each rank has a part of the sum, and forward adds the parts. In "
         "backward, every rank already has the whole gradient."),
    Hint("in both", lambda s: any(s["sent backward"]) and each(s.gradient, sum(s.gradients)),
         "The gradients of all ranks are added. Add in forward or in backward, not in both: all "
         "ranks continue with the same sum, so each rank already has its whole gradient."),
    Hint("sent back", lambda s: any(s["sent backward"]),
         "Your backward sends bytes. All ranks continue with the same sum, so each rank already "
         "has its whole gradient. Return the gradient unchanged."),
    Hint("own part", lambda s: by_rank(s.output, s.xs),
         "Each rank still has its own part. Add up the parts."),
    Hint("mean", lambda s: each(s.output, sum(s.xs) / s.n),
         "The result is the mean of the parts. Add the parts of a sum, and do not average."),
    Hint("divided gradient", lambda s: not s.wrong("output") and s.n > 1
         and by_rank(s.gradient, [one / s.n for one in s.gradients]),
         "The gradient is divided by the number of ranks. A sum passes the whole gradient to each "
         "of its parts."),
    Hint("one rank's", lambda s: of_one(s.output, s.xs) is not None,
         lambda s: f"Every rank has rank {of_one(s.output, s.xs)}'s x. Add the x of all ranks."),
    not_on_all("output"),
    Hint("other output", lambda s: s.wrong("output"),
         "The output must be the sum of the ranks' x, each added once."),
    Hint("other gradient", lambda s: s.wrong("gradient as it was"),
         "backward must return the gradient unchanged."),
    sends_more(forward="one all_reduce."),
)
X_S_PART = Hint("x's part", lambda s: not s.wrong("output") and s.n > 1
    and same(sum(s.gradient_of_x), Close(s.of_x)),
    "Output and weights are right, but each rank has only its own part of the gradient of x, so "
    "every layer below would learn wrong numbers. Where do slices begin?")
LEARN = (  # hints for SlicedMLP and SlicedAttention
    Hint("learns otherwise", lambda s: not s.wrong("output", "gradient of x")
         and s.wrong("after 3 steps"), lambda s:
         "The first output is right, but after 3 steps of SGD the output is wrong: some parameter "
         f"has a different gradient than in one process. Is this parameter {s.last_bias}?"),
    Hint("a rank learns otherwise", lambda s: not s.wrong("output", "gradient of x")
         and s.wrong("numbers that learn otherwise"), lambda s:
         "The outputs are right, but after 3 steps of SGD some ranks have parameters that one "
         f"process does not have ({s['numbers that learn otherwise']} numbers, by rank). Does "
         f"every rank add {s.last_bias}, after the sum?"),
)
NO_GRADIENT_OF_X = Hint("no gradient of x", lambda s: not s.wrong("output")
    and None in s.gradient_of_x, "x gets no gradient. Do you detach x on its way, or compute a sum "
    "outside of autograd? `Copied` and `Summed` know their backward.")
OWN_PART = Hint("own part", lambda s: s.n > 1 and not same(s.output[0], Close(s.output[1])),
    "The ranks have different outputs. Either each rank has its own part of a sum, or the ranks "
    "add different numbers after the sum.")
COPIES = (
    Hint("views", lambda s: not s.wrong("output") and min(s["bytes held"]) >= s.whole,
         "The whole weights are still in memory. Do you keep the whole layer? A slice of a tensor "
         "is a view, which keeps the whole tensor alive: copy the slice."),
    Hint("not a copy", lambda s: not s["left alone"],
         "When the slice learns, the layer from which it was cut changes too: they share memory. "
         "Copy the slice."),
)
SLICED = (
    Hint("shapes", lambda s: s.kind == "factors" or s.raised == "IndexError",
         "The shapes do not fit. torch keeps W transposed, as (out, in): columns in the formula "
         "are rows of `weight`, and rows are columns."),
    Hint("bias of other rows", lambda s: s.kind in ("state sizes", "shapes"),
         "A weight or a sum does not fit its bias. The first bias has a number for each of the "
         "rank's hidden numbers. The second bias is whole on every rank."),
    X_S_PART,
    Hint("bias in each", lambda s: gave(s, s.bias_in_each),
         lambda s: f"The sum contains the second bias {s.n} times. Add it after the sum."),
    Hint("no bias", lambda s: gave(s, s.no_bias), "The second bias is missing."),
    OWN_PART,
    NO_GRADIENT_OF_X,
    Hint("no activation", lambda s: gave(s, s.no_activation),
         "The activation between the two layers is missing."),
    Hint("dealt in turn", lambda s: gave(s, s.dealt),
         "The hidden numbers are dealt in turn (rank 0 has 0, n, 2n, …). A rank must have its part "
         "of `tensor_split`, which is a block of neighbours. The check gives the rank right "
         "weights only for this part."),
    Hint("the same part", lambda s: gave(s, s.first_part),
         "Every rank takes the first part of the hidden numbers. Rank r must take part r."),
    Hint("cut off", lambda s: gave(s, s.cut_off),
         "Some hidden numbers belong to no rank, because n does not divide their number. "
         "tensor_split leaves none out."),
    Hint("activation of parts", lambda s: gave(s, s.after_parts),
         "GELU of a part of a sum is not a part of GELU of the sum. Cut the first layer so that "
         "each rank has a few *whole* hidden numbers."),
    *COPIES,
    Hint("other parts", lambda s: s.wrong("bytes held"),
         lambda s: f"The ranks hold {s['bytes held']} bytes, but their slices have {due(s)}. Cut "
         "the hidden numbers as tensor_split does."),
    sends_more(forward="the hidden numbers need not be sent.",
               backward="each number of the gradient of x has to be summed only once."),
    *LEARN,
    Hint("other output", lambda s: s.wrong("output"),
         "The output differs from the output of one process. Follow one hidden number of a rank: a "
         "row of the first weight with its bias, the activation, a column of the second weight."),
    Hint("other gradient", say="The output is right, but the gradient of x is not. Begin with each "
         "rank's gradient of its own slice."),
)
ATTENTION = (
    Hint("chunk", lambda s: s.raised == "IndexError",
         "An index is too large. chunk() gives at most n parts, for example 2 for 4 heads on 3 "
         "ranks. tensor_split always gives n parts."),
    Hint("shapes", lambda s: s.kind in ("shapes", "factors", "state sizes", "no view"),
         "The shapes do not fit. A rank's heads are rows of `in_proj_weight`, in each of its three "
         "parts, and columns of `out_proj.weight`."),
    X_S_PART,
    Hint("bias in each", lambda s: gave(s, s.bias_in_each),
         lambda s: f"The sum contains the bias of `out_proj` {s.n} times. Add it after the sum."),
    Hint("no bias", lambda s: gave(s, s.no_bias), "The bias of `out_proj` is missing."),
    Hint("no bias of queries", lambda s: gave(s, s.no_bias_of_queries),
         "`in_proj_bias` is missing. Queries, keys and values have a bias, which is cut like their "
         "weight."),
    OWN_PART,
    NO_GRADIENT_OF_X,
    Hint("dealt in turn", lambda s: gave(s, s.dealt),
         "The heads are dealt in turn (rank 0 has 0, n, 2n, …). A rank must have its part of "
         "`tensor_split`, which is a block of neighbours. The check gives the rank right weights "
         "only for this part."),
    Hint("the same part", lambda s: gave(s, s.first_part),
         "Every rank takes the first heads. Rank r must take part r."),
    Hint("in thirds", lambda s: gave(s, s.as_it_lies),
         "`in_proj_weight` has the rows of all queries, then the rows of all keys, then the rows "
         "of all values. Take your heads from each of the three parts."),
    Hint("every other row", lambda s: gave(s, s.every_other),
         "The rows of a head are neighbours: head 0 has the first head_dim rows of each part, and "
         "head 1 has the next rows."),
    Hint("cut off", lambda s: gave(s, s.cut_off),
         "Some heads belong to no rank, because n does not divide their number. tensor_split "
         "leaves none out."),
    *COPIES,
    Hint("other heads", lambda s: s.wrong("bytes held"),
         lambda s: f"The ranks hold {s['bytes held']} bytes, but their heads have {due(s)}. Share "
         "out the heads as tensor_split does."),
    sends_more(forward="the outputs of single heads need not be sent.",
               backward="each number of the gradient of x has to be summed only once."),
    *LEARN,
    Hint("other output", lambda s: s.wrong("output"),
         "The output differs from the output of one process. Follow one head: its rows of queries, "
         "keys and values with their biases, and its columns of `out_proj.weight`."),
    Hint("other gradient", say="The output is right, but the gradient of x is not. Begin with each "
         "rank's gradient of its own heads."),
)
HALO = (
    *FUNCTIONS,
    Hint("wraps round", lambda s: s.wrong("output") and by_rank(s.output, s.wrapped),
         "There are no rows above the first row of an image, nor below the last row. Put zeros "
         "there, not the opposite end."),
    Hint("own rows", lambda s: s.wrong("output") and by_rank(s.output, s.repeated),
         "The halo repeats the strip's own rows. Put the last rows of the rank above there."),
    Hint("upside down", lambda s: s.wrong("output") and by_rank(s.output, s.upside_down),
         "Top and bottom are swapped. The rows from the rank above belong above the strip."),
    Hint("one row", lambda s: s.k > 1 and [len(one[0, 0]) for one in s.output]
         == [len(one[0, 0]) + 2 for one in s.xs], "Each neighbour lends k rows: here k is 2."),
    Hint("dropped", lambda s: not s.wrong("output") and by_rank(s.gradient, s.dropped),
         "The borrowed rows had an effect on this rank, but you drop their gradient. Send the "
         "gradient back to the lender."),
    Hint("at the wrong edge", lambda s: not s.wrong("output") and by_rank(s.gradient, s.crossed),
         "The gradient from the rank below belongs to this strip's last rows, which the rank below "
         "has borrowed. The gradient from above belongs to the first rows."),
    Hint("instead of added", lambda s: not s.wrong("output")
         and (by_rank(s.gradient, s.instead) or by_rank(s.gradient, s.instead_at_rims)),
         "A row at the edge has two gradients: one from its own strip, and one from the "
         "neighbour's strip. Add the two gradients."),
    Hint("in a row", lambda s: not s["all at once"] and not s.wrong("output", "gradient"),
         "The result is right, but each rank waits for the previous rank, and the last rank for "
         "all ranks: each rank adds a latency. Start all messages, then wait."),
    sends_more(forward="k rows to each neighbour.", backward="k rows to each neighbour."),
    Hint("own rows at the rim", lambda s: s.wrong("output") and by_rank(s.output, s.own_rims),
         "Between strips, the halo is right. Above the first row of the image, and below the last "
         "row, put zeros."),
    Hint("other rows", lambda s: s.wrong("output"),
         "The halo has wrong rows. Above strip 1 are the last k rows of strip 0, and below strip 0 "
         "are the first k rows of strip 1, each in its order."),
    Hint("other gradient", say="The output is right. For the gradient, follow the first k rows of "
         "`gradient`: they belong to rows that the rank above lent, and go back to this rank."),
)
PARTS = (  # the first hints of the tables of Gathered and Scattered
    *FUNCTIONS,
    Hint("along dim 0", lambda s: any(one.shape != right.shape for one, right
         in zip(s.output, s.expect["output"], strict=True)),
         "The output has a wrong shape. The sequence is dim 1. Chunks that follow each other in "
         "memory have to be put side by side."),
)
ANOTHER_S = Hint("another's part", lambda s: any(_turned(s, name) for name in s.right),
    "The parts belong to different ranks: part r is rank r's part.")
GATHERED = (
    *PARTS,
    Hint("one below the other", lambda s: s.wrong("output") and by_rank(s.output, s.reshaped),
         "The shape is right, but the tokens are at wrong places: the ranks' chunks follow each "
         "other in memory. Put the chunks side by side along dim 1."),
    Hint("own slice", lambda s: by_rank(s.gradient, s.own),
         "Every rank has a gradient for your part, because all ranks got the part. Add these "
         "gradients."),
    Hint("mean", lambda s: by_rank(s.gradient, [one / s.n for one in s.expect["gradient"]]),
         "The result is the mean. A tensor that several ranks have used gets the sum of their "
         "gradients."),
    sends_more(forward="each rank sends only its own part.",
               backward="each rank needs only the sum of its own part."),
    ANOTHER_S,
    Hint("other output", lambda s: s.wrong("output"),
         "The output must be the parts of ranks 0, 1, … side by side along dim 1."),
    Hint("other gradient", say="The output is right. The gradient of this rank's part is the sum "
         "of all ranks' gradients of the part."),
)
SCATTERED = (
    *PARTS,
    Hint("own slice", lambda s: by_rank(s.output, s.own),
         "Each rank has a part of the sum for every token. Add first, then cut."),
    Hint("mean", lambda s: by_rank(s.output, [one / s.n for one in s.expect["output"]]),
         "The result is the mean. Add the parts of a sum."),
    Hint("only its own", lambda s: not s.wrong("output") and by_rank(s.gradient, s.alone),
         "The gradient is zero in the parts of other ranks. Each token's sum went to one rank, but "
         "all ranks had a part in this sum. Gather the ranks' gradients."),
    Hint("divided gradient", lambda s: not s.wrong("output") and s.n > 1
         and by_rank(s.gradient, [one / s.n for one in s.right["gradient"]]),
         "The gradient is divided by the number of ranks. A sum passes the whole gradient to each "
         "of its parts."),
    sends_more(forward="an all_reduce does the work of a reduce-scatter and, in addition, of an "
    "all-gather.",
               backward="each rank sends only its own part."),
    ANOTHER_S,
    Hint("other output", lambda s: s.wrong("output"),
         "The output is not this rank's part of the sum of all ranks' x, along dim 1."),
    Hint("other gradient", say="The output is right. The gradient of x is the gradients of ranks "
         "0, 1, … side by side, because rank r's part of the sum went to rank r."),
)
# fmt: on


def _turned(s: Seen, name: str) -> bool:
    """True if the parts are right, but each rank r has the part of rank r + k, for some k."""
    got, parts = s[name], s.right[name]
    if not s.wrong(name) or s.n == 1 or same(parts[0], parts[1]):
        return False
    return any(by_rank(got, parts[by:] + parts[:by]) for by in range(1, s.n))
