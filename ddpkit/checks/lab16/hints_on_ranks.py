"""Lab 16: sentences for wrong answers on ranks, a table for each exercise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.hint import Hint, Seen
from ddpkit.exercises.ranks import who
from ddpkit.exercises.values import Close
from ddpkit.text import size

if TYPE_CHECKING:
    from torch import Tensor


def each_close(got: Sequence[object], wanted: Sequence[object]) -> bool:
    """True if each rank r has the tensor `wanted[r]`, up to rounding."""
    return all(same(one, Close(other)) for one, other in zip(got, wanted, strict=True))


def right_but(s: Seen, *names: str) -> bool:
    """True if the answer is wrong, but all its values except `names` are right."""
    return not s.wrong(*(name for name in s.expect if name not in names)) and s.wrong()


def _slow(s: Seen) -> bool:
    return right_but(s, "ns") and s.ns > s.expect["ns"].most


def _ms(s: Seen) -> str:
    return f"{s.ns / 1e6:.3f} ms, and {s.expect['ns'].least / 1e6:.3f} ms are enough"


def _large(s: Seen) -> bool:
    return bool(s.peak > s.expect["peak"].most)


def _shares(s: Seen) -> str:
    """Return a text: the peak of memory divided by the bytes of a rank's keys and values."""
    times, enough = s.peak / s.share, s.expect["peak"].most / s.share
    return f"{times:.1f} times the bytes of its keys and values, and {enough:.0f} times are enough"


# ring_attention


def _wrong_source(s: Seen) -> str | None:
    for of, told in zip(s["keys of"], s["said to be of"], strict=True):
        for owner, said in zip(of, told, strict=True):
            if owner >= 0 and owner != said:
                return (
                    f"Your code takes the keys of rank {owner} for the keys of rank {said}. Keys "
                    "come from the previous rank, so after one hop a rank has the keys of rank - 1."
                )
    return None


def _unmet(s: Seen) -> str | None:
    for rank, of in enumerate(s["keys of"]):
        missing = sorted(set(range(s.n)) - set(of))
        if missing:
            return f"Rank {rank} has not computed with the keys of {who(missing)}."
    return None


def _no_keys(s: Seen) -> str | None:
    for rank, of in enumerate(s["keys of"]):
        if -1 in of:
            return (
                f"Rank {rank} has computed with keys that belong to no rank. Pass k and v on "
                "unchanged, and give k first, then v."
            )
    return None


def _met_twice(s: Seen) -> str | None:
    for rank, of in enumerate(s["keys of"]):
        twice = next((owner for owner in of if of.count(owner) > 1), None)
        if twice is not None:
            return (
                f"Rank {rank} has computed with the keys of rank {twice} {of.count(twice)} times."
            )
    return None


def _plain_sum(s: Seen) -> bool:
    """True if the answer's output is the plain sum of the outputs for each block of keys."""
    return s.wrong("output") and each_close(s.output, _blocks(s, sum_of=True))


def _plain_mean(s: Seen) -> bool:
    return s.wrong("output") and each_close(s.output, _blocks(s, sum_of=False))


def _blocks(s: Seen, *, sum_of: bool) -> list[Any]:
    """Return, for each rank, the sum of its outputs for each block of keys, or their mean."""
    from ddpkit.checks.lab16.on_ranks import block

    whole = s.whole
    qs, ks, vs = map(whole.cut, (whole.q, whole.k, whole.v))
    found = []
    for r in range(s.n):
        outs = [block(qs[r], ks[t], vs[t], whole.mask_of(r, t))[0] for t in range(s.n)]
        total = sum(outs)
        found.append(total if sum_of else total / s.n)
    return found


def _one_hop_more(s: Seen) -> bool:
    return right_but(s, "bytes", "ns") and s.bytes == s.due // (s.n - 1) * s.n


# fmt: off
OTHER_SIZES = Hint("other sizes", lambda s: s.mismatch == "message" or s.kind == "wrong size",
    "A share arrives, but the tensor that receives it has a different size. Rank r has sizes[r] "
    "tokens, and the arriving tokens belong to rank source - 1.")
STUCK = Hint("skips the hop", lambda s: s.stuck != "",
    "Ranks wait for a message that no rank sends, or send a message that no rank receives. Each "
    "rank must make each hop, even with keys that its own queries do not use: the other ranks need "
    "these keys.")
