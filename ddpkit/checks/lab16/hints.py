"""Lab 16: sentences for wrong answers in one process, a table for each exercise."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Observed
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.values import Close

if TYPE_CHECKING:
    from torch import Tensor

# merge


def _is(s: Seen, mistaken: object) -> bool:
    """True if the answer's output is wrong, and equals the output of a known mistake."""
    return s.wrong("output") and same(s.output, Close(mistaken))


def _weights(s: Seen) -> tuple[Tensor, Tensor]:
    """Return the weights of the two blocks before normalization: exp(lse - the larger lse)."""
    import torch

    top = torch.maximum(s.lse, s.more_lse)
    return (s.lse - top).exp(), (s.more_lse - top).exp()


def _plain_weights(s: Seen) -> object:
    return s.lse.exp() * s.out + s.more_lse.exp() * s.more


def _swapped(s: Seen) -> object:
    a, b = _weights(s)
    return (b * s.out + a * s.more) / (a + b)


def _not_divided(s: Seen) -> object:
    a, b = _weights(s)
    return a * s.out + b * s.more


def _larger(s: Seen) -> bool:
    import torch

    return not s.wrong("output") and same(s["log-sum-exp"], Close(torch.maximum(s.lse, s.more_lse)))


def _added_logs(s: Seen) -> bool:
    return not s.wrong("output") and same(s["log-sum-exp"], Close(s.lse + s.more_lse))


def _shapes(s: Seen) -> str | None:
    """Return a sentence if the results do not have the shapes of the arguments; otherwise None."""
    got, due = ([list(x.shape) for x in pair] for pair in (
        (s.output, s["log-sum-exp"]), (s.out, s.lse)))  # fmt: skip
    if got == due:
        return None
    return (
        f"Return two tensors: the output of shape {due[0]}, and then the log-sum-exp of shape "
        f"{due[1]}."
    )


def _dtypes(s: Seen) -> str | None:
    """Return a sentence if the values are right, but the dtype is not that of the arguments."""
    got = [s.output, s["log-sum-exp"]]
    due = [s.expect["output"].value, s.expect["log-sum-exp"].value]
    if all(a.dtype == b.dtype for a, b in zip(got, due, strict=True)):
        return None
    if not all(a.allclose(b.to(a.dtype), 1e-3, 1e-4) for a, b in zip(got, due, strict=True)):
        return None
    name = str(due[0].dtype).removeprefix("torch.")
    return f"The numbers are right, but not each dtype: return two {name}, like the arguments."


def _has_nan(x: Tensor) -> bool:
    return bool(x.isnan().any())


def _sum_of_weights(s: Seen) -> str:
    a, b = _weights(s)
    first = float((a + b).flatten()[0])
    return f"The weights of the first query add up to {first:.3g}, not to 1: divide by their sum."


# fmt: off
MERGE = (
    Hint("two tensors", _shapes, lambda s: _shapes(s)),
    Hint("changed", lambda s: not s["left alone"],
         "Your code changed an argument in place, but the caller still needs the argument. Compute "
         "a new tensor."),
    Hint("mean", lambda s: _is(s, (s.out + s.more) / 2),
         "Both parts have the same weight in your output. The part with the larger sum of "
         "exponentials must have the larger weight."),
    Hint("added", lambda s: _is(s, s.out + s.more),
         "Each output is a mean over its own keys. The sum of two means is not a mean: give each "
         "output its weight."),
    Hint("swapped", lambda s: _is(s, _swapped(s)),
         "Each part has the weight of the other part."),
    Hint("not divided", lambda s: _is(s, _not_divided(s)), _sum_of_weights),
    Hint("not divided", lambda s: _is(s, _plain_weights(s)),
         "exp(lse) is a sum of exponentials, not yet a weight: divide by the sum of both."),
    Hint("lse", _larger,
         "The output is right, but the next merge will be wrong: log(exp a + exp b) is larger than "
         "both a and b."),
    Hint("logs added", _added_logs,
         "The output is right, but your log-sum-exp is a + b, the logarithm of a product. Add the "
         "exponentials, not their logarithms."),
    Hint("overflow", lambda s: s.about == "scores of 1,000"
         and (_has_nan(s.output) or not s["log-sum-exp"].isfinite().all()),
         "exp(1000) is infinite, and exp(-1000) is 0. Take exp only of a difference of two "
         "logarithms that is at most 0."),
    Hint("nothing seen", lambda s: s.about == "a query without any key"
         and (_has_nan(s.output) or _has_nan(s["log-sum-exp"])),
         "-inf minus -inf is nan. A query that has seen no key has the weights 0, an output of 0 "
         "and a log-sum-exp of -inf."),
    Hint("not -inf", lambda s: s.about == "a query without any key" and not s.wrong("output"),
         "If a query has no key in both parts, its log-sum-exp must be -inf, the logarithm of 0, "
         "and no finite number."),
    Hint("dtype", _dtypes, lambda s: _dtypes(s)),
    Hint("other", say="With Z = exp(lse), the output is (Z_a out_a + Z_b out_b) / (Z_a + Z_b), and "
         "the log-sum-exp is log(Z_a + Z_b)."),
)
# fmt: on

