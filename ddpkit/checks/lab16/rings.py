"""Lab 16: cases of a ring of keys, and of gradients that follow the keys."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from math import floor
from typing import TYPE_CHECKING, Any

from ddpkit.checks.lab16 import hints_on_ranks as hints
from ddpkit.cluster.torchrun.job import active
from ddpkit.exercises.exercise import Case, Observed
from ddpkit.exercises.ranks import Did, asked, each_returned, timed, title
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from torch import Tensor

    from ddpkit.checks.lab16.twin import Whole
    from ddpkit.exercises.guard import Answer

FAST, WITH_MEMORY = "1 TFLOP/s", "1 TFLOP/s, 100 GB/s"  # machines; the second counts memory
# Measured peaks on six ranks, as multiples of a rank's keys and values; inputs and outputs count
# too. Forward: 5.6 for the kit's answer, 6.6 if the last block's output is kept, 7.7 if all outputs
# are kept, 9.6 if all keys are kept. Backward: 9.5 to 10.1, and 17.6 if all parts are kept.
RING, ENOUGH, ENOUGH_BACK = 6, 7.2, 13
LINK = "100 Gbit/s, 5 us"
FLOPS, LATENCY, BANDWIDTH = 1e12, 5e-6, 12.5e9  # FAST and LINK, as numbers
SLACK = 1.03  # largest time allowed, as a multiple of the least time


def _sent(did: Did) -> int:
    """Return the bytes that all ranks send; a collective counts as its messages in a ring."""
    from ddpkit.checks.shared.functions import FORWARD
    from ddpkit.checks.shared.travel import sent

    return sum(sent(did.trace, rank, FORWARD) for rank in did.trace.ranks)


def _most(did: Did) -> int:
    return max(did.peak)


def _read(marks: Sequence[float], times: bool, observed: Observed) -> Observed:
    """Turn each rank's notes into two lists: the owners of the keys, and the claimed sources.

    Both lists have an entry for each block of keys, in the order of the owners. An owner of -1
    stands for keys that belong to no rank. A source is the rank that the answer named as the owner.
    """
    seen = dict(observed)
    if times:
        seen = dict(timed(seen, FAST, LINK))
        seen["ns"] = round(1e6 * seen.pop("ms"))
    owner = {mark: rank for rank, mark in enumerate(marks)}
    pairs = [sorted((owner.get(mark, -1), told) for told, mark in each) for each in seen["notes"]]
    del seen["notes"]
    seen["keys of"] = [[of for of, _ in each] for each in pairs]
    seen["said to be of"] = [[told for _, told in each] for each in pairs]
    return seen


def _met(n: int) -> Observed:
    everybody = [list(range(n)) for _ in range(n)]
    return {"keys of": everybody, "said to be of": everybody}


def _seen(*names: str, times: bool) -> dict[str, Any]:
    see: dict[str, Any] = {name: each_returned(name) for name in (*names, "notes")}
    see["bytes"] = _sent
    return {**see, "programs": "programs"} if times else see


def _compute(whole: Whole, products: int) -> float:
    """Return the seconds in which a rank computes its blocks, for equal shares without mask."""
    heads, size, width = map(int, whole.cut(whole.q)[0].shape)
    return whole.n * products * 2 * heads * width * size**2 / FLOPS


def _hop(whole: Whole) -> float:
    return whole.share / BANDWIDTH + LATENCY


# ring_attention


def ring(
    answer: Answer, about: str, places: Sequence[Tensor], causal: bool, rng: random.Random
) -> Case:
    from ddpkit.checks.lab16.on_ranks import ringed
    from ddpkit.checks.lab16.twin import Whole

    whole = Whole(rng.randrange(10**6), places, heads=4, width=32, causal=causal)
    n, times = whole.n, not causal and not active()
    shares = [whole.cut(x) for x in (whole.q, whole.k, whole.v)]
    least, due = floor(0.999e9 * _compute(whole, 2)), (n - 1) * whole.nbytes
    return Case(
        title(n, about),
        asked(
            partial(ringed, answer),
            *(*map(PerRank, shares), list(places), causal),
            world_size=n,
            see=_seen("output", "lse", times=times),
            machine=FAST if times else None,
            link=LINK if times else None,
        ),
        {
            **_met(n),
            "output": [Close(x) for x in whole.cut(whole.output)],
            "lse": [Close(x) for x in whole.cut(whole.lse)],
            "bytes": Between(due, due),
            **({"ns": Between(least, round(SLACK * least))} if times else {}),
        },
        read=partial(_read, [k.flatten()[0].item() for k in shares[1]], times),
        hints=hints.RING,
        given={"n": n, "whole": whole, "hop": whole.share, "due": due},
        trivial=n == 1,
    )


def lean(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab16.on_ranks import ringed_lean
    from ddpkit.checks.lab16.twin import Whole, stretches

    size = rng.randrange(100, 260)
    whole = Whole(rng.randrange(10**6), stretches([size] * RING), heads=4, width=32, causal=False)
    mean = whole.v.mean(1, keepdim=True).expand(-1, size, -1)
    return Case(
        title(RING, "memory"),
        asked(
            partial(ringed_lean, answer),
            *map(PerRank, map(whole.cut, (whole.q, whole.k, whole.v))),
            whole.places,
            world_size=RING,
            see={"output": each_returned("output"), "peak": _most, "bytes": _sent},
            machine=WITH_MEMORY,
            link=LINK,
        ),
        {
            "output": [Close(mean)] * RING,
            "peak": Between(3 * whole.share, round(ENOUGH * whole.share)),
            "bytes": Between(5 * whole.nbytes, 5 * whole.nbytes),
        },
        hints=hints.LEAN,
        given={"n": RING, "share": whole.share},
    )


# ring_gradients


def ring_back(
    answer: Answer, about: str, places: Sequence[Tensor], causal: bool, rng: random.Random
) -> Case:
    from ddpkit.checks.lab16.on_ranks import ringed_back
    from ddpkit.checks.lab16.twin import Whole

    whole = Whole(rng.randrange(10**6), places, heads=4, width=32, causal=causal)
    n, times = whole.n, not causal and not active()
    shares = [whole.cut(x) for x in (whole.q, whole.k, whole.v)]
    rest = zip(*map(whole.cut, (whole.output, whole.lse, whole.of_out)), strict=True)
    least = floor(0.999e9 * (_compute(whole, 5) + _hop(whole)))
    forth, back = (n - 1) * whole.nbytes, (n - 1) * whole.nbytes
    return Case(
        title(n, about),
        asked(
            partial(ringed_back, answer),
            *(*map(PerRank, shares), PerRank(list(rest)), list(places), causal),
            world_size=n,
            see=_seen("of q", "of k", "of v", times=times),
            machine=FAST if times else None,
            link=LINK if times else None,
        ),
        {
            **_met(n),
            **{
                name: [Close(x) for x in whole.cut(gradient)]
                for name, gradient in zip(("of q", "of k", "of v"), whole.gradients, strict=True)
            },
            # If the gradient travels from the first block on, each share makes one hop more.
            "bytes": Between(forth + back, forth + back + (whole.nbytes if n > 1 else 0)),
            **({"ns": Between(least, round(SLACK * least))} if times else {}),
        },
        read=partial(_read, [k.flatten()[0].item() for k in shares[1]], times),
        hints=hints.RING_BACK,
        given={"n": n, "whole": whole, "hop": whole.share},
        trivial=n == 1,
    )


def lean_back(answer: Answer, rng: random.Random) -> Case:
    from ddpkit.checks.lab16.on_ranks import ringed_back_lean
    from ddpkit.checks.lab16.twin import Whole, stretches

    size = rng.randrange(100, 260)
    whole = Whole(rng.randrange(10**6), stretches([size] * RING), heads=4, width=32, causal=False)
    q, k, v = map(whole.cut, (whole.q, whole.k, whole.v))
    return Case(
        title(RING, "memory"),
        asked(
            partial(ringed_back_lean, answer),
            *(*map(PerRank, (q, k, v)), whole.places),
            world_size=RING,
            see={
                **{name: each_returned(name) for name in ("of q", "of k", "of v")},
                "peak": _most,
                "bytes": _sent,
            },
            machine=WITH_MEMORY,
            link=LINK,
        ),
        {
            "of q": [Close(21.0 * x) for x in q],
            "of k": [Close(1.0 * RING * x) for x in k],
            "of v": [Close(1.0 * RING * x) for x in v],
            "peak": Between(4 * whole.share, ENOUGH_BACK * whole.share),
            "bytes": Between(10 * whole.nbytes, 11 * whole.nbytes),
        },
        hints=hints.LEAN_BACK,
        given={"n": RING, "share": whole.share},
    )
