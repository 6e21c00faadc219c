"""Lab 09: sentences about mistakes, for the exercises after the fit."""

from __future__ import annotations

import math
from functools import partial

from ddpkit.checks.lab09 import batches, choices, money
from ddpkit.checks.lab09.batches import Pair
from ddpkit.checks.shared.mistakes import hints_for
from ddpkit.exercises.hint import Hint, Seen


def _is_text(answer: object) -> bool:
    first = answer[0] if isinstance(answer, list) else answer  # autotune: [cap, measured caps]
    return isinstance(first, str | bytes)


A_TEXT = Hint("a text", lambda s: any(map(_is_text, s.answers)),
              "You return a text with a number in it. Return the number itself.")  # fmt: skip


def changed(what: str) -> Hint:
    says = f"You have changed {what}, but later cells use the same object. Work on a copy."
    return Hint("changed", lambda s: not s.kept, says)


# autotune

PREDICTED = changed("`predicted`")
TUNING = (A_TEXT, PREDICTED, *hints_for(choices.TUNING, choices.OTHER_TUNING))
AS_LONG = (
    PREDICTED,
    Hint(
        "good prediction",
        lambda s: s.answers[0] == s.expect["answers"][0],
        "A good prediction proves nothing: a cap with a larger prediction may be better.",
    ),
    Hint("as long", say="A prediction equal to the best measurement cannot win. Stop there."),
)
FAST = (
    PREDICTED,
    Hint("a margin",
         say="The times are only microseconds here. Compare them without a margin: it would hide "
         "small differences."),
)  # fmt: skip

# servers

SIZES = changed("`sizes`")
TOO_FEW = (
    Hint("not whole", lambda s: any(type(each) not in (int, type(None)) for each in s.answers),
         "Servers are counted. Return a whole number, or None."),
    SIZES,
    *hints_for(choices.TOO_FEW, choices.OTHER_SERVERS),
)  # fmt: skip
EXACT = (
    SIZES,
    Hint("just enough", lambda s: s.answers[0] != s.expect["answers"][0],
         "Just enough time is enough: at most `seconds`, not less than `seconds`."),
    Hint("one", lambda s: s.answers[2] != 1, "One server may be enough. Begin with 1."),
    Hint("tiny", lambda s: s.answers[:3] == s.expect["answers"][:3],
         lambda s: f"All tensors have {s.questions[3][0][0]} bytes here. Place small tensors like "
         "large tensors."),
    Hint("one for each", say="There may be as many servers as tensors, one for each tensor."),
)  # fmt: skip
NEVER = (
    SIZES,
    Hint("no None", lambda s: s.answers == [len(q[0]) for q in s.questions],
         "Even one server for each tensor is too slow. Return None."),
    Hint("too large", say="One tensor keeps its server busy too long: more servers do not help."),
)  # fmt: skip

# noise_scale

NOISE = (A_TEXT, *hints_for(batches.NOISE, batches.OTHER_NOISE))
SMALL = (
    Hint("a threshold", lambda s: s.answers == [math.inf],
         "The signal is small here, but above 0. Compare the signal with 0 itself."),
    *NOISE,
)  # fmt: skip
NO_SIGNAL = (
    Hint("exactly 0", lambda s: s.raised == "ZeroDivisionError" or s.error is None,
         "The signal is exactly 0 here, so noise covers the signal. Return math.inf."),
)  # fmt: skip

# adasum


def _sums_as(idea: Pair, s: Seen) -> bool:
    pairs = zip(s.sums, s.pairs, strict=True)
    return all(
        each.allclose(idea(a, b), rtol=1e-4, atol=1e-4 * float(a.abs().max() + b.abs().max()))
        for each, (a, b) in pairs
    )


def _short(s: Seen) -> bool:
    return all(0 < float(a.norm()) < 0.3 for a, _ in s.pairs)


ADASUM = (
    Hint("no tensor", lambda s: any(isinstance(each, str) for each in s.sums),
         "Return a tensor of the same kind as the gradients."),
    Hint("not a number", lambda s: any(bool(each.isnan().any()) for each in s.sums),
         "A gradient of zeros has no direction: 0 / 0. Return the other gradient unchanged."),
    Hint("changed", lambda s: not s.kept, "The gradients belong to the ranks. Do not change them."),
    *(Hint(name, partial(_sums_as, idea), says) for name, idea, says in batches.SUMS),
    Hint("short ones", _short,
         "These gradients are short: |a|² is below 0.1. A small number that you add to |a|², or a "
         "rounding, makes a difference here."),
    Hint("other", say="The answer is (1 - a·b / 2|a|²) a + (1 - a·b / 2|b|²) b."),
)  # fmt: skip

# expected_hours

HOURS = (A_TEXT, *hints_for(money.HOURS, money.OTHER_HOURS))
BROKEN = (A_TEXT, *hints_for(money.BROKEN, money.OTHER_HOURS))
SHORTER = (A_TEXT, *hints_for(money.SHORTER, money.OTHER_HOURS))
NEVER_REVOKED = (
    Hint("rate of 0", lambda s: s.raised == "ZeroDivisionError" or s.answers[0] != s.answers[0],
         "Servers that are never revoked take hours · (1 + save / interval). There is no rate to "
         "divide by."),
    *BROKEN[:-1],
    *HOURS,
)  # fmt: skip

# plan

PLANS = hints_for(money.PLANS, money.OTHER_PLANS)
FEW = hints_for(money.FEW, money.OTHER_PLANS)
EQUAL = (Hint("the slower", lambda s: None not in s.answers,
              "Of equally cheap plans, choose the faster plan."),)  # fmt: skip
IN_TIME = (Hint("just in time", lambda s: s.answers == [None],
                "A plan that takes exactly `deadline` hours is in time."),)  # fmt: skip
LATE = (Hint("not None", say="No plan is done in time. Return None."),)
