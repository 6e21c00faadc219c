"""Lab 20: sentences for wrong answers about sizes and operations: model_flops, fits, roof."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close

# model_flops


def _numbers(found: Any) -> bool:
    return all(isinstance(each, int | float) and not isinstance(each, bool) for each in found)


def _counts(*ideas: str) -> Callable[[Seen], bool]:
    """Return a condition: a mistake in `ideas` gives all of the answer's FLOPs for again="none"."""

    def fits(s: Seen) -> bool:
        return any(list(s["none"]) == s.ideas[name] for name in ideas)

    return fits


def _ratio(s: Seen, at: int) -> float:
    return float(s["none"][at]) / float(s.due["none"][at])


def _by_length(words: str) -> Callable[[Seen], str]:
    return lambda s: words.format(
        short=s.lengths[0], few=_ratio(s, 0), long=s.lengths[1], many=_ratio(s, 1)
    )


def _missing(s: Seen) -> str:
    few, many = (round(100 * (1 - _ratio(s, at))) for at in (0, 1))
    return (
        f"Your number is {many} % too small at a length of {s.lengths[1]:,}, and {few} % too small "
        f"at {s.lengths[0]}: attention has products too."
    )


def _again(s: Seen) -> str | None:
    if s.again == "none" or s.wrong("none"):
        return None
    found, due = float(s[s.again][0]), float(s.due[s.again][0])
    more = "large" if found > due else "small"
    return (
        f"Your number is right with again='none', but with again={s.again!r} it is "
        f"{100 * abs(found / due - 1):.1f} % too {more}."
    )


def _again_more(s: Seen) -> str:
    if s.again == "full":
        return (
            "With again='full', each block's forward runs once more, except its last product, "
            "because no backward needs the output of this product. The head is not in a block."
        )
    return "Only products 2, 4, 6 of a block are computed again. Attention is kept."


def _flops_else(s: Seen) -> str:
    rows = [(way, at) for way in s.due for at in range(len(s.due[way]))]
    ratios = {f"{float(s[way][at]) / float(s.due[way][at]):.3g}" for way, at in rows}
    if len(ratios) == 1:
        return f"In every case, your number is {ratios.pop()} times the right number."
    way, at = next(row for row in rows if s[row[0]][row[1]] != s.due[row[0]][row[1]])
    ratio = float(s[way][at]) / float(s.due[way][at])
    return (
        f"For {s.words[at]} with again={way!r}, your number is {ratio:.3g} times the right number."
    )


# fmt: off
FLOPS = (
    Hint("no number", lambda s: not all(_numbers(s[way]) for way in s.due),
         "Return one int, the number of FLOPs."),
    Hint("6ND", _counts("6ND"),
         _by_length("Your number is 6ND. At a length of {short} it is {few:.2f} times the right "
                    "number, and at {long:,} it is {many:.2f} times: attention grows with the "
                    "length, and the embedding is a lookup without FLOPs.")),
    Hint("attention", _counts("attention"), _missing),
    Hint("halved", _counts("halved"),
         "You count only half of attention. The mask hides half of the pairs, but this lab counts "
         "all pairs."),
    Hint("head", _counts("no head", "head twice"),
         "The head is a product of width by vocabulary. The embedding is a lookup, with 0 FLOPs."),
    Hint("backward", _counts("backward"),
         "A backward has two products for each product of the forward: one for the gradient of the "
         "input, and one for the gradient of the weights."),
    Hint("again", _again, _again, more=_again_more),
    Hint("other count", lambda s: s.error is None, _flops_else),
)
# fmt: on

# fits


def _like(name: str) -> Callable[[Seen], bool]:
    """Return a condition: all answers are within half a percent of those of the mistake `name`."""

    def fits(s: Seen) -> bool:
        return any(_near(s["bytes"], each) for each in s.ideas[name])

    return fits


def _which(name: str, s: Seen) -> int:
    """Return the index of the variant of the mistake `name` that fits the answer's bytes."""
    ideas: Sequence[Sequence[float]] = s.ideas[name]
    return next(at for at, each in enumerate(ideas) if _near(s["bytes"], each))


def _near(found: Sequence[float], due: Sequence[float]) -> bool:
    return all(abs(got / each - 1) < 0.005 for got, each in zip(found, due, strict=True))


def _off(s: Seen) -> list[int]:
    return [at for at, good in enumerate(s["within 5 %"]) if not good]


def _no_logits(s: Seen) -> str:
    at = _off(s)[0]
    step = s.steps[at]
    tokens = step.sequences * step.length
    return (
        f"{len(_off(s))} of your {len(s.steps)} numbers are too small, in case {at} by "
        f"{(s.run[at] - s['bytes'][at]) / 1e9:.1f} GB. {tokens:,} tokens have {step.shape.vocab:,} "
        "logits each, and the loss converts the logits to float32."
    )


