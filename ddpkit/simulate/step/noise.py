"""Steps with noise: in each step the ranks are late by chance.

With noise, each rank's compute in a step takes 1 + |x| times as long, where x is normal with mean
0: other work on a machine makes a step longer, never shorter. An all_reduce waits for the last
rank, so only the largest of the n factors counts: 4,096 ranks take no longer to compute than one.
"""

from __future__ import annotations

import math

from ddpkit.link import LinkSpec
from ddpkit.simulate.engine.prices import Price
from ddpkit.simulate.step.buckets import Bucket
from ddpkit.simulate.step.data_parallel import replay
from ddpkit.simulate.step.recorded import Step


def noisy_steps(
    step: Step,
    world_size: int,
    link: LinkSpec,
    noise: float,
    *,
    steps: int = 100,
    seed: int = 0,
    buckets: tuple[Bucket, ...] | None = None,
    price: Price | None = None,
) -> list[int]:
    """Return the times of a number of steps, in ns, in which every rank is late by chance.

    ``noise`` is the standard deviation of x in the formula above: 0.05 is 5 %. The same seed gives
    the same steps. Raises ValueError for noise below 0.
    """
    import numpy as np

    if not 0 <= noise < math.inf:
        raise ValueError(f"noise is a share of the compute, 0 or more: {noise!r}")
    drawn = np.random.default_rng(seed)
    latest = [
        1 + noise * float(np.abs(drawn.standard_normal(world_size)).max()) for _ in range(steps)
    ]
    return [
        replay(step.slowed(late), world_size, link, buckets, price=price).step_ns for late in latest
    ]
