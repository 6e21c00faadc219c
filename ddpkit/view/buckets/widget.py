"""`explore_buckets`: the effect of bucket cap, network, compute and ranks on a step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.link import Link, LinkSpec
from ddpkit.simulate import Step
from ddpkit.simulate.step.buckets import DEFAULT_CAP_MB
from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.view.buckets.model import CapSweep, bucket_model
from ddpkit.view.drawing.runs import HasTrace, skipped
from ddpkit.view.drawing.shell import View, nothing
from ddpkit.view.drawing.sliders import RANKS, link_sliders, slider
from ddpkit.view.drawing.steps import caps, start_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPEEDS = (0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8)


def explore_buckets(
    step_or_trace: Step | HasTrace | Trace | None = None,
    link: LinkSpec | None = None,
    world_size: int | None = None,
    cap_mb: float = DEFAULT_CAP_MB,
) -> View[CapSweep]:
    """Show the effect of the bucket cap, the link, the compute and the ranks on a step.

    The step is the typical step of a run or trace on rank 0, a `simulate.Step`, or an example if
    nothing is given. The link and the number of ranks default to those of the trace, or without a
    trace to "10 Gbit/s, 200 us" and 4. In a notebook, sliders change the settings.
    ``explore_buckets(...).figure(cap_mb=5, gbits=1, us=200, speed=1, ranks=8)`` returns the
    picture, and ``.table(...)`` the curve as text; both work without a notebook. Raises TraceError
    if the trace has no step with a backward, ValueError for a bad link.
    """
    if not isinstance(step_or_trace, Step | None) and (
        why := skipped("explore_buckets", step_or_trace, or_else="a Step")
    ):
        return nothing(why)
    step, found, n = start_of(step_or_trace, link, world_size)
    start = {"cap_mb": cap_mb, **found, "speed": 1.0, "ranks": n}

    def model(**at: Any) -> CapSweep:
        link = Link(at["us"] / 1e6, at["gbits"] * 1e9 / 8)
        return bucket_model(step, at["cap_mb"], link, at["ranks"], at["speed"])

    view = View(start, model, _draw, _describe, CapSweep.table)
    return view.show(lambda view: _controls(view, step))


def _draw(model: CapSweep) -> Figure:
    from ddpkit.view.buckets.figure import draw_buckets

    return draw_buckets(model)


def _describe(model: CapSweep) -> str:
    return prose(f"{model.title}.", model.text, model.notice)


def _controls(view: View[CapSweep], step: Step) -> Any:
    at = view.start
    return view.live(
        {
            "cap_mb": slider("Bucket cap", caps(step), at["cap_mb"], "{:g} MB".format),
            **link_sliders(at),
            "speed": slider("Speed", SPEEDS, at["speed"], "{:g} times".format),
            "ranks": slider("Ranks", RANKS, at["ranks"], "{:g}".format),
        }
    )
