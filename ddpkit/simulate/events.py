"""A data-parallel step of all ranks, message by message.

Each rank computes on one lane and posts its buckets on another: it enters an all_reduce when its
own gradients are ready, and begins its part when its part of the one before is done. `replay` says
the same in closed form, and must agree; here is what it is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.buckets import Bucket, assign_buckets
from ddpkit.simulate.data_parallel import posted_ns
from ddpkit.simulate.network import Network
from ddpkit.simulate.plans import schedule
from ddpkit.simulate.step import Step


def step_ends(
    steps: Sequence[Step],
    link: LinkSpec,
    buckets: Sequence[Bucket] | None = None,
    algorithm: str = "ring",
) -> list[int]:
    """When each rank is through with a step, in ns; ``steps`` has one for each rank.

    ``buckets`` are those of torch's default caps if not given. Meant for up to some hundred ranks.
    """
    n, everybody = len(steps), tuple(range(len(steps)))
    if buckets is None:
        buckets = assign_buckets(steps[0].gradients)
    plans = [schedule(algorithm, n, bucket.bytes) for bucket in buckets]
    network = Network(Links.parse(link, n))
    last = [
        [
            network.enter(posted, "", number, rank, everybody, plans[number])
            for number, posted in enumerate(posted_ns(step, buckets))
        ][-1:]
        for rank, step in enumerate(steps)
    ]
    network.advance()
    return [
        max([step.begin_ns + step.backward_ns, *(part.done_ns for part in parts)])
        + step.finish_ns
        + step.optimizer_ns
        for step, parts in zip(steps, last, strict=True)
    ]
