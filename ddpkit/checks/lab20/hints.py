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
    """Return a condition: one of the ideas gives all of the answer's FLOPs for again="none"."""

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
        f"{many} % are missing at a length of {s.lengths[1]:,} and {few} % at {s.lengths[0]}: "
        "attention has products too."
    )


def _again(s: Seen) -> str | None:
    if s.again == "none" or s.wrong("none"):
        return None
    found, due = float(s[s.again][0]), float(s.due[s.again][0])
    more = "many" if found > due else "few"
    return (
        f"Right where nothing is computed again; with {s.again!r} {100 * abs(found / due - 1):.1f} "
        f"% too {more}."
    )


def _again_more(s: Seen) -> str:
    if s.again == "full":
        return (
            "A block's forward runs once more, up to the last product, which no backward needs. "
            "The head belongs to no block."
        )
    return "Products 2, 4, 6 of a block are computed again, and attention is kept."


def _flops_else(s: Seen) -> str:
    rows = [(way, at) for way in s.due for at in range(len(s.due[way]))]
    ratios = {f"{float(s[way][at]) / float(s.due[way][at]):.3g}" for way, at in rows}
    if len(ratios) == 1:
        return f"{ratios.pop()} times the count in every case."
    way, at = next(row for row in rows if s[row[0]][row[1]] != s.due[row[0]][row[1]])
    ratio = float(s[way][at]) / float(s.due[way][at])
    return f"{ratio:.3g} times the count for {s.words[at]}, again={way!r}."


# fmt: off
FLOPS = (
    Hint("no number", lambda s: not all(_numbers(s[way]) for way in s.due),
         "Return one number of FLOPs, an int."),
    Hint("6ND", _counts("6ND"),
         _by_length("That is 6ND. At a length of {short} it is {few:.2f} times the count, at "
                    "{long:,} {many:.2f} times: attention grows with the length, and the embedding "
                    "is a lookup.")),
    Hint("attention", _counts("attention"), _missing),
    Hint("halved", _counts("halved"),
         "Attention is halved here. The mask hides half of the pairs, and the convention of this "
         "lab counts all: say which one you use, and use one."),
    Hint("head", _counts("no head", "head twice"),
         "The head is a product of width by vocabulary. The embedding is a lookup: 0."),
    Hint("backward", _counts("backward"),
         "A backward has two products for each one of the forward: one for the input, one for the "
         "weights."),
    Hint("again", _again, _again, more=_again_more),
    Hint("other count", lambda s: s.error is None, _flops_else),
)
# fmt: on

# fits


def _like(name: str) -> Callable[[Seen], bool]:
    """Return a condition: all bytes are within half a percent of the bytes of a mistake."""

    def fits(s: Seen) -> bool:
        return any(_near(s["bytes"], each) for each in s.ideas[name])

    return fits


def _which(name: str, s: Seen) -> int:
    """Return the index of the variant of the mistake `name` that gives nearly these bytes."""
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
        f"{len(_off(s))} of {len(s.steps)} are too small, case {at} by "
        f"{(s.run[at] - s['bytes'][at]) / 1e9:.1f} GB: {tokens:,} tokens have "
        f"{step.shape.vocab:,} logits each, and the loss makes float32 of them."
    )


def _no_working(s: Seen) -> str:
    shape = s.steps[_off(s)[0]].shape
    return (
        f"Right where the loss is the peak. {shape.parameters / 1e9:,.1f} billion parameters have "
        f"{shape.block / 1e9:.2g} billion in a block: gathered twice, and gradients in two "
        "precisions."
    )


def _fits_else(s: Seen) -> str:
    off = _off(s)
    first = off[0]
    ratio = s["bytes"][first] / s.run[first]
    cases = ", ".join(map(str, off))
    return f"Off in cases {cases}: {ratio:.2f} of the run ({s.steps[first].words})."


# fmt: off
FITS = (
    Hint("no number", lambda s: not _numbers(s["bytes"]), "Return one number of bytes."),
    Hint("no logits", _like("no logits"), _no_logits),
    Hint("logits once", _like("logits once"),
         lambda s: f"A logit counts {(2, 4, 6, 8, 10)[_which('logits once', s)]} bytes here. "
         "In backward log_softmax's output, its gradient and theirs are there at once."),
    Hint("not divided", _like("not divided"),
         lambda s: f"Every rank has the state of all {s.steps[0].shape.parameters / 1e9:.1f} "
         f"billion parameters here: FSDP divides it by {s.steps[0].ranks}."),
    Hint("states", _like("states"),
         lambda s: f"{(16, 14, 10, 8)[_which('states', s)]} bytes a parameter and rank. float32 "
         "parameters and Adam's two are 12; gradients come and go block by block, and are all "
         "there only at the end."),
    Hint("again", _like("again"),
         "Right with 'none'. With 'full' a block keeps its input alone."),
    Hint("no working set", _like("no working set"), _no_working),
    Hint("off", _off, _fits_else),
)
# fmt: on

# roof


def _ends(idea: str) -> Callable[[Seen], bool]:
    """Return a condition: the answer's end is wrong, and equals the end that a wrong idea gives."""

    def fits(s: Seen) -> bool:
        idea_us = Close(1e6 * s.ideas[idea], digits=5)
        return s.wrong("us") and same(float(s["us"]), idea_us)

    return fits


def _first_wrong(s: Seen) -> int:
    pairs = zip(s["limits"], s.expect["limits"], strict=True)
    return next(at for at, (got, due) in enumerate(pairs) if got != due)


def _roof_else(s: Seen) -> str:
    if s.wrong("us"):
        due = 1e6 * s.ideas["end"]
        return (
            f"Ends at {s['us']:.3f} us, due {due:.3f}: the k-th operation, counted from 1, is "
            "launched at k * machine.launch."
        )
    at = _first_wrong(s)
    return f"Operation {at} is bound by {s.expect['limits'][at]}, not by {s['limits'][at]}."


# fmt: off
ROOF = (
    Hint("one name each", lambda s: len(s["limits"]) != len(s.expect["limits"]),
         lambda s: f"{len(s['limits'])} limits for {len(s.expect['limits'])} operations."),
    Hint("added", _ends("added"),
         lambda s: f"{s['us']:.0f} us where {1e6 * s.ideas['end']:.0f} are due: while the device "
         "works, the host launches the next."),
    Hint("each for itself", lambda s: s.has_queue and _ends("each for itself")(s),
         "Operation 3 is short, and was launched while operation 0 still ran: it waits for no "
         "launch."),
    Hint("no launches", lambda s: s.has_queue and _ends("no launches")(s),
         "The host launches each operation first: the k-th is launched at k * machine.launch."),
    Hint("both", _ends("both"),
         "A kernel reads while it computes: the longer of the two."),
    Hint("upside down", lambda s: not s.wrong("us") and list(s["limits"]) == s.ideas["upside down"],
         "The two names are exchanged: arithmetic is flops / machine.flops."),
    Hint("wrong limit", lambda s: not s.wrong("us") and list(s["limits"]) == s.ideas["short"],
         lambda s: f"Operation {_first_wrong(s)}: the device was still busy when it was launched."),
    Hint("other end", lambda s: s.wrong(), _roof_else),
)
# fmt: on
