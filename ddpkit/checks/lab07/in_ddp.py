"""Lab 07: a case in torch's own DDP, and the bytes that collectives take."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case
from ddpkit.exercises.ranks import Did, asked
from ddpkit.exercises.values import Close
from ddpkit.protocol.per_rank import PerRank

Answer = Callable[..., Any]


def collected(did: Did) -> list[int]:
    """Bytes that each rank gave to collectives."""
    counts = [did.trace.traffic.collectives(rank).values() for rank in did.trace.ranks]
    return [sum(each.bytes for each in of_rank) for of_rank in counts]


def in_ddp(
    run: str, answer: Answer, rng: random.Random, given: Sequence[Any], *, digits: int, hints: Any
) -> Case:
    """Backwards in torch's DDP on two ranks, the first ones without the answer."""
    from ddpkit.checks.lab06 import alone
    from ddpkit.checks.lab06.models import batches, linear
    from ddpkit.checks.lab07 import buckets

    net, steps = linear(rng.randrange(10**6)), buckets.STEPS_AS_EVER + 2
    few = run == "low_rank_in_ddp"  # a gradient of one image is of rank 1
    parts = [_cut(batches(rng.randrange(10**6), steps), 1 if few else 4) for _ in range(2)]
    later = list(zip(*parts, strict=True))[buckets.STEPS_AS_EVER :]
    means = [alone.vector(alone.mean(alone.gradients_of(net, each))) for each in later]
    return Case(
        "torch's DDP on 2 ranks",
        asked(
            partial(getattr(buckets, run), answer, *given),
            net,
            PerRank(parts),
            world_size=2,
            see={"gradients": "returned"},
        ),
        {"gradients": [[Close(mean, digits) for mean in means]] * 2, "ranks agree": True},
        read=lambda seen: {
            "gradients": seen["gradients"],
            "ranks agree": same(*seen["gradients"]),
        },
        hints=hints,
        given={"in_ddp": True},
    )


def _cut(parts: Sequence[Any], images: int) -> list[Any]:
    return [(x[:images], y[:images]) for x, y in parts]
