"""Lab 16: attention over a sequence that is divided among the ranks: the exercises."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab16 import head_hints, hints, hints_on_ranks, rings, ways
from ddpkit.checks.shared.mistakes import hints_for, telling
from ddpkit.cluster.torchrun.job import active
from ddpkit.exercises.exercise import Case, Observed, exercise
from ddpkit.exercises.ranks import Did, Looks, asked, each_returned, looked, title, together
from ddpkit.exercises.values import Between, Close, digest
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.exercises.guard import Answer


# merge


@exercise("merge", lab="16", points=1)
def merge(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check that the results of attention to two sets of keys are merged into one result."""
    import torch

    for about, cut, size, dtype in (
        ("5 keys and 1", 5, 1.0, "float32"),
        ("scores of 1,000", 4, 1000.0, "float32"),
        ("float64", 2, 3.0, "float64"),
        ("no key so far", 0, 1.0, "float32"),
        ("a query without any key", -1, 1.0, "float32"),
    ):
        drawn = torch.Generator().manual_seed(rng.randrange(10**6))
        scores = torch.randn(2, 7, 6, generator=drawn, dtype=getattr(torch, dtype)) * size
        v = torch.randn(2, 6, 4, generator=drawn, dtype=getattr(torch, dtype))
        if cut < 0:  # a query sees only earlier keys, so the first query sees no key
            at = torch.arange(7)[:, None] > torch.arange(6)
            scores, cut = scores.masked_fill(~at, -torch.inf), 3
        out, lse = _block(scores[..., :cut], v[:, :cut])
        more, more_lse = _block(scores[..., cut:], v[:, cut:])
        right, right_lse = _block(scores, v)
        yield Case(
            about,
            observe=partial(_merged, answer, out, lse, more, more_lse),
            expect={
                "output": Close(right),
                "log-sum-exp": Close(right_lse) if cut and size < 9 else Close(right_lse, 5),
                "left alone": True,
            },
            hints=hints.MERGE,
            given={"out": out, "lse": lse, "more": more, "more_lse": more_lse, "about": about},
        )


