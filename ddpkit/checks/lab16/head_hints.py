"""Lab 16: sentences for wrong answers that exchange heads for tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ddpkit.checks.lab16.hints_on_ranks import each_close, right_but
from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.text import size

if TYPE_CHECKING:
    from torch import Tensor


def _gave(s: Seen, wanted: object) -> bool:
    return s.wrong("output") and same(s.output, wanted)


def _as_it_lies(s: Seen) -> list[Tensor]:
    """Return the outputs if the parts of the ranks are joined in memory order, as they arrive."""
    import torch

    per = s.heads // s.n
    return [
        torch.cat([x[r * per : (r + 1) * per].flatten() for x in s.xs]).view(per, -1, 3)
        for r in range(s.n)
    ]


def _other_heads(s: Seen) -> list[Tensor]:
    return [s.whole[r :: s.n].contiguous() for r in range(s.n)]


def _grads_as_it_lies(s: Seen) -> bool:
    """True if each rank's gradient was cut in memory order, not along the dimension of tokens."""
    import torch

    if s.wrong("output") or not s.wrong("gradient"):
        return False
    per = [s.heads // s.n * size * 3 for size in s.sizes]
    flat = [each.flatten().split(per) for each in s.gradients]
    due = [torch.cat([flat[r][own] for r in range(s.n)]).view(s.heads, -1, 3) for own in range(s.n)]
    return each_close(s.gradient, due)


def _own_alone(s: Seen) -> bool:
    """True if each rank repeats the gradient of its own heads for the heads of all ranks."""
    import torch

    mine = [g.split(s.sizes, dim=1)[r] for r, g in enumerate(s.gradients)]
    repeated = [torch.cat([each] * s.n) for each in mine]
    return not s.wrong("output") and each_close(s.gradient, repeated)


def _averaged(s: Seen) -> bool:
    due = [each / s.n for each in s.expect["gradient"]]
    return s.n > 1 and not s.wrong("output") and each_close(s.gradient, due)


def _too_much(s: Seen) -> tuple[int, int] | None:
    for name in ("sent forward", "sent backward"):
        for got, due in zip(s[name], s.expect[name], strict=True):
            if got > due.most:
                return got, due.most
    return None


def _with_sizes_alone(s: Seen) -> str:
    found = s["with sizes alone"][0]
    return f"There it raises {found}." if isinstance(found, str) else "There it differs."


# fmt: off
HEADS = (
    Hint("gradients for nothing", lambda s: s.kind == "gradient count",
         "backward returns a gradient for each input of forward but ctx: one for x, and None for "
         "sizes."),
    Hint("lists", lambda s: s.kind == "unequal lists",
         "gloo takes lists of equal tensors only: use all_to_all_single with sizes."),
    Hint("even", lambda s: s.mismatch != "" or (len(set(s.sizes)) > 1 and s.kind in (
        "wrong size", "no even chunks", "split sizes", "total of splits", "gradient's shape",
        "shapes", "factors", "no view")),
         lambda s: f"The ranks have {', '.join(map(str, s.sizes))} tokens: the parts that come and "
         "the parts that go have other sizes, and backward exchanges both."),
    Hint("not left alone", lambda s: not s["left alone"],
         "x, or the gradient, has changed in place, and is not yours. Work on a copy."),
    Hint("more than sizes", lambda s: right_but(s, "with sizes alone"),
         lambda s: "The values are right, but `ByTokens` also calls backward, with a ctx that has "
         f"`sizes` and nothing else. {_with_sizes_alone(s)} Take the other numbers from the "
         "shape of the gradient."),
    Hint("as it lies", lambda s: _gave(s, _as_it_lies(s)) or _grads_as_it_lies(s),
         "Parts lie one after the other in memory, rank by rank: cut the tensor into parts along "
         "the tokens, and put the parts of the ranks side by side."),
    Hint("other heads", lambda s: _gave(s, _other_heads(s)),
         lambda s: f"Rank 0 has heads 0 and {s.n}, …; its part is the first {s.heads // s.n}."),
    Hint("averaged", _averaged,
         "The gradient is divided by the number of ranks. Nothing was summed on the way, so "
         "nothing is to be divided."),
    Hint("own heads alone", _own_alone,
         "Each rank returns the gradient of its own heads, again and again. The other ranks have "
         "the gradients of the other heads."),
    Hint("more bytes", lambda s: right_but(s, "sent forward", "sent backward") and _too_much(s),
         lambda s: "The values are right, but a rank sends {}, and {} are enough: no rank needs "
         "all heads of all tokens.".format(*map(size, _too_much(s)))),  # type: ignore[arg-type]
    Hint("other", say="Forward sends the r-th part of the heads to rank r. Backward sends the r-th "
         "part of the tokens to rank r, and joins what comes along the heads."),
)
# fmt: on
