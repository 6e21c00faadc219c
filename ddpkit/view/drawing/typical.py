"""The step that stands for a run in a picture of one step. Pure."""

from __future__ import annotations

from ddpkit.simulate.step.recorded import WARM_UP
from ddpkit.trace import Trace


def typical_step(trace: Trace, rank: int | None) -> int:
    """Return the step of median length after the warm-up; the last step of a shorter run.

    The length is that of rank ``rank``'s step. With ``rank=None`` a step lasts from the first
    rank's start to the last rank's end.
    """
    first = WARM_UP if trace.steps > WARM_UP else trace.steps - 1
    ordered = sorted(range(first, trace.steps), key=lambda k: step_length(trace, k, rank))
    return ordered[(len(ordered) - 1) // 2]


def step_length(trace: Trace, step: int | None, rank: int | None) -> int:
    """Return the length of a step in ns, on one rank or, with ``rank=None``, on all ranks.

    On all ranks a step lasts from the first rank's start to the last rank's end. With
    ``step=None``, return the length of the whole trace.
    """
    if step is None:
        return trace.end_ns - trace.start_ns
    windows = [
        steps[step]
        for each, steps in trace.step_windows.items()
        if rank in (None, each) and step < len(steps)
    ]
    return max((end for _, end in windows), default=0) - min((s for s, _ in windows), default=0)