def _block(scores: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return attention's output and log-sum-exp for these scores; 0 and -inf without a key."""
    lse = scores.logsumexp(-1, keepdim=True)
    return (scores - lse).exp().nan_to_num() @ v, lse


def _merged(answer: Answer, *given: Any) -> Observed:
    mine = [x.clone() for x in given]
    before = digest(mine)
    output, lse = answer(*mine)
    return {"output": output, "log-sum-exp": lse, "left alone": digest(mine) == before}


# ring_attention


@exercise("ring_attention", lab="16", points=4)
def ring_attention(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check attention to the keys of all ranks, which are passed on while the ranks compute."""
    from ddpkit.checks.lab16.twin import in_two_chunks, stretches

    for about, places, causal in (
        ("256 tokens each", stretches([256] * 4), False),
        ("shares of other sizes", stretches([rng.randrange(30, 90) for _ in range(3)]), True),
        ("zigzag", in_two_chunks(rng.randrange(40, 90), 2), True),
        ("alone", stretches([rng.randrange(20, 60)]), True),
    ):
        yield rings.ring(answer, about, places, causal, rng)
    if not active():  # ranks under torchrun have no modelled memory
        yield rings.lean(answer, rng)


# zigzag


@exercise("zigzag", lab="16", points=2)
def zigzag(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the positions of each rank's tokens: all ranks have about the same work."""
    for length, n in (
        (8 * rng.randrange(40, 400), 4),
        (8 * rng.randrange(40, 400) + rng.randrange(1, 8), 4),
        (33, 8),
        (rng.randrange(200, 4000), 3),
        (rng.randrange(40, 4000), 1),
    ):
        yield Case(
            f"{length} tokens, {n} ranks" if n > 1 else f"{length} tokens, 1 rank",
            observe=partial(_placed, answer, length, n),
            expect={
                "a tensor of int64 for each rank": True,
                "each position on one rank": True,
                "positions increase": True,
                "sizes differ by at most": 2,
                "stretches on a rank, at most": 2,
                "balanced": True,
            },
            read=partial(hints.facts, length, n),
            hints=hints.ZIGZAG,
            given={"length": length, "n": n},
            trivial=n in (1, 8),
        )


def _placed(answer: Answer, length: int, n: int) -> Observed:
    return {"positions": list(answer(length, n))}


# ring_gradients


@exercise("ring_gradients", lab="16", points=4)
def ring_gradients(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the gradients of q, k and v; the gradients of keys follow the keys around a ring."""
    from ddpkit.checks.lab16.twin import in_two_chunks, stretches

    for about, places, causal in (
        ("256 tokens each", stretches([256] * 4), False),
        ("shares of other sizes", stretches([rng.randrange(30, 90) for _ in range(3)]), True),
        ("zigzag", in_two_chunks(rng.randrange(40, 90), 2), True),
        ("alone", stretches([rng.randrange(20, 60)]), True),
    ):
        yield rings.ring_back(answer, about, places, causal, rng)
    if not active():
        yield rings.lean_back(answer, rng)


# own_tokens


@exercise("own_tokens", lab="16", points=2)
def own_tokens(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the inputs, targets and positions of each rank's tokens."""
    import torch

    from ddpkit.checks.lab16.twin import in_two_chunks, stretches

    drawn = [rng.randrange(3, 30) for _ in range(4)]
    for about, places in (
        ("zigzag, 3 ranks", in_two_chunks(rng.randrange(30, 300), 3)),
        ("in order, 4 ranks", stretches([rng.randrange(20, 60)] * 4)),
        ("shares of other sizes", stretches(drawn)[::-1]),
        ("1 rank", stretches([rng.randrange(20, 200)])),
    ):
        length = sum(map(len, places))
        seeded = torch.Generator().manual_seed(rng.randrange(10**6))
        tokens = torch.randperm(length, generator=seeded) + 1000  # no token comes twice
        targets = torch.cat([tokens[1:], torch.tensor([-100])])
        yield Case(
            about,
            observe=partial(_taken, answer, tokens, places),
            expect={
                "inputs": [tokens[at] for at in places],
                "targets": [targets[at] for at in places],
                "positions": places,
                "left alone": True,
            },
            hints=hints.OWN_TOKENS,
            given={"tokens": tokens, "places": places, "right": targets},
            trivial=len(places) == 1,
        )


def _taken(answer: Answer, tokens: Tensor, places: Sequence[Tensor]) -> Observed:
    mine = tokens.clone()
    taken = [answer(mine, [at.clone() for at in places], r) for r in range(len(places))]
    inputs, targets, positions = map(list, zip(*taken, strict=True))
    kept = bool(mine.equal(tokens))
    return {"inputs": inputs, "targets": targets, "positions": positions, "left alone": kept}


# share_of_loss


@exercise("share_of_loss", lab="16", points=2)
def share_of_loss(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check each rank's share of the loss: averaged gradients are those of one process."""
    from ddpkit.checks.lab16.losses import counts
    from ddpkit.checks.lab16.on_ranks import shared

    a, b = rng.randrange(4, 20), rng.randrange(50, 400)
    each = (a, a + 1, a + 2, a + 3)
    drawn = [
        counts(
            rng,
            "other counts",
            [(size, size - 2 * (rank % 2) - rank // 3) for rank, size in enumerate(each)],
        ),
        counts(rng, "a rank without any", [(b, b - 7), (b, 0), (b + 3, 5), (b + 1, b // 2)]),
        counts(rng, "losses of inf", [(b + 2, b // 3)] * 3 + [(b, b // 4)], inf=True),
        counts(rng, "many", [(40_003, 40_001 - 9 * rank) for rank in range(4)]),
        counts(rng, "none counted", [(a, 0)] * 4),
    ]
    calls = [list(zip(losses, counted, strict=True)) for _, losses, counted in drawn]
    told = together(partial(shared, answer), calls)
    see: Looks = {
        "gradient": each_returned("gradient"),
        "finite": each_returned("finite"),
        "handed in": "handed_in",
    }
    for (about, losses, counted), did in zip(drawn, told, strict=True):
        total = max(1, sum(int(one.sum()) for one in counted))
        yield Case(
            title(4, about),
            looked(did, see),
            {
                "gradient": [Close(one.float() * 4 / total) for one in counted],
                "finite": [True] * 4,
                "handed in": [Between(4, 16)] * 4,
            },
            hints=hints_on_ranks.LOSS,
            given={"counted": counted, "losses": losses, "n": 4, "total": total, "about": about},
            trivial=about == "none counted",
        )
    about, losses, counted = counts(rng, "alone", [(b, b - a)])
    yield Case(
        title(1),
        asked(partial(shared, answer), losses[0], counted[0], world_size=1, see=see),
        {
            "gradient": [Close(counted[0].float() / (b - a))],
            "finite": [True],
            "handed in": [Between(0, 16)],
        },
        hints=hints_on_ranks.LOSS,
        given={"counted": counted, "losses": losses, "n": 1, "total": b - a, "about": about},
        trivial=True,
    )


# ByHeads


@exercise("ByHeads", lab="16", points=3, returns=False)
def by_heads(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check an exchange: a rank gives all heads of its tokens for its heads of all tokens."""
    import torch

    from ddpkit.checks.lab16.on_ranks import by_heads as passed
    from ddpkit.checks.shared.travel import SENT

    for sizes, heads, lies in (
        ([rng.randrange(2, 40) for _ in range(4)], 8, "contiguous"),
        ([rng.randrange(2, 40)] * 3, 6, "of stride 0"),
        ([rng.randrange(2, 40)], 2, "contiguous"),
    ):
        n = len(sizes)
        seeded = torch.Generator().manual_seed(rng.randrange(10**6))
        whole: Any = torch.randn(heads, sum(sizes), 3, generator=seeded)
        gradient: Any = torch.randn(heads, sum(sizes), 3, generator=seeded)
        if lies == "of stride 0":
            gradient = gradient[:, :1, :1].expand(heads, sum(sizes), 3)
        xs = [x.contiguous() for x in whole.split(sizes, dim=1)]
        gradients = list(gradient.chunk(n))
        yield Case(
            title(n, f"{', '.join(map(str, sizes))} tokens", f"{heads} heads"),
            asked(
                *(partial(passed, answer), PerRank(xs), PerRank(gradients), list(sizes)),
                world_size=n,
                see={
                    "output": each_returned("output"),
                    "gradient": each_returned("gradient"),
                    "with sizes alone": each_returned("with sizes alone"),
                    "left alone": _all_kept,
                    **SENT,
                },
            ),
            {
                "output": [x.contiguous() for x in whole.chunk(n)],
                "gradient": [x.contiguous() for x in gradient.split(sizes, dim=1)],
                "with sizes alone": [x.contiguous() for x in gradient.split(sizes, dim=1)],
                "left alone": True,
                "sent forward": [_exchanged(x.nbytes, n, x.nbytes // n) for x in xs],
                "sent backward": [
                    _exchanged(x.nbytes, n, 4 * heads // n * 3 * own)
                    for x, own in zip(gradients, sizes, strict=True)
                ],
            },
            hints=head_hints.HEADS,
            given={
                "n": n,
                "sizes": sizes,
                "xs": xs,
                "gradients": gradients,
                "whole": whole,
                "heads": heads,
            },
            trivial=n == 1,
        )


def _exchanged(nbytes: int, n: int, own: int) -> Between:
    """Return the range of bytes that a rank may send: all of `nbytes` except its `own` bytes.

    A collective counts as (n - 1)/n of `nbytes`, which may be more or fewer bytes than that.
    """
    counted = -(-nbytes * (n - 1) // n)
    return Between(*sorted((counted, nbytes - own)))


def _all_kept(did: Did) -> bool:
    return all(each["kept"] for each in did.returned)


# bytes_sent

BYTES = hints_for(ways.MISTAKES, ways.OTHER)
NO_INT = hints.NO_INT


@exercise("bytes_sent", lab="16", points=2)
def bytes_sent(answer: Answer, rng: random.Random) -> Iterator[Case]:
    """Check the bytes that a rank sends for attention, for three methods to share a sequence."""
    questions = telling(rng, ways.drawn, 12, ways.right, ways.MISTAKES)
    questioned = [("12 layers", questions, 3)]
    questioned += [(way, [ways.of_way(way)(rng) for _ in range(2)], 1) for way in ways.WAYS]
    questioned.append(
        ("fewer key heads than ranks", [ways.few_key_heads(rng) for _ in range(2)], 1)
    )
    for about, each, weight in questioned:
        yield Case(
            about,
            observe=partial(_bytes, answer, each),
            expect={"answers": [ways.right(*question) for question in each], "ints": True},
            read=_numbers,
            weight=weight,
            hints=(NO_INT, *BYTES),
            given={"questions": each},
        )


def _bytes(answer: Answer, questions: Sequence[ways.Question]) -> Observed:
    return {"answers": [answer(*question) for question in questions]}


def _numbers(observed: Observed) -> Observed:
    """Add "ints": true if all answers are ints. Turn floats of whole numbers into ints."""
    found = observed["answers"]
    whole = [int(x) if isinstance(x, float) and x.is_integer() else x for x in found]
    return {"answers": whole, "ints": all(type(x) is int for x in found)}
