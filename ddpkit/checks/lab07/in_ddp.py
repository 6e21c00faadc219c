"""Lab 07: a case in torch's own DDP, and the bytes that a hook passes to torch.distributed."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ddpkit.checks.lab07 import WITH_THE_HOOK
from ddpkit.exercises.compare import same
from ddpkit.exercises.exercise import Case
from ddpkit.exercises.ranks import Did, asked, handed_in, within
from ddpkit.exercises.values import Between, Close
from ddpkit.protocol.per_rank import PerRank

if TYPE_CHECKING:
    from ddpkit.checks.shared.models import Part
    from ddpkit.exercises.guard import Answer
    from ddpkit.exercises.hint import Hint


def by_the_hook(did: Did) -> list[int]:
    """Return, by rank, the bytes that the hook passed to torch.distributed."""
    return [handed_in(within(did.trace.of(rank), WITH_THE_HOOK)) for rank in did.trace.ranks]


def in_ddp(
    run: str,
    answer: Answer,
    rng: random.Random,
    given: Sequence[object],
    *,
    digits: int,
    hints: Sequence[Hint],
    most: Callable[[tuple[int, ...]], int],
    least: float = 1.0,
    once: Callable[[tuple[int, ...]], int] = lambda shape: 0,
) -> Case:
    """Return a case of backwards in torch's DDP on two ranks; the hook starts after some steps.

    `most` maps the shape of a gradient to the most bytes that the hook may pass on. `least` is the
    share of these bytes that the hook must pass on. `once` gives the additional bytes that the hook
    may pass on in its first step.
    """
    from ddpkit.checks.lab07 import buckets
    from ddpkit.checks.shared import alone
    from ddpkit.checks.shared.models import batches, linear

    net, steps = linear(rng.randrange(10**6)), buckets.STEPS_AS_EVER + 2
    few = run == "low_rank_in_ddp"  # a gradient of one image has rank 1
    parts = [_cut(batches(rng.randrange(10**6), steps), 1 if few else 4) for _ in range(2)]
    later = list(zip(*parts, strict=True))[buckets.STEPS_AS_EVER :]
    enough = (steps - buckets.STEPS_AS_EVER) * sum(most(tuple(p.shape)) for p in net.parameters())
    begin = sum(once(tuple(p.shape)) for p in net.parameters())
    means = [alone.vector(alone.mean(alone.gradients_of(net, each))) for each in later]
    return Case(
        "torch's DDP on 2 ranks",
        asked(
            partial(getattr(buckets, run), answer, *given),
            net,
            PerRank(parts),
            world_size=2,
            see={"gradients": "returned", "bytes of the hook": by_the_hook},
        ),
        {
            "gradients": [[Close(mean, digits) for mean in means]] * 2,
            "ranks agree": True,
            "bytes of the hook": [Between(round(least * enough), enough + begin)] * 2,
        },
        read=lambda seen: {**seen, "ranks agree": same(*seen["gradients"])},
        hints=hints,
        given={"in_ddp": True},
    )


def _cut(parts: Sequence[Part], images: int) -> list[Part]:
    return [(x[:images], y[:images]) for x, y in parts]
