"""Sentences about wrong flat tensors, views, buckets and caps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab05.caps import WRONG_MODELS, CapProblem
from ddpkit.checks.lab05.rules import UNNAMED, WRONG_RULES, Rule
from ddpkit.checks.lab05.views import NUMBER
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen

if TYPE_CHECKING:
    from torch import Tensor, dtype

Chooser = Callable[[CapProblem], float]


def rounded(got: object, right: Tensor) -> bool:
    """True if the values were rounded by a conversion to a different dtype."""
    import torch

    through = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    return any(same(got, right.to(each).to(right.dtype)) for each in through)


def wrong_begin(s: Seen) -> str:
    """Return a sentence about the first piece that begins at a wrong element of flat.

    Raises StopIteration if all pieces begin at the right element.
    """
    begin, due = next(pair for pair in begins(s) if pair[0] != pair[1])
    why = ", where the previous piece ends" if due else ", where flat begins"
    return f"A piece begins at element {begin} of flat, not at element {due}{why}."


# fmt: off
FLAT = (
    Hint("no view", lambda s: s.kind == "no view",
         "A transposed tensor has no 1-D view. reshape copies the tensor if necessary."),
    Hint("not 1-D first", lambda s: s.kind in ("shapes", "factors"),
         "torch.cat joins tensors of one dimension. Make each tensor 1-D first."),
    Hint("no tensor", lambda s: s.kind == "not a tensor",
         "Return a tensor: an all-reduce takes no list, and no numpy array."),
    Hint("one dimension", lambda s: s.flat.shape != s.expect["flat"].shape,
         lambda s: f"Return all {s.expect['flat'].numel()} elements in one dimension."),
    Hint("dtype", lambda s: s.flat.dtype != s.expect["flat"].dtype,
         "The flat tensor has the dtype of the tensors. Use no float(), and no list of Python "
         "numbers."),
    Hint("order", lambda s: s.wrong("flat") and sorted(s.flat) == sorted(s.expect["flat"]),
         "All elements are there, but not in the order of the tensors."),
    Hint("rounded", lambda s: s.wrong("flat") and rounded(s.flat, s.expect["flat"]),
         "The elements have lost digits. Keep their dtype all the way."),
    Hint("used again", lambda s: s.memory == "used again",
         "A second call writes over the tensor of the first call. Make a new tensor in each "
         "call."),
    Hint("shared", lambda s: s.memory == "shared",
         "The flat tensor shares memory with a tensor of the input. Copy even a single tensor."),
)
PIECES = (
    Hint("cut", lambda s: s.kind == "wrong size",
         "A piece has as many elements as its tensor. Cut by numel()."),
    Hint("no list", lambda s: s.kind == "not a list",
         "Return a list: a generator is empty when it is read a second time."),
    Hint("fills the tensors", lambda s: s.wrong("tensors"),
         "`tensors` only give the shapes. Return views of flat, and copy nothing into `tensors`."),
    Hint("number", lambda s: len(s.pieces) != len(s.expect["pieces"]),
         lambda s: f"{len(s.expect['pieces'])} tensors need {len(s.expect['pieces'])} pieces, not "
                   f"{len(s.pieces)}."),
    Hint("shape", lambda s: [p.shape for p in s.pieces] != [w.shape for w in s.expect["pieces"]],
         "Each piece has the shape of its tensor, in the order of `tensors`: view(tensor.shape)."),
    Hint("copies", lambda s: s.wrong("memory"),
         "A change of flat does not change the pieces, so the pieces are not views of flat. Slice, "
         "then view."),
    Hint("where it begins", lambda s: any(begin != due for begin, due in begins(s)), wrong_begin),
    Hint("other elements", lambda s: s.wrong("pieces"),
         "Some piece does not hold the right elements of flat in the right order. Order the "
         "elements row by row, as view() does, and leave flat itself unchanged."),
)


def begins(s: Seen) -> list[tuple[int, int]]:
    """Return, for each piece, the index in flat of its first element, and the right index.

    Pieces without elements are left out. Raises ValueError if a piece is not a part of flat.
    """
    flat = [value for piece in s.expect["pieces"] for value in piece.reshape(-1).tolist()]
    found, due = [], 0
    for got, right in zip(s.pieces, s.expect["pieces"], strict=True):
        values = got.reshape(-1).tolist()
        if values:
            begin = flat.index(values[0])
            if flat[begin : begin + len(values)] != values:
                raise ValueError("a piece of the answer is not a run of elements of flat")
            found.append((begin, due))
        due += right.numel()
    return found


def follows(rule: Rule, s: Seen) -> bool:
    """True if the answer's buckets follow the wrong rule `rule`.

    False if a rule without a hint (`UNNAMED`) gives the same buckets.
    """
    return s.buckets == rule.buckets(s.parameters, s.cap, s.first) and not any(
        s.buckets == other.buckets(s.parameters, s.cap, s.first) for other in UNNAMED.values()
    )


def kinds_of(s: Seen, bucket: list[int]) -> set[tuple[dtype, str]]:
    """Return the (dtype, device) pairs of the parameters in a bucket."""
    return {(s.parameters[i].dtype, str(s.parameters[i].device)) for i in bucket}


def first_other(s: Seen) -> int:
    """Return the number of the first bucket that differs from the right bucket."""
    pairs = enumerate(zip_longest(s.buckets, s.expect["buckets"]))
    return next(i for i, (got, right) in pairs if got != right)


BUCKETED = (
    Hint("no list", lambda s: s.kind == "not a list",
         "Return a list of buckets, and each bucket as a list: later cells call len() on both."),
    Hint("iterator", lambda s: s.kind == "iterator",
         "parameters may be an iterator, like model.parameters(). Make a list first."),
    *(Hint(name, partial(follows, rule), says) for name, rule, says in WRONG_RULES),
    Hint("no parameter", lambda s: "no parameter" in chain(*s.buckets),
         "A bucket is a list of the parameters themselves."),
    Hint("not each once", lambda s: sorted(chain(*s.buckets)) != list(range(len(s.parameters))),
         "Each parameter belongs to one bucket. Here some parameters are missing, or in two "
         "buckets."),
    Hint("an empty one", lambda s: [] in s.buckets,
         "A bucket is empty. At the end, close a bucket only if it has parameters."),
    Hint("several kinds", lambda s: any(len(kinds_of(s, bucket)) > 1 for bucket in s.buckets),
         "A bucket has parameters of several dtypes or devices, but a bucket must be one tensor. "
         "Close the open buckets at the end kind by kind, too."),
    Hint("order within", lambda s: any(b != sorted(b, reverse=True) for b in s.buckets),
         "Within a bucket, the parameters keep the order in which they were put in, the reverse "
         "order."),
    Hint("order of buckets", lambda s: sorted(s.buckets) == sorted(s.expect["buckets"]),
         "Return the buckets in the order in which they closed, and then the buckets that are "
         "still open, in the order in which they were opened. After a kind has closed a bucket, "
         "its next bucket is opened later."),
    Hint("stays open", say=lambda s:
         f"The first wrong bucket is number {first_other(s)}. A bucket closes with the parameter "
         "that makes its bytes, numel() times element_size(), reach the cap. Each kind has its "
         "own bucket."),
)


def flats(values: Sequence[Any]) -> Sequence[Tensor]:
    return values[:NUMBER]


def gradients(s: Seen) -> list[tuple[Any, Any]]:
    """Return pairs of the answer's gradient and the right gradient."""
    return list(zip(s["values"], s.expect["values"], strict=True))[NUMBER:]


