"""`WorkDone`: a rank's work in a training step, and its share of the machine's peak."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ddpkit.trace.base import BaseTrace
from ddpkit.trace.span import OF_DEVICE, OPTIMIZER, QUEUE, Scalar, Span

COUNTED = ("flops", "recomputed_flops", "peak_ns", "recomputed_peak_ns", "launches", "host_ns")
LIMIT = 0.9  # the part of a step from which on the host's work is called the limit


@dataclass(frozen=True, slots=True)
class WorkDone:
    """The work of one rank in one step.

    flops              the step's FLOPs; 0 if the rank's machine is not modelled
    recomputed_flops   FLOPs in `flops` for forward operations that a backward repeated
    peak_ns            the time that `flops` take at the machine's peak
    recomputed_peak_ns the time that `recomputed_flops` take at the machine's peak
    launches           on a machine with a device: the number of operations that the host launched
    host_ns            on a machine with a device: the time of the host's launches and operations,
                       without waits
    amounts            the amounts of `ddpkit.step(tokens=...)`
    """

    duration_ns: int
    flops: int = 0
    recomputed_flops: int = 0
    peak_ns: int = 0
    recomputed_peak_ns: int = 0
    launches: int = 0
    host_ns: int = 0
    amounts: Mapping[str, float] = field(default_factory=dict)

    @property
    def model_share(self) -> float:
        """The share of the machine's peak that the step reached, without recomputed FLOPs.

        This is the MFU of Chowdhery et al., PaLM, 2022.
        """
        return self._share(self.peak_ns - self.recomputed_peak_ns)

    @property
    def hardware_share(self) -> float:
        """The share of the machine's peak that the step reached, with recomputed FLOPs.

        This is the HFU of Chowdhery et al., PaLM, 2022.
        """
        return self._share(self.peak_ns)

    @property
    def host_is_the_limit(self) -> bool:
        """True if the host works for nearly all of the step, so the device waits for launches."""
        return self.host_ns >= LIMIT * self.duration_ns > 0

    def _share(self, ns: int) -> float:
        return ns / self.duration_ns if self.duration_ns else 0.0


def step_work(trace: BaseTrace, step: int) -> dict[int, WorkDone]:
    """Return the work of each rank in a step; a rank without the step is left out.

    Raises TraceError if there is no such step.
    """
    found, part = {}, trace.step(step)
    for rank in trace.recorded_ranks:
        start, end = part.window_of(rank)
        ends = [span for span in part.of(rank) if span.kind in ("step", "optimizer")]
        marked = [span for span in ends if span.kind == "step"]
        if end > start and ends:
            own = [_last(marked)] if marked else [span.args for span in ends]
            counted = {name: sum(int(each.get(name, 0)) for each in own) for name in COUNTED}
            apart = (*COUNTED, *OF_DEVICE, QUEUE, OPTIMIZER)
            stated = {name: float(each) for name, each in own[-1].items() if name not in apart}
            found[rank] = WorkDone(end - start, amounts=stated, **counted)
    return found


def _last(spans: list[Span]) -> Mapping[str, Scalar]:
    return max(spans, key=lambda span: span.end_ns).args