# zigzag


def facts(length: int, n: int, observed: Observed) -> Observed:
    """Add facts about the positions; right answers may differ, but have the same facts."""
    positions = observed["positions"]
    fine = len(positions) == n and all(_is_int64(each) for each in positions)
    if not fine:
        return {**observed, "a tensor of int64 for each rank": False}
    lists = [each.tolist() for each in positions]
    sizes, longest = list(map(len, lists)), max(map(stretches, lists))
    pairs = [sum(at + 1 for at in each) for each in lists]
    return {
        **observed,
        "a tensor of int64 for each rank": True,
        "each position on one rank": sorted(at for each in lists for at in each)
        == list(range(length)),
        "positions increase": all(sorted(set(each)) == each for each in lists),
        "sizes differ by at most": max(2, max(sizes) - min(sizes)),
        "stretches on a rank, at most": max(2, longest),
        "balanced": max(pairs) - min(pairs) <= 2 * length,
        "pairs": pairs,
        "sizes": sizes,
    }


def _is_int64(each: object) -> bool:
    import torch

    return isinstance(each, torch.Tensor) and each.dtype == torch.int64 and each.dim() == 1


def stretches(positions: list[int]) -> int:
    """Return the number of runs of consecutive positions; the positions may be in any order."""
    ordered = sorted(positions)
    return 1 + sum(b > a + 1 for a, b in pairwise(ordered))


def _counted(s: Seen) -> dict[int, list[int]]:
    """Return, for each position, the ranks that have it."""
    found: dict[int, list[int]] = {at: [] for at in range(s.length)}
    for rank, each in enumerate(s.positions):
        for at in each.tolist():
            found.setdefault(at, []).append(rank)
    return found


def _twice(s: Seen) -> str | None:
    many = next(((at, ranks) for at, ranks in _counted(s).items() if len(ranks) > 1), None)
    if many is None:
        return None
    at, ranks = many
    return (
        f"Position {at} occurs twice, on rank {ranks[0]} and on rank {ranks[1]}. Each of the 2n "
        "chunks belongs to one rank."
    )


def _missing(s: Seen) -> list[int]:
    return [at for at, ranks in _counted(s).items() if not ranks]


def _left_over(s: Seen) -> str | None:
    gone = _missing(s)
    fits = gone and gone == list(range(s.length - len(gone), s.length)) and len(gone) < 2 * s.n
    return f"No rank has the last {len(gone)} positions." if fits else None


def _nobody(s: Seen) -> str | None:
    gone = _missing(s)
    return f"No rank has position {gone[-1]}." if gone else None


def _outside(s: Seen) -> str | None:
    beyond = [at for at in _counted(s) if not 0 <= at < s.length]
    return f"Position {beyond[0]} does not exist, only 0 to {s.length - 1}." if beyond else None


