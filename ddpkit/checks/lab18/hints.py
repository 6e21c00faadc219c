"""Lab 18: sentences for wrong answers in one process: kept, memory_plan."""

from __future__ import annotations

from collections.abc import Callable

from ddpkit.checks.lab18 import plans
from ddpkit.exercises.hint import Hint, Seen

# kept


def _counts(*names: str) -> Callable[[Seen], bool]:
    def fits(s: Seen) -> bool:
        for name in names:
            found = s.given[name] if isinstance(s.given[name], list) else [s.given[name]]
            if s.bytes in found and s.bytes != s.right:
                return True
        return False

    return fits


# fmt: off
KEPT = (
    Hint("nothing", lambda s: s.bytes == 0 < s.right,
         "Your result is 0 B. Without a graph, autograd keeps nothing: call the module as usual, "
         "inside the hooks."),
    Hint("backward", lambda s: not s.wrong("bytes") and s.wrong("forward alone"),
         "The number is right, but afterwards parameters or inputs have gradients, and the next "
         "backward would add to them. Run only the forward: it saves the tensors."),
    Hint("parameters", lambda s: s.bytes in s.with_own and s.bytes != s.right,
         lambda s: f"Your result has {s.bytes - s.right:,} B more than the activations. Autograd "
         "also saves the weights, as transposed views, and such a view is not an nn.Parameter. "
         "Compare storages."),
    Hint("counted twice", _counts("every"),
         lambda s: f"Your result is {s.bytes:,} B, not {s.right:,} B. If two operations save the "
         "same storage, count the storage once: note its address."),
    Hint("views counted apart", _counts("apart"),
         lambda s: f"Your result is {s.bytes:,} B, not {s.right:,} B. Two views of one storage "
         "have two addresses; compare the addresses of storages."),
    Hint("the view alone", _counts("views"),
         lambda s: f"A view keeps its whole storage alive: {s.right:,} B, not {s.bytes:,}."),
    Hint("four bytes each", _counts("fours"),
         lambda s: f"Your result is {s.bytes:,} B, not {s.right:,} B. A bfloat16 number has 2 "
         "bytes, and an index has 8."),
    Hint("outputs", _counts("outputs"),
         lambda s: f"Your result is {s.bytes:,} B, not {s.right:,} B. The outputs of the modules "
         "have as many bytes, but the backward needs other tensors, each storage once. Let "
         "autograd tell you which tensors, with saved_tensors_hooks."),
    Hint("no int", lambda s: type(s.bytes) is not int, "Return an int: a number of bytes."),
    Hint("other count", lambda s: s.bytes != s.right,
         lambda s: f"Your result is {s.bytes:,} B, not {s.right:,} B. Add up the storages that "
         "autograd saves, each once, without the parameters' storages."),
)
# fmt: on

# memory_plan


def _thinks(idea: str) -> Callable[[Seen], bool]:
    """Return a condition: the answer's times are those of the mistake `idea`.

    The condition is false for questions on which two mistakes may give the same times.
    """

    def fits(s: Seen) -> bool:
        asked = s.questions
        due = [plans.time_of(plans.IDEAS[idea](each), each) for each in asked]
        return bool(s.telling) and list(s["ms"]) == due and s.wrong("ms")

    return fits


def _over(s: Seen) -> tuple[int, int, int] | None:
    """Return (bytes, limit, micro-batches) for the first plan that needs more than its limit."""
    for level, (_, held, limit) in zip(s["bytes"], s.questions, strict=True):
        if level > limit:
            return level, limit, held
    return None


def _slow(s: Seen) -> tuple[int, int] | None:
    """Return (ms, least ms) for the first plan that takes too long."""
    for got, due in zip(s["ms"], s.expect["ms"], strict=True):
        if got > due >= 0:
            return got, due
    return None


def _too_much(words: str) -> Callable[[Seen], str | None]:
    def say(s: Seen) -> str | None:
        over = _over(s)
        if over is None:
            return None
        level, limit, held = over
        return f"Your plan holds {level} B, but only {limit} B fit: {words.format(held=held)}"

    return say


def _too_slow(words: str) -> Callable[[Seen], str | None]:
    def say(s: Seen) -> str | None:
        slow = _slow(s)
        if slow is None:
            return None
        return f"Your plan computes {slow[0]} ms again, but {slow[1]} ms are enough: {words}"

    return say


def _none(s: Seen) -> bool:
    return any(got < 0 <= due for got, due in zip(s["ms"], s.expect["ms"], strict=True))


# fmt: off
PLAN = (
    Hint("one answer a block", lambda s: s.wrong("plans"),
         lambda s: "Return a list with True or False for each block, or None. You return "
         f"{s['plans']}."),
    Hint("all again", _thinks("all again"),
         _too_slow("a block that fits need not be computed again.")),
    Hint("too much", _thinks("too much"), _too_much("compute some blocks again.")),
    Hint("inside forgotten", _thinks("inside forgotten"),
         _too_much("during a block's backward, its `inside` is held too.")),
    Hint("one too many", _thinks("one more"),
         _too_slow("in addition to the micro-batch in its backward, only held - 1 other "
         "micro-batches hold bytes.")),
    Hint("counted on top",
         lambda s: any(_thinks(idea)(s)
                       for idea in ("counted on top", "on top of again", "behind too")),
         _too_slow("during a block's backward, the later blocks hold nothing any more.")),
    Hint("own bytes twice", _thinks("own twice"),
         _too_slow("during its own backward, a block holds `inside`, and nothing in addition.")),
    Hint("one micro-batch", _thinks("one micro-batch"),
         _too_much("{held} micro-batches have had their forward.")),
    Hint("all at once", _thinks("all at once"),
         _too_slow("only one micro-batch is in its backward; each other micro-batch holds the "
                   "bytes that it held after its forward.")),
    Hint("inputs are not free", _thinks("inputs are not free"),
         _too_much("each block that is computed again keeps its input.")),
    Hint("slower than needed", _thinks("slower than needed"),
         _too_slow("a plan must stay within the limit, but need not hold as little as possible.")),
    Hint("counts blocks", _thinks("counts blocks"),
         _too_slow("blocks take different times, so count ms, not blocks.")),
    Hint("at the limit", lambda s: s.about == "a limit that is reached" and (_slow(s) or _none(s)),
         "A plan that holds exactly `limit` bytes fits: at most `limit` are held."),
    Hint("nothing fits", lambda s: s.about == "no plan fits" and s.wrong("ms"),
         lambda s: f"No plan stays within {s.questions[0][2]} B: return None."),
    Hint("gave up", _none, "You return None, but a plan fits. Return None only if no plan fits."),
    Hint("over the limit", _over, _too_much("count the moment of each block's backward.")),
    Hint("not the least", _slow, _too_slow("another plan stays within the limit, too.")),
)
# fmt: on
