"""`scaling_model`: a step on 1 to 4,096 ranks, with a shared or a growing batch. Pure."""

from dataclasses import dataclass

from ddpkit.link import Link
from ddpkit.simulate import Scaled, Step, assign_buckets, scaling
from ddpkit.simulate.step.buckets import DEFAULT_CAP_MB
from ddpkit.text import columns, count, size
from ddpkit.view.drawing import words

WORLDS = tuple(2**k for k in range(13))
GOOD = 0.8  # efficiency below which more ranks are mostly wasted


@dataclass(frozen=True)
class Scaling:
    """Weak and strong scaling over numbers of ranks, with the index of the chosen number."""

    title: str
    weak: tuple[Scaled, ...]
    strong: tuple[Scaled, ...]
    at: int  # the index of the chosen number of ranks

    @property
    def ranks(self) -> int:
        return self.weak[self.at].world_size

    @property
    def text(self) -> str:
        """The finding: the speed-ups on the chosen number of ranks."""
        weak, strong = self.weak[self.at], self.strong[self.at]
        return (
            f"{count(self.ranks, 'rank')}: {weak.speed_up:,.3g} times as fast as one if the "
            f"batch grows (efficiency {words.percents([weak.efficiency])}), "
            f"{strong.speed_up:,.3g} times if it is shared ({words.percents([strong.efficiency])})."
        )

    @property
    def notice(self) -> str:
        """Return a sentence on the most ranks with a good efficiency, by kind of scaling."""
        weak, strong = (
            max(each.world_size for each in some if each.efficiency >= GOOD)
            for some in (self.weak, self.strong)
        )
        best = max(self.strong, key=lambda each: each.speed_up)
        good = f"{_up_to(weak)} if the batch grows, {_up_to(strong)} if it is shared"
        return (
            f"Notice: the efficiency is {GOOD:.0%} or more "
            f"{good if weak != strong else f'{_up_to(weak)}, both ways'}. "
            f"A shared batch is fastest on {count(best.world_size, 'rank')}."
        )

    def table(self) -> str:
        """Return both curves as text."""
        rows = [["ranks", "growing: step", "speed-up", "shared: step", "speed-up"]]
        for pair in zip(self.weak, self.strong, strict=True):
            cells = ((words.ms(each.replay.step_ns), f"{each.speed_up:.3g}") for each in pair)
            rows.append([f"{pair[0].world_size:,}", *(cell for two in cells for cell in two)])
        return "\n".join([self.title, *columns(rows), self.notice])


def _up_to(ranks: int) -> str:
    return f"up to {ranks:,} ranks" if ranks > 1 else "on one rank alone"


def scaling_model(
    step: Step,
    link: Link,
    ranks: int,
    batch: float = 1.0,
    cap_mb: float = DEFAULT_CAP_MB,
    algorithm: str = "ring",
) -> Scaling:
    """Return weak and strong scaling of ``step``; ``ranks`` is the chosen number of ranks.

    ``batch=2``: each sample takes as long as in ``step``, and the batch has twice as many samples.
    ``algorithm`` is the algorithm of all all_reduces, a name that `price_of` takes.

    Raises ValueError for a batch that is not above 0, or for an unknown algorithm.
    """
    if not batch > 0:
        raise ValueError(f"a batch must be above 0: {batch=}")
    larger = step.batch_of(batch)
    worlds = sorted({*WORLDS, ranks})
    buckets = assign_buckets(step.gradients, cap_mb)
    weak, strong = (
        tuple(scaling(larger, link, worlds, strong=strong, buckets=buckets, algorithm=algorithm))
        for strong in (False, True)
    )
    # other compute is left out: the bars show its time as idle
    computed_ns = larger.compute_ns - larger.other_ns
    title = f"{words.ms(computed_ns)} of compute, {size(step.bytes)} of gradients, {link}"
    title += f", {algorithm}" if algorithm != "ring" else ""
    return Scaling(title + words.of_step(larger), weak, strong, worlds.index(ranks))