MET = (
    Hint("no rank's keys", _no_keys, lambda s: _no_keys(s)),
    Hint("keys missing", _unmet, lambda s: _unmet(s)),
    Hint("keys twice", _met_twice, lambda s: _met_twice(s)),
    Hint("wrong source", _wrong_source, lambda s: _wrong_source(s)),
)
RING = (
    OTHER_SIZES,
    STUCK,
    *MET,
    Hint("added", lambda s: _plain_sum(s) or _plain_mean(s),
         "The output of each block is a mean over its own keys, so a sum or a mean of these "
         "outputs is wrong. Merge the outputs, with their log-sum-exps."),
    Hint("one hop too many", _one_hop_more,
         "The values are right, but the ranks send the bytes of one hop more than needed: after n "
         "- 1 hops, each rank has met all keys."),
    Hint("more bytes", lambda s: right_but(s, "bytes", "ns") and s.bytes > s.expect["bytes"].most,
         lambda s: f"The values are right, but the ranks send {size(s.bytes)}, and {size(s.due)} "
         "are enough: each share of keys and values makes n - 1 hops."),
    Hint("no overlap", _slow, lambda s: f"The values are right, but the ring takes {_ms(s)}. Start "
         "the hop, compute, and wait for the hop afterwards."),
    Hint("other", say="Begin with `unseen(q)`. For each source: `attend` to its keys, and `merge` "
         "the result into the output so far."),
)
LEAN = (
    Hint("gathers", lambda s: right_but(s, "peak", "bytes") and _large(s),
         lambda s: f"The values are right, but a rank holds {_shares(s)}. Keep only the share in "
         "use and the share that is coming, and merge each block's output at once."),
    *RING[:2],
    RING[-1],
)


# ring_gradients


def _sums(s: Seen) -> tuple[list[Tensor], list[Tensor], list[list[Tensor]]]:
    """Return gradients of keys: the rank's own part, the sum of all parts, and `Whole.blocks`.

    The own part of a rank is the gradient of its keys from its own queries. The sum is over the
    queries of all ranks.
    """
    parts = s.whole.blocks()
    own = [parts[r][r][1] for r in range(s.n)]
    return own, [sum(parts[r][t][1] for r in range(s.n)) for t in range(s.n)], parts


def _own_queries(s: Seen) -> bool:
    return s.wrong("of k") and each_close(s["of k"], _sums(s)[0])


def _not_home(s: Seen) -> str | None:
    """Return a sentence if each rank has the gradient of another rank's keys, otherwise None."""
    due = s.expect["of k"]
    for by in range(1, s.n):
        rolled = [due[(rank + by) % s.n] for rank in range(s.n)]
        if same(s["of k"], rolled):
            return (
                f"Rank 0 returns the gradient of rank {by}'s keys. Pass the gradient on until "
                "it is at the rank of these keys."
            )
    return None


def _without(s: Seen, of: str) -> list[Tensor]:
    """Return the gradients of k without one part, which is a common mistake.

    "own": the part of the rank's own queries is missing. "last": the part of rank - 1 is missing;
    rank - 1 is the last rank that the keys reach.
    """
    own, whole, parts = _sums(s)
    if of == "own":
        return [total - mine for total, mine in zip(whole, own, strict=True)]
    return [total - parts[(t - 1) % s.n][t][1] for t, total in enumerate(whole)]


def _lacks_own(s: Seen) -> bool:
    return s.n > 1 and s.wrong("of k") and each_close(s["of k"], _without(s, "own"))


def _lacks_last(s: Seen) -> bool:
    return s.n > 1 and s.wrong("of k") and each_close(s["of k"], _without(s, "last"))


def _one_block(s: Seen) -> bool:
    """True if each rank's gradient of q comes from a single block of keys."""
    parts = s.whole.blocks()
    return s.wrong("of q") and any(
        each_close(s["of q"], [parts[r][(r + by) % s.n][0] for r in range(s.n)])
        for by in range(s.n)
    )


def _own_twice(s: Seen) -> bool:
    own, whole, _ = _sums(s)
    doubled = [total + mine for total, mine in zip(whole, own, strict=True)]
    return s.n > 1 and s.wrong("of k") and each_close(s["of k"], doubled)


def _values_first(s: Seen) -> bool:
    k, v = ([each.value for each in s.expect[name]] for name in ("of k", "of v"))
    return s.wrong("of k") and each_close(s["of k"], v) and each_close(s["of v"], k)


def _added_late(s: Seen) -> bool:
    """True if each rank's gradient of its keys has only its own part and one other rank's part."""
    own, _, parts = _sums(s)
    return s.wrong("of k") and any(
        each_close(s["of k"], [extra + mine for extra, mine in zip(one, own, strict=True)])
        for one in ([parts[(t + by) % s.n][t][1] for t in range(s.n)] for by in range(1, s.n))
    )