def _sizes(s: Seen) -> str | None:
    most, least = max(s.sizes), min(s.sizes)
    if most - least <= 2:
        return None
    return (
        f"Rank {s.sizes.index(least)} has {most - least} fewer tokens than rank "
        f"{s.sizes.index(most)}. tensor_split() shares out the remainder of a division, but "
        "chunk() does not, and may even make too few chunks."
    )


def _pairs(s: Seen) -> str:
    return f"Rank 0 has {s.pairs[0]:,} pairs and rank {s.n - 1} has {s.pairs[-1]:,}"


def _in_order(s: Seen) -> bool:
    return all(stretches(each.tolist()) == 1 for each in s.positions) and not s.balanced


def _unfair(s: Seen) -> str | None:
    if s.balanced:
        return None
    most, least = s.pairs.index(max(s.pairs)), s.pairs.index(min(s.pairs))
    return (
        f"Rank {most} has {max(s.pairs):,} pairs, and rank {least} has {min(s.pairs):,}. Pair the "
        "latest chunk with the first chunk, and so on."
    )


# fmt: off
ZIGZAG = (
    Hint("no positions", lambda s: not s["a tensor of int64 for each rank"],
         lambda s: f"Return {s.n} tensors of int64, one for each rank."),
    Hint("outside", lambda s: _outside(s), lambda s: _outside(s)),
    Hint("left over", lambda s: _left_over(s), lambda s: _left_over(s)),
    Hint("missing", lambda s: _nobody(s), lambda s: _nobody(s)),
    Hint("twice", lambda s: _twice(s), lambda s: _twice(s)),
    Hint("not increasing", lambda s: not s["positions increase"], lambda s: "The positions of rank "
         f"{_first_unordered(s)} do not increase."),
    Hint("striped", lambda s: s["stretches on a rank, at most"] > 2 and s.balanced,
         lambda s: f"The work is balanced, but a rank has {s['stretches on a rank, at most']} "
         "stretches of the sequence: then hardly a tile can be left out. Two stretches are "
         "enough."),
    Hint("in order", _in_order, lambda s: f"{_pairs(s)}: the last tokens see the most keys."),
    Hint("sizes", _sizes, lambda s: _sizes(s)),
    Hint("both later", lambda s: _unfair(s), lambda s: _unfair(s)),
)
# fmt: on


def _first_unordered(s: Seen) -> int:
    return next(
        rank for rank, each in enumerate(s.positions) if sorted(set(each.tolist())) != each.tolist()
    )


# own_tokens


def _targets(s: Seen, wanted: object) -> bool:
    return s.wrong("targets") and same(s.targets, wanted)


def _taken(s: Seen, whole: Tensor) -> list[Tensor]:
    return [whole[at] for at in s.places]


def _shifted_late(s: Seen) -> list[Tensor]:
    """Return the targets of a mistake: each rank shifts only its own share."""
    import torch

    return [torch.cat([s.tokens[at][1:], torch.tensor([-100])]) for at in s.places]


def _rolled_late(s: Seen) -> list[Tensor]:
    return [s.tokens[at].roll(-1) for at in s.places]


def _next_elsewhere(s: Seen) -> str:
    """Return a sentence about the first position p if position p + 1 is on a different rank."""
    for at in s.places:
        for place, after in zip(at.tolist(), [*at.tolist()[1:], None], strict=True):
            if after != place + 1 and place + 1 < len(s.tokens):
                return (
                    f"The token after position {place} is on another rank. First shift the whole "
                    "sequence, then take the share."
                )
    return "Shift the sequence, then take the share."


def _before(s: Seen) -> list[Tensor]:
    import torch

    return _taken(s, torch.cat([torch.tensor([-100]), s.tokens[:-1]]))


def _lost(s: Seen) -> int:
    """Return the number of targets that are -100 although the right target is a token."""
    pairs = zip(s.targets, s.expect["targets"], strict=True)
    return sum(int(((got == -100) & (due != -100)).sum()) for got, due in pairs)


