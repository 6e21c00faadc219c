"""`forecast`: predicts new runs from one recorded run, and measures the error of the predictions.

A `Forecast` keeps the data of `what_if`: the typical step of the slowest rank, the recorded
buckets, the link, and the overhead of an all_reduce. The error of the model is measured on the
recording itself: every second step after the warm-up is held out, and a model made from the
remaining steps predicts the held-out steps. The error shows how well the model fits this run. The
error does not show the additional time of another cluster (congestion, late ranks), which only
makes steps longer.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.errors import TraceError
from ddpkit.link import Links, LinkSpec
from ddpkit.simulate.step.buckets import Bucket, assign_buckets
from ddpkit.simulate.step.data_parallel import Replay, replay
from ddpkit.simulate.step.parallelism import StepCalls
from ddpkit.simulate.step.recorded import Step, after_warm_up, recorded_buckets
from ddpkit.simulate.step.whatif import recorded_link
from ddpkit.trace import Trace


@dataclass(frozen=True)
class Forecast:
    """A recorded run as a model of other runs, with the model's errors on the held-out steps."""

    step: Step  # step of the rank with the longest compute
    world_size: int  # recorded number of ranks
    buckets: tuple[Bucket, ...]  # recorded buckets
    links: Links  # recorded or fitted links
    overhead_ns: int  # time of a recorded all_reduce in addition to the time on its link
    ratios: tuple[float, ...]  # measured ÷ predicted, for each step that was held out
    machine: str = ""  # the machine for which compute was counted, as recorded
    # the recorded ranks; () if all were recorded, otherwise the missing ranks count as copies
    recorded: tuple[int, ...] = ()
    seen: StepCalls | None = None  # the calls of the typical step

    @property
    def ratio(self) -> float | None:
        """The median of the held-out steps' recorded ÷ predicted times; None without such steps."""
        return statistics.median(self.ratios) if self.ratios else None

    def replay(
        self,
        world_size: int | None = None,
        link: LinkSpec | None = None,
        bucket_cap_mb: float | None = None,
        speed: float = 1.0,
        algorithm: str = "ring",
        first_bucket_mb: float | None = None,
    ) -> Replay:
        """Return the predicted step on `world_size` ranks, with the recorded batch per rank.

        An argument that is None is replaced by the recorded value.

        The caps of buckets mean the same as in `assign_buckets`: ``first_bucket_mb=1`` alone gives
        the buckets that torch makes without ``bucket_cap_mb``. ``speed=2``: ranks compute twice as
        fast. Raises TraceError if the links of `world_size` ranks cannot be derived from the
        recorded links, and ValueError for a bad link or a speed that is not above 0.
        """
        if not speed > 0:
            raise ValueError(f"a speed must be above 0, not {speed!r}")
        n = self.world_size if world_size is None else world_size
        buckets = self.buckets
        if bucket_cap_mb is not None or first_bucket_mb is not None:
            buckets = assign_buckets(self.step.gradients, bucket_cap_mb, first_bucket_mb)
        links = self._links(n) if link is None else Links.parse(link, n)
        return replay(
            self.step.slowed(1 / speed),
            n,
            links,
            buckets,
            overhead_ns=self.overhead_ns if n > 1 else 0,
            algorithm=algorithm,
        )

    def _links(self, n: int) -> Links:
        if n == self.world_size:
            return self.links
        try:
            return Links.parse(str(self.links), n)
        except ValueError:
            raise TraceError(
                f"each recorded rank had its own link ({self.links}), so the links of {n} ranks "
                "are unknown: name one link for all"
            ) from None


def forecast(trace: Trace, sizes: Sequence[int] = ()) -> Forecast:
    """Return the model of a recorded run.

    A rank that was not recorded counts as a copy of a recorded rank.

    ``sizes``: bytes of the gradients in order of readiness, for a trace that does not hold them.
    Raises TraceError if the trace has no step with a backward.
    """
    steps = list(after_warm_up(trace))
    known, unseen = steps[::2], steps[1::2]
    ratios, halves, wholes = [], [], []
    for rank in trace.recorded_ranks:
        read = [Step.of_trace(trace, k, rank, sizes) for k in steps or [-1]]
        halves.append(Step.typical_of(read[::2]))
        wholes.append(Step.typical_of(read))
    if unseen:
        model = _model(trace, sizes, known, halves)
        predicted = model.replay().step_ns
        ratios = [_longest(trace, k) / predicted for k in unseen]
    whole = _model(trace, sizes, steps, wholes)
    return Forecast(
        whole.step,
        whole.world_size,
        whole.buckets,
        whole.links,
        whole.overhead_ns,
        tuple(ratios),
        str(trace.facts.get("machine", "")),
        whole.recorded,
    )


def _model(
    trace: Trace, sizes: Sequence[int], among: Sequence[int], typical: Sequence[Step]
) -> Forecast:
    """Return the model made from the steps `among`; ``typical`` has each rank's typical step."""
    ranks = trace.recorded_ranks
    slowest = max(typical, key=lambda step: step.compute_ns)
    buckets = recorded_buckets(trace, rank=ranks[0], sizes=sizes)
    buckets = buckets or assign_buckets(slowest.gradients)
    links, overhead = recorded_link(trace, among)
    recorded = tuple(ranks) if len(ranks) < trace.world_size else ()
    return Forecast(slowest, trace.job_size, buckets, links, overhead, (), recorded=recorded)


def _longest(trace: Trace, k: int) -> int:
    """Return the time of step `k` on the rank with the longest step, in ns."""
    cut = trace.step(k)
    windows = [cut.window_of(rank) for rank in cut.recorded_ranks]
    return max(end - start for start, end in windows)
