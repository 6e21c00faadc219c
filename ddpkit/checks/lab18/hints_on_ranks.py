"""Lab 18: sentences for wrong answers on ranks: Again, worth_keeping."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.text import size

if TYPE_CHECKING:
    from torch import Tensor

# Again


def _values_wrong(s: Seen) -> bool:
    return bool(s.wrong("output", "of inputs", "of parameters"))


def _missing(gradient: Tensor) -> bool:
    return bool(gradient.numel() == 0)


def _seeded(s: Seen) -> bool:
    """True if all ranks have the same output although the ranks have different random seeds."""
    return bool(s.n > 1 and not s.times and s.wrong("output") and _all_same(s.output))


def _all_same(tensors: Sequence[Tensor]) -> bool:
    return all(each.equal(tensors[0]) for each in tensors[1:])


def _no_parameters(s: Seen) -> bool:
    grads = [g for each in s.of_parameters for block in each for g in block]
    return not s.wrong("output") and all(map(_missing, grads))


def _lacking(s: Seen) -> bool:
    """True if an input has no gradient, and all other inputs have right gradients."""
    pairs = [
        pair
        for own, due in zip(s.of_inputs, s.expect["of inputs"], strict=True)
        for pair in zip(own, due, strict=True)
    ]
    missing = [_missing(own) for own, _ in pairs]
    right = all(_missing(own) or same(own, due) for own, due in pairs)
    return right and any(missing) and not all(missing)


def _overwritten(s: Seen) -> bool:
    """True if the answer replaced earlier gradients of parameters instead of adding to them."""
    pairs = zip(s.of_parameters, s.expect["of parameters"], strict=True)
    blocks = [pair for own, due in pairs for pair in zip(own, due, strict=True)]
    both = [pair for own, due in blocks for pair in zip(own, due, strict=True)]
    return bool(s.times) and all(not _missing(own) and same(own + 1, due) for own, due in both)


def _last_bias(s: Seen) -> Any:
    return s.of_parameters[0][-1][-1]


def _other_loss(s: Seen) -> bool:
    last = _last_bias(s)
    return not s.wrong("output") and bool((last == s.rows).all()) and not _missing(last)


def _stops(s: Seen) -> bool:
    """True if the last block has right gradients, and the blocks before it have none."""
    own, due = s.of_parameters[0], s.expect["of parameters"][0]
    before = [g for block in own[:-1] for g in block]
    return same(own[-1], due[-1]) and not any(bool(g.any()) for g in before)


def _other_dropout(s: Seen) -> bool:
    """True if the last block has a wrong gradient, but its last bias has the right gradient.

    The gradient of the last bias does not depend on dropout.
    """
    due = s.expect["of parameters"][0][-1]
    own = s.of_parameters[0][-1]
    right = [same(a, b) for a, b in zip(own, due, strict=True)]
    return not s.wrong("output") and right[-1] and not all(right)


def _more_calls(s: Seen) -> int:
    return max((each for calls in s.calls for each in calls if each > 2), default=0)


def _once(s: Seen) -> bool:
    return all(each == 1 for calls in s.calls for each in calls)


# fmt: off
KEEPS = Hint(
    "keeps everything", _once,
    "Your code called each function only once, so it computed nothing again. Call the function a "
    "second time, in backward.")
CALLS = Hint(
    "computed too often", _more_calls,
    lambda s: f"Your code called a function {_more_calls(s)} times. Once in forward and once in "
    "backward is enough for all inputs; each further backward adds to the parameters' gradients "
    "again.")
AGAIN = (
    Hint("no graph", lambda s: s.kind == "no graph",
         "In forward and in backward no graph is made unless you ask for it: torch.enable_grad()."),
    Hint("none for the function", lambda s: s.kind == "gradient count",
         "backward must return one value for each argument of forward, and None for the function."),
    Hint("not cut off", lambda s: s.kind == "graph freed",
         "Your backward went on into the earlier blocks. Detach the inputs, and let the detached "
         "inputs require a gradient."),
    Hint("an index", lambda s: s.kind == "no floats",
         "An input may be an index, which cannot require a gradient. Ask each input for its own "
         "requires_grad."),
    KEEPS,
    CALLS,
    Hint("seeded", _seeded,
         "Now all ranks drop the same numbers. Restore the generator's own state, and do not set a "
         "seed."),
    Hint("stops here", _stops,
         "The last block's gradients are right, but no earlier block has gradients. Call "
         "requires_grad_() on a detached input if the original input required a gradient, and "
         "return its gradient."),
    Hint("parameters get nothing", _no_parameters,
         "No parameter has a gradient. torch.autograd.grad only returns gradients and leaves .grad "
         "unchanged: call backward."),
    Hint("another loss", _other_loss,
         "Your gradients are those of output.sum(). backward gets the gradient of the output: pass "
         "it on."),
    Hint("rewound", lambda s: s.wrong("next number") and not _values_wrong(s),
         "All gradients are right, but afterwards the generator is in a wrong state, so the next "
         "step could drop the same numbers again. Restore the state that you found."),
    Hint("other numbers", _other_dropout,
         "Your gradients belong to a different dropout than the output. Before the second "
         "computation, restore the generator's state of the forward."),
    Hint("overwritten", _overwritten,
         "The parameters already had gradients from another backward, and your code has lost them. "
         "Add to these gradients."),
    Hint("lacks an input", _lacking,
         "An input that requires a gradient has none: backward returns the gradient of each "
         "input."),
    Hint("other output", lambda s: s.wrong("output"),
         "The output differs from function(*inputs). Call the function unchanged, and do not seed "
         "the generator."),
    Hint("other gradients", _values_wrong,
         "The output is right, but some gradients are wrong. Run one backward through the second "
         "output, with the given gradient: it makes the gradients of inputs and parameters."),
)
LEAN = (
    KEEPS,
    CALLS,
    Hint("holds more", lambda s: s.peak > s.expect["peak"].most,
         lambda s: f"A rank holds up to {size(s.peak)}, and {size(s.expect['peak'].most)} are "
         "enough: between forward and backward, keep only the inputs."),
)
# fmt: on

# worth_keeping


def _values(s: Seen) -> bool:
    return not s.wrong("output", "gradient")


def _slow(s: Seen) -> bool:
    return bool(s.ns > s.expect["ns"].most)


def _sent(s: Seen) -> bool:
    return bool(s["all-reduces"] > s.sums)


def _full(s: Seen) -> bool:
    return bool(s.peak > s.expect["peak"].most)


def _due_ns(s: Seen) -> int:
    flops: int = s.flops
    return round(3 * flops / 1e3)


# fmt: off
POLICY = (
    Hint("upside down", lambda s: _values(s) and _slow(s) and _full(s),
         lambda s: f"The step takes {s.ns:,} ns, but {_due_ns(s):,} are enough, and it holds up to "
         f"{size(s.peak)}. You keep cheap outputs, and compute expensive outputs again. Do the "
         "opposite."),
    Hint("nothing", lambda s: _values(s) and s.ns > 3.98 * s.flops / 1e3,
         lambda s: f"The step takes {s.ns:,} ns, but {_due_ns(s):,} are enough: every product runs "
         "twice.",
         more="torch passes an operation as an overload: compare op with "
         "torch.ops.aten.mm.default."),
    Hint("travels again", lambda s: _values(s) and _sent(s),
         lambda s: f"The values are right, but the step sends {s['all-reduces']} all-reduces, and "
         f"{s.sums} are enough."),
    Hint("multiplies again", lambda s: _values(s) and _slow(s),
         lambda s: f"The step takes {s.ns:,} ns, but {_due_ns(s):,} are enough: some products run "
         "again.",
         more="A linear layer with a bias is an addmm, and a product of batches is a bmm: keep "
         "these outputs too."),
    Hint("everything", lambda s: _values(s) and _full(s),
         lambda s: f"Values and time are right, but {size(s.peak)} are held, and "
         f"{size(s.expect['peak'].most)} are enough: compute element-wise work again, because it "
         "is cheap."),
)
OPERATIONS = (
    Hint("more than products", lambda s: set(s.kept) > set(s.expect["kept"]),
         lambda s: f"The output of {sorted(set(s.kept) - set(s.expect['kept']))[0]} is kept: keep "
         "outputs of products, of the all-reduce and of its wait, and no others."),
)
# fmt: on