def with_held(s: Seen) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Yield each gradient of the answer, the right gradient, and the view's earlier content."""
    import torch

    for (got, right), factor in zip(gradients(s), s.held, strict=True):
        yield got, right, factor * torch.arange(1, right.numel() + 1).reshape(right.shape)


def differ(one: Tensor, other: Tensor) -> bool:
    import torch

    return not torch.equal(one, other)


VIEWS = (
    Hint("asks None", lambda s: s.kind == "None",
         "A value here is None. p.grad is None before the first backward: then leave p.grad None, "
         "and put zeros into its place in flat[i]."),
    Hint("flat tensor",
         lambda s: s.kind == "not its gradient" or [(f.shape, f.dtype) for f in flats(s["values"])]
         != [(f.shape, f.dtype) for f in flats(s.expect["values"])],
         "flat[i] is a 1-D tensor with the dtype of bucket i's parameters, and with room for all "
         "their elements."),
    Hint("device", lambda s: s.wrong("devices"),
         "flat[i] lies on the device of bucket i's parameters, like their gradients: "
         "device=p.device, or torch.zeros_like(p)."),
    Hint("other buckets", lambda s: s.wrong("other buckets") and not s.wrong("values", "memory"),
         "collect(i) has changed a bucket other than bucket i, before the gradients there are "
         "ready. Collect only bucket i."),
    Hint("None", lambda s: any(right is None is not got for got, right in gradients(s)),
         "A gradient that is None stays None. Only its place in flat[i] becomes 0."),
    Hint("added", lambda s: any(s.held) and all(
        same(got, (right + held).to(right.dtype)) for got, right, held in with_held(s)),
         "The view still held the gradients of the previous backward, and the new gradients were "
         "added to them. Copy the values instead."),
    Hint("digits lost",
         lambda s: any(got is not None is not right and differ(got, right) and rounded(got, right)
                       for got, right in gradients(s)),
         "A gradient has lost digits. Keep its dtype all the way."),
    Hint("values lost",
         lambda s: any(differ(got, right) for got, right in gradients(s) if right is not None),
         "A gradient no longer has the values of backward. Copy the values into the view before "
         "the view replaces the gradient."),
    Hint("old values", lambda s: s.wrong("values") and any(got is None for got, _ in gradients(s)),
         "flat[i] still holds old values for a gradient that is None. Set these values to 0."),
    Hint("not collected",
         lambda s: any(flat.any() for flat in flats(s.expect["values"]))
         and not any(flat.any() for flat in flats(s["values"]))
         and same([got for got, _ in gradients(s)], [right for _, right in gradients(s)]),
         "Gradients that exist when the buckets are made must be collected at once."),
    Hint("not its values", lambda s: s.wrong("values"),
         "flat[i] must hold the values of its gradients, in the order of its parameters."),
    Hint("no views", lambda s: s.memory.endswith(("copies", "views of other shapes")),
         "views[i] are views of flat[i] with the shapes of the parameters; `unflatten` makes such "
         "views."),
    Hint("memory of its own", lambda s: s.memory.endswith("gradients of their own"), lambda s:
         f"The memory in use is {s.memory}, where {s.expect['memory']} is enough: p.grad has "
         "memory of its own. Make p.grad the view: p.grad = view."),
    Hint("more memory", lambda s: s.wrong("memory"), lambda s:
         f"The memory in use is {s.memory}, where {s.expect['memory']} is enough."),
)


