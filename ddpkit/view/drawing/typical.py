"""The step that stands for a run, where a picture shows one of many. Pure."""

from __future__ import annotations

from ddpkit.simulate.step.recorded import WARM_UP
from ddpkit.trace import Trace


def typical_step(trace: Trace, rank: int | None) -> int:
    """The step of median length, of those after the warm-up; the last, if there are so few.

    The length of one rank's step, or from the first rank's start to the last one's end.
    """
    first = WARM_UP if trace.steps > WARM_UP else trace.steps - 1
    ordered = sorted(range(first, trace.steps), key=lambda k: step_length(trace, k, rank))
    return ordered[(len(ordered) - 1) // 2]


def step_length(trace: Trace, step: int | None, rank: int | None) -> int:
    """How long a step is, in ns, on one rank, or from the first one's start to the last one's end.

    Without a step: the whole trace.
    """
    if step is None:
        return trace.end_ns - trace.start_ns
    windows = [
        steps[step]
        for each, steps in trace.step_windows.items()
        if rank in (None, each) and step < len(steps)
    ]
    return max((end for _, end in windows), default=0) - min((s for s, _ in windows), default=0)
