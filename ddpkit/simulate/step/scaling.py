"""The gain from more ranks: a step on 1, 2, 4, … ranks, with a shared or a growing batch."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ddpkit.link import LinkSpec
from ddpkit.simulate.step.buckets import Bucket
from ddpkit.simulate.step.data_parallel import Replay, replay
from ddpkit.simulate.step.recorded import Step


@dataclass(frozen=True, slots=True)
class Scaled:
    """A simulated step on one number of ranks, with its speed-up over one rank."""

    replay: Replay
    speed_up: float  # samples per second, in multiples of one rank alone

    @property
    def world_size(self) -> int:
        """The number of ranks."""
        return self.replay.world_size

    @property
    def efficiency(self) -> float:
        """The speed-up divided by the number of ranks."""
        return self.speed_up / self.world_size


def scaling(
    step: Step,
    link: LinkSpec,
    world_sizes: Iterable[int],
    *,
    strong: bool,
    buckets: Sequence[Bucket] | None = None,
    algorithm: str = "ring",
) -> list[Scaled]:
    """Return the simulated step and its speed-up for each number of ranks.

    Strong scaling divides the batch of ``step`` among the ranks; weak scaling gives each rank the
    whole batch. Without ``buckets``, torch's default caps make the buckets. `price_of` lists the
    names for ``algorithm``. The terms are from J. L. Gustafson, Reevaluating Amdahl's Law, CACM 31
    (1988).
    """
    scaled = []
    for n in world_sizes:
        done = replay(
            step.batch_of(1 / n) if strong else step, n, link, buckets, algorithm=algorithm
        )
        batches = 1 if strong else n
        scaled.append(Scaled(done, batches * step.compute_ns / (done.step_ns or 1)))
    return scaled
