"""`explore_scaling`: the efficiency of more and more ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.link import Link, LinkSpec
from ddpkit.simulate import Step
from ddpkit.simulate.engine.prices import CHEAPEST, CHOICES
from ddpkit.simulate.step.buckets import DEFAULT_CAP_MB
from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.view.drawing.runs import HasTrace, skipped
from ddpkit.view.drawing.shell import View, nothing
from ddpkit.view.drawing.sliders import RANKS, choice, link_sliders, slider
from ddpkit.view.drawing.steps import caps, start_of
from ddpkit.view.scaling.model import Scaling, scaling_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BATCHES = (0.125, 0.25, 0.5, 1, 2, 4, 8, 16)
WORLDS = (*RANKS, 2048, 4096)


def explore_scaling(
    step_or_trace: Step | HasTrace | Trace | None = None,
    link: LinkSpec | None = None,
    world_size: int = 64,
    cap_mb: float = DEFAULT_CAP_MB,
    algorithm: str = "ring",
) -> View[Scaling]:
    """Show the efficiency (speed-up ÷ ranks) of a step by ranks, batch and link.

    Weak scaling gives every rank the batch of the step; strong scaling divides one such batch among
    the ranks. All ranks are on one flat network. Their all_reduces are rings, recursive doubling
    (``algorithm="butterfly"``), or the cheaper of both for each bucket ("cheapest").
    The step and the link are chosen as in `explore_buckets`. In a notebook, sliders change the
    settings. ``explore_scaling(...).figure(ranks=256, batch=2, gbits=100, us=20, cap_mb=25)``
    returns the picture, and ``.table(...)`` both curves as text; both work without a notebook.
    Raises TraceError if the trace has no step with a backward, ValueError for a bad link.
    """
    if not isinstance(step_or_trace, Step | None) and (
        why := skipped("explore_scaling", step_or_trace, or_else="a Step")
    ):
        return nothing(why)
    step, found, _ = start_of(step_or_trace, link, world_size)
    start = {"ranks": world_size, "batch": 1.0, **found, "cap_mb": cap_mb, "algorithm": algorithm}

    def model(**at: Any) -> Scaling:
        link = Link(at["us"] / 1e6, at["gbits"] * 1e9 / 8)
        return scaling_model(step, link, at["ranks"], at["batch"], at["cap_mb"], at["algorithm"])

    view = View(start, model, _draw, _describe, Scaling.table)
    return view.show(lambda view: _controls(view, step))


def _draw(model: Scaling) -> Figure:
    from ddpkit.view.scaling.figure import draw_scaling

    return draw_scaling(model)


def _describe(model: Scaling) -> str:
    return prose(f"{model.title}.", model.text, model.notice)


def _controls(view: View[Scaling], step: Step) -> Any:
    at = view.start
    return view.live(
        {
            "ranks": slider("Ranks", WORLDS, at["ranks"], "{:g}".format),
            "batch": slider("Batch", BATCHES, at["batch"], "{:g} times".format),
            **link_sliders(at),
            "cap_mb": slider("Bucket cap", caps(step), at["cap_mb"], "{:g} MB".format),
            "algorithm": choice("All-reduce", (*CHOICES, CHEAPEST), at["algorithm"]),
        }
    )