def _no_working(s: Seen) -> str:
    shape = s.steps[_off(s)[0]].shape
    return (
        f"Your number is right if the loss has the peak. But of {shape.parameters / 1e9:,.1f} "
        f"billion parameters, {shape.block / 1e9:.2g} billion are in one block: during the "
        "backward of a block, two blocks are gathered, and gradients exist in two precisions."
    )


def _fits_else(s: Seen) -> str:
    off = _off(s)
    first = off[0]
    ratio = s["bytes"][first] / s.run[first]
    cases = ", ".join(map(str, off))
    return (
        f"Your numbers are wrong in cases {cases}: in the first of these, {ratio:.2f} times the "
        f"bytes of the run ({s.steps[first].words})."
    )


# fmt: off
FITS = (
    Hint("no number", lambda s: not _numbers(s["bytes"]), "Return one number, in bytes."),
    Hint("no logits", _like("no logits"), _no_logits),
    Hint("logits once", _like("logits once"),
         lambda s: f"You count {(2, 4, 6, 8, 10)[_which('logits once', s)]} bytes for a logit. In "
         "backward, log_softmax's output, its gradient and the logits' gradient are in memory at "
         "the same time, each in float32."),
    Hint("not divided", _like("not divided"),
         lambda s: "In your number, every rank holds the state of all "
         f"{s.steps[0].shape.parameters / 1e9:.1f} billion parameters, but FSDP divides the state "
         f"by {s.steps[0].ranks}."),
    Hint("states", _like("states"),
         lambda s: f"You count {(16, 14, 10, 8)[_which('states', s)]} bytes of state for each "
         "parameter of a rank. The float32 parameter and Adam's two numbers have 12. Gradients "
         "come and go block by block, and all gradients exist only at the end of backward."),
    Hint("again", _like("again"),
         "Your number is right with 'none'. With 'full', a block keeps only its input."),
    Hint("no working set", _like("no working set"), _no_working),
    Hint("off", _off, _fits_else),
)
# fmt: on

# roof


def _ends(idea: str) -> Callable[[Seen], bool]:
    """Return a condition: the answer's end time is wrong, and is the end time by mistake `idea`."""

    def fits(s: Seen) -> bool:
        idea_us = Close(1e6 * s.ideas[idea], digits=5)
        return s.wrong("us") and same(float(s["us"]), idea_us)

    return fits


def _first_wrong(s: Seen) -> int:
    pairs = zip(s["limits"], s.expect["limits"], strict=True)
    return next(at for at, (got, due) in enumerate(pairs) if got != due)


def _busy(s: Seen) -> int | None:
    """Return the first operation with the wrong limit "launches"; None if no operation has it."""
    pairs = zip(s["limits"], s.expect["limits"], strict=True)
    found = (at for at, (got, due) in enumerate(pairs) if got == "launches" != due)
    return next(found, None)


def _roof_else(s: Seen) -> str:
    if s.wrong("us"):
        due = 1e6 * s.ideas["end"]
        return (
            f"Your end is {s['us']:.3f} us, but {due:.3f} us is right: operation k, counted from "
            "1, is launched at k * machine.launch."
        )
    at = _first_wrong(s)
    return f"Operation {at} is bound by {s.expect['limits'][at]}, not by {s['limits'][at]}."


# fmt: off
ROOF = (
    Hint("one name each", lambda s: len(s["limits"]) != len(s.expect["limits"]),
         lambda s: f"You return {len(s['limits'])} limits for {len(s.expect['limits'])} "
         "operations."),
    Hint("added", _ends("added"),
         lambda s: f"Your end is {s['us']:.0f} us, but {1e6 * s.ideas['end']:.0f} us is right: "
         "while the device works, the host launches the next operation."),
    Hint("each for itself", lambda s: s.has_queue and _ends("each for itself")(s),
         "Operation 3 is short, but was launched while operation 0 still ran. The device does not "
         "wait for the launch of operation 3."),
    Hint("no launches", lambda s: s.has_queue and _ends("no launches")(s),
         "The host launches each operation first: operation k, counted from 1, at k * "
         "machine.launch."),
    Hint("both", _ends("both"),
         "A kernel reads memory while it computes. Take the longer of the two times, not their "
         "sum."),
    Hint("upside down", lambda s: not s.wrong("us") and list(s["limits"]) == s.ideas["upside down"],
         "You have exchanged 'arithmetic' and 'memory': the time of arithmetic is flops / "
         "machine.flops."),
    Hint("wrong limit", lambda s: not s.wrong("us") and list(s["limits"]) == s.ideas["short"]
         and _busy(s) is not None,
         lambda s: f"The limit of operation {_busy(s)} is not 'launches': at its launch, the "
         "device was still busy."),
    Hint("other end", lambda s: s.wrong(), _roof_else),
)
# fmt: on
