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
         "0 B: without a graph nothing is kept. Call the module as usual, inside the hooks."),
    Hint("backward", lambda s: not s.wrong("bytes") and s.wrong("forward alone"),
         "The number is right, and there are gradients afterwards, which the next backward of the "
         "module would add to. The forward alone saves the tensors."),
    Hint("parameters", lambda s: s.bytes in s.with_own and s.bytes != s.right,
         lambda s: f"{s.bytes - s.right:,} B more than the activations: the weights are saved too, "
         "as transposed views, which are no nn.Parameter. Compare storages."),
    Hint("counted twice", _counts("every"),
         lambda s: f"{s.bytes:,} B for {s.right:,}: a storage that two operations save is there "
         "once. Note it by its address."),
    Hint("views counted apart", _counts("apart"),
         lambda s: f"{s.bytes:,} B for {s.right:,}: two views of one storage have two addresses, "
         "and the storage has one."),
    Hint("the view alone", _counts("views"),
         lambda s: f"A view keeps its whole storage alive: {s.right:,} B, not {s.bytes:,}."),
    Hint("four bytes each", _counts("fours"),
         lambda s: f"{s.bytes:,} B for {s.right:,}: numbers of bfloat16 have 2 bytes, and indices "
         "have 8."),
    Hint("outputs", _counts("outputs"),
         lambda s: f"{s.bytes:,} B for {s.right:,}: outputs of modules have as many bytes. The "
         "backward needs other tensors, and saves each storage once: ask autograd."),
    Hint("no int", lambda s: type(s.bytes) is not int, "Return an int: a number of bytes."),
    Hint("other count", lambda s: s.bytes != s.right,
         lambda s: f"{s.bytes:,} B for {s.right:,}: add up the storages that autograd saves, each "
         "once, without those of the parameters."),
)
# fmt: on

# memory_plan


def _thinks(idea: str) -> Callable[[Seen], bool]:
    """Return a condition: the answer's times are those of a wrong idea.

    The condition is false for questions on which two ideas may give the same times.
    """

    def fits(s: Seen) -> bool:
        asked = s.questions
        due = [plans.time_of(plans.IDEAS[idea](each), each) for each in asked]
        return bool(s.telling) and list(s["ms"]) == due and s.wrong("ms")

    return fits


def _over(s: Seen) -> tuple[int, int, int] | None:
    """Return the bytes, the limit and the micro-batches of the first plan over its limit."""
    for level, (_, held, limit) in zip(s["bytes"], s.questions, strict=True):
        if level > limit:
            return level, limit, held
    return None


def _slow(s: Seen) -> tuple[int, int] | None:
    """Return the ms and the least ms of the first plan that takes too long."""
    for got, due in zip(s["ms"], s.expect["ms"], strict=True):
        if got > due >= 0:
            return got, due
    return None


def _too_much(words: str) -> Callable[[Seen], str | None]:
    def say(s: Seen) -> str | None:
        over = _over(s)
        return over and f"{over[0]} B are held, and {over[1]} fit: " + words.format(held=over[2])

    return say


def _too_slow(words: str) -> Callable[[Seen], str | None]:
    def say(s: Seen) -> str | None:
        slow = _slow(s)
        return slow and f"{slow[0]} ms again where {slow[1]} would do: {words}"

    return say


def _none(s: Seen) -> bool:
    return any(got < 0 <= due for got, due in zip(s["ms"], s.expect["ms"], strict=True))


# fmt: off
PLAN = (
    Hint("one answer a block", lambda s: s.wrong("plans"),
         lambda s: f"Return a list with True or False for each block, or None; this is "
         f"{s['plans']}."),
    Hint("all again", _thinks("all again"),
         _too_slow("a block that fits need not be computed again.")),
    Hint("too much", _thinks("too much"), _too_much("compute some blocks again.")),
    Hint("inside forgotten", _thinks("inside forgotten"),
         _too_much("while a block's backward runs, its inside is there as well.")),
    Hint("one too many", _thinks("one more"),
         _too_slow("beside the micro-batch in its backward there are held - 1 others.")),
    Hint("counted on top",
         lambda s: any(_thinks(idea)(s)
                       for idea in ("counted on top", "on top of again", "behind too")),
         _too_slow("when a block's backward runs, the blocks behind it hold nothing any more.")),
    Hint("own bytes twice", _thinks("own twice"),
         _too_slow("`inside` is all that a block holds in its own backward.")),
    Hint("one micro-batch", _thinks("one micro-batch"),
         _too_much("{held} micro-batches have had their forward.")),
    Hint("all at once", _thinks("all at once"),
         _too_slow("only one micro-batch is in its backward; the others hold as much as after "
                   "their forward.")),
    Hint("inputs are not free", _thinks("inputs are not free"),
         _too_much("each block that is computed again keeps its input.")),
    Hint("slower than needed", _thinks("slower than needed"),
         _too_slow("a plan has to stay within the limit, and need not be the smallest.")),
    Hint("counts blocks", _thinks("counts blocks"),
         _too_slow("blocks take different times, so count ms, not blocks.")),
    Hint("at the limit", lambda s: s.about == "a limit that is reached" and (_slow(s) or _none(s)),
         "A plan that holds exactly `limit` bytes fits: at most `limit` are held."),
    Hint("nothing fits", lambda s: s.about == "no plan fits" and s.wrong("ms"),
         lambda s: f"No plan stays within {s.questions[0][2]} B: return None."),
    Hint("gave up", _none, "None, and a plan fits: None is for limits that no plan meets."),
    Hint("over the limit", _over, _too_much("count the moment of each block's backward.")),
    Hint("not the least", _slow, _too_slow("another plan stays within the limit, too.")),
)
# fmt: on