def chooses_as(choose: Chooser, s: Seen) -> bool:
    """True if the wrong model `choose` would choose the same caps as the answer.

    False if the problems of the case do not tell all wrong models apart.
    """
    return s.telling and bool(s.caps == [choose(problem) for problem in s.problems])


def first_wrong(s: Seen) -> tuple[CapProblem, float]:
    """Return the first problem for which the answer chose a wrong cap, and this cap."""
    pairs = zip(s.problems, s.caps, strict=True)
    return next((problem, cap) for problem, cap in pairs if cap != problem.best())


def later(problem: CapProblem, cap: float) -> str:
    """Return a sentence about a wrong cap; it hides the right cap, because inputs may be secret."""
    late, early = (round(problem.done(each) * 1000) for each in (cap, problem.best()))
    return (
        f"With {cap:g} MB, the last all-reduce ends after {late} ms, but with the best cap after "
        f"{early} ms."
    )


CAP = (
    *(Hint(name, partial(chooses_as, model.best), says) for name, model, says in WRONG_MODELS),
    Hint("smallest", partial(chooses_as, lambda problem: min(problem.caps)),
         "You choose the smallest cap each time."),
    Hint("largest", partial(chooses_as, lambda problem: max(problem.caps)),
         "You choose the largest cap each time."),
    Hint("none of caps", lambda s: first_wrong(s)[1] not in first_wrong(s)[0].caps,
         "The answer must be one of `caps`, in MB."),
    Hint("not the first", lambda s: first_wrong(s)[0].world_size == 1,
         "If several caps are equally good, return the first of them. For one rank, all caps are "
         "equally good."),
    Hint("later", say=lambda s: later(*first_wrong(s))),
)
# fmt: on
