"""The step that a widget starts from, and the bucket caps to try with this step. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ddpkit.link import Links, LinkSpec
from ddpkit.simulate import Gradient, Step
from ddpkit.simulate.step.buckets import MB
from ddpkit.trace import Trace
from ddpkit.view.drawing.runs import HasTrace, trace_of
from ddpkit.view.drawing.sliders import numbers_of

SERIES = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0)  # caps per power of ten
LINK = "10 Gbit/s, 200 us"


def start_of(
    given: Step | HasTrace | Trace | None, link: LinkSpec | None, world_size: int | None
) -> tuple[Step, dict[str, float], int]:
    """Return a widget's starting values: the step, the link's settings, the number of ranks."""
    step, emulated, n = given or example_step(), LINK, 4
    if not isinstance(step, Step):
        trace = trace_of(step)
        step, n = Step.typical(trace), trace.job_size
        emulated = str(trace.facts.get("emulated") or LINK)
    n = n if world_size is None else world_size
    each = Links.parse(emulated if link is None else link, n).slowest
    return step, numbers_of(each), n


def caps(step: Step) -> list[float]:
    """Return the bucket caps to try, in MB, up to one bucket for all gradients.

    The smallest cap is about 0.1 MB, or 1/200 of the gradients' bytes if this is less.
    """
    whole = step.bytes / MB
    return list(_series(min(0.1, whole / 200), whole)) or [1.0]


def _series(least: float, most: float) -> Iterator[float]:
    """Yield round numbers from ``least`` on, up to the first number that is at least ``most``."""
    power = -3
    while most > 0:
        for digit in SERIES:
            cap = float(f"{digit}e{power}")
            if cap >= least:
                yield cap
            if cap >= most:
                return
        power += 1


def example_step() -> Step:
    """Return a made-up step: 96 layers with 1 MB of weights, 4 kB of biases; 180 ms of compute."""
    ready, gradients = 0, []
    for layer in reversed(range(96)):
        ready += 1_250_000
        gradients.append(Gradient(f"layer{layer}.weight", 1_000_000, ready - 50_000))
        gradients.append(Gradient(f"layer{layer}.bias", 4_000, ready))
    return Step(55_000_000, tuple(gradients), 5_000_000)