# fmt: off
RING_BACK = (
    OTHER_SIZES,
    STUCK,
    *MET,
    Hint("last block", _one_block,
         "Your gradient of q comes from one block alone. Add up the parts of all blocks."),
    Hint("own queries alone", _own_queries,
         "The gradient of the keys has only the part of the rank's own queries. The queries of the "
         "other ranks have used these keys as well."),
    Hint("not home", _not_home, lambda s: _not_home(s)),
    Hint("values first", _values_first,
         "The gradients of k and v are in the wrong order. Return the gradients of q, k and v, in "
         "this order."),
    Hint("own part twice", _own_twice,
         "The gradient of the keys contains the part of hop 0, from the rank's own queries, "
         "twice."),
    Hint("lacks its own", _lacks_own,
         "The gradient of the keys lacks the part of hop 0, from the rank's own queries."),
    Hint("added late", lambda s: _lacks_last(s) or _added_late(s),
         "Parts are lost on the way: a rank has to add its part before it passes the gradient on."),
    Hint("more bytes", lambda s: right_but(s, "bytes", "ns") and s.bytes > s.expect["bytes"].most,
         lambda s: f"The values are right, but the ranks send {size(s.bytes)}, and "
         f"{size(s.expect['bytes'].least)} are enough: keys and values make n - 1 hops, and so do "
         "their gradients."),
    Hint("no overlap", _slow, lambda s: f"The values are right, but the backward takes {_ms(s)}. "
         "Let keys and gradients travel while `back` computes."),
    Hint("other", say="Each rank adds its part to the gradient that arrives, and passes the sum "
         "on. The gradient of q stays on its rank, and is the sum of n parts."),
)
LEAN_BACK = (
    Hint("keeps all", lambda s: right_but(s, "peak", "bytes") and _large(s),
         lambda s: f"The values are right, but a rank holds {_shares(s)}. Add your part to the "
         "gradient that arrives, pass the sum on, and keep the gradient of only one share."),
    *RING_BACK[:2],
    RING_BACK[-1],
)


# share_of_loss


def _times(s: Seen, factor: float) -> bool:
    due = [each.value * factor for each in s.expect["gradient"]]
    return s.wrong("gradient") and each_close(s.gradient, due)


def _own_means(s: Seen) -> bool:
    """True if each rank has the gradient of the mean over its own counted tokens."""
    due = [each.float() / max(1, int(each.sum())) for each in s.counted]
    return s.wrong("gradient") and each_close(s.gradient, due)


def _all_tokens(s: Seen) -> bool:
    total = sum(map(len, s.counted))
    return any(_times(s, s.total / (total * over)) for over in (1, s.n))


def _every(s: Seen) -> str:
    return (
        f"All ranks together have {s.total} counted tokens, but you divide by "
        f"{sum(map(len, s.counted))}."
    )


def _counts(s: Seen) -> str:
    counts = [int(each.sum()) for each in s.counted]
    most, least = counts.index(max(counts)), counts.index(min(counts))
    return (
        f"Rank {most} has {max(counts)} counted tokens, and rank {least} has {min(counts)}, but "
        "both ranks have the same weight. Give each token the same weight."
    )


# fmt: off
LOSS = (
    Hint("no graph", lambda s: s.kind == "no graph" or (not s.error and all(
        each is None for each in s.gradient)),
         "backward needs a number with a graph, and the graph must lead to `losses`. "
         "If no token is counted, losses[counted].sum() is 0 and still has a graph."),
    Hint("no tensor", lambda s: s.attribute == "backward",
         "Return a tensor of one number, with its graph: .item() and float() give a number that "
         "has no backward."),
    Hint("changed", lambda s: s.kind == "leaf in place",
         "Your code changes `losses` in place, but the graph needs `losses`. Use losses[counted]."),
    Hint("no fractions", lambda s: s.kind == "no cast",
         "A count is a tensor of integers, and `/=` cannot write a fraction into it: write "
         "total = total / n."),
    Hint("shapes", lambda s: s.mismatch not in ("", "operation") or s.kind in ("shapes", "factors"),
         "The ranks have different numbers of tokens, so tensors of tokens do not fit together: "
         "sum first, then all-reduce one number."),
    Hint("inf", lambda s: s.about == "losses of inf" and not all(s.finite),
         "Here a loss that is not counted is inf, and inf · 0 is nan. Leave such losses out: "
         "losses[counted]."),
    Hint("a quarter", lambda s: s.n > 1 and _times(s, 1 / s.n),
         lambda s: f"The gradients are {1 / s.n:.2f} of the right gradients. The ranks average "
         "their gradients afterwards, which divides by n once more, and autograd does not see the "
         "all_reduce."),
    Hint("mean of means", _own_means, _counts),
    Hint("all tokens", _all_tokens, _every),
    Hint("mean of nothing", lambda s: s.about == "a rank without any" and not all(s.finite),
         "A rank has no counted token, and the mean of no losses is nan. A sum of no losses is 0: "
         "divide sums by the counted tokens of all ranks."),
    Hint("not finite", lambda s: not all(s.finite),
         "The number is nan or inf. If no token is counted on any rank, return 0, and do not "
         "divide by 0."),
    Hint("more bytes", lambda s: right_but(s, "handed in"),
         lambda s: f"The number is right, but a rank gives {max(s['handed in'])} B to its "
         "collectives: one number is enough."),
    Hint("other", say="The loss is the sum over all counted tokens, divided by the number of "
         "counted tokens on all ranks. The average over n ranks divides by n, so multiply by n "
         "before."),
)
# fmt: on