def _only_lost(s: Seen) -> bool:
    pairs = zip(s.targets, s.expect["targets"], strict=True)
    return all(bool(((got == due) | (got == -100)).all()) for got, due in pairs) and _lost(s) > 0


def _from_zero(s: Seen) -> bool:
    import torch

    return s.wrong("positions") and same(s.positions, [torch.arange(len(at)) for at in s.places])


def _short(s: Seen) -> tuple[int, int] | None:
    pairs = zip(s.inputs, s.places, strict=True)
    return next(((len(x), len(at)) for x, at in pairs if len(x) != len(at)), None)


def _first_of_rank_1(s: Seen) -> str:
    at = next((each for each in s.places if len(each) and int(each[0])), None)
    rank = next(r for r, each in enumerate(s.places) if each is at)
    return f"The first token of rank {rank} has position {int(at[0])} in the sequence, and 0 here."  # type: ignore[index]


def _in_another_order(s: Seen) -> bool:
    found = (s.inputs, s.targets, s.positions)
    due = [s.expect[name] for name in ("inputs", "targets", "positions")]
    return any(
        same([found[i], found[j], found[k]], due)
        for i, j, k in ((0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    )


def _last_target(s: Seen) -> str | None:
    """Return a sentence if only the target of the sequence's last token is wrong."""
    last = len(s.tokens) - 1
    rank, at = next(
        (rank, each.tolist().index(last)) for rank, each in enumerate(s.places) if last in each
    )
    mended = [each.clone() for each in s.targets]
    mended[rank][at] = -100
    if s.wrong("inputs", "positions") or not same(mended, s.expect["targets"]):
        return None
    return (
        "The last token of the sequence has no token after it. Its target is -100, not "
        f"{int(s.targets[rank][at])}."
    )


def _one_rank(s: Seen) -> bool:
    return len(s.places) > 1 and same(s.positions, [s.places[0]] * len(s.places))


# fmt: off
OWN_TOKENS = (
    Hint("changed", lambda s: not s["left alone"],
         "Your code changed the sequence in place, so the next rank or the next step would see a "
         "different sequence. Make a new tensor for the targets."),
    Hint("token lost", lambda s: _short(s), lambda s: "You return {} tokens for {} "
         "positions. Return a token for each position, also for the last position of the "
         "sequence, with the target -100.".format(*_short(s))),  # type: ignore[misc]
    Hint("one rank", _one_rank,
         "Each rank gets the positions of rank 0. Take the positions in places[rank]."),
    Hint("another order", _in_another_order,
         "Return the inputs, the targets and the positions, in this order."),
    Hint("local positions", _from_zero, _first_of_rank_1),
    Hint("itself", lambda s: _targets(s, _taken(s, s.tokens)),
         "Each target is the token of its own position, so the model would learn to repeat its "
         "input. Take the next token."),
    Hint("wraps round", lambda s: _targets(s, _taken(s, s.tokens.roll(-1))),
         "The last token of the sequence has no token after it. Its target is -100, not the first "
         "token."),
    Hint("last target", _last_target, lambda s: _last_target(s)),
    Hint("backwards", lambda s: _targets(s, _before(s))
         or _targets(s, _taken(s, s.tokens.roll(1))),
         "The target of a token is the next token, but you return the previous token."),
    Hint("shifted late", lambda s: _targets(s, _shifted_late(s))
         or _targets(s, _rolled_late(s)), _next_elsewhere),
    Hint("targets lost", _only_lost, lambda s: f"{_lost(s)} tokens lack a target although the "
         "sequence has one: the next token is on another rank, or in the rank's other stretch."),
    Hint("other", say="The target of position i is token i + 1 of the whole sequence. Inputs, "
         "targets and positions have one entry for each position of the rank."),
)
# fmt: on

# bytes_sent

NO_INT = Hint(
    "no int",
    lambda s: not s.ints and not s.wrong("answers"),
    "The numbers are right, but not all are ints: `/` gives a float. Multiply first, then divide "
    "by //.",
)
