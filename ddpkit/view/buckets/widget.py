"""`explore_buckets`: what do cap, network, compute and ranks do to a step?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import Step
from ddpkit.simulate.buckets import DEFAULT_CAP_MB
from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.view.buckets.model import Buckets, bucket_model, caps, example_step
from ddpkit.view.drawing.shell import View, nothing, slider
from ddpkit.view.show import HasTrace, skipped, trace_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GBITS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 25, 50, 100, 200, 400)
MICROSECONDS = (0, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
SPEEDS = (0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8)
RANKS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)
LINK = "10 Gbit/s, 200 us"


def explore_buckets(
    step_or_trace: Step | HasTrace | Trace | None = None,
    link: LinkSpec | None = None,
    world_size: int | None = None,
    cap_mb: float = DEFAULT_CAP_MB,
) -> View[Buckets]:
    """Move the bucket cap, the link, the compute and the number of ranks, and see a step follow.

    Of the typical step of a run or trace (rank 0), of a `simulate.Step`, or without one, of an
    example. The link and the ranks are the trace's if not given, else "10 Gbit/s, 200 us" and 4. In
    a notebook there are sliders; anywhere ``explore_buckets(...).figure(cap_mb=5, gbits=1, us=200,
    speed=1, ranks=8)`` is the picture, and ``.table(...)`` the curve as text. Raises TraceError if
    the trace has no step with a backward, ValueError for a bad link.
    """
    if not isinstance(step_or_trace, Step | None) and (why := skipped(step_or_trace)):
        return nothing(why)
    step, found, n = start_of(step_or_trace, link, world_size)
    start = {"cap_mb": cap_mb, **found, "speed": 1.0, "ranks": n}

    def model(**at: Any) -> Buckets:
        link = Link(at["us"] / 1e6, at["gbits"] * 1e9 / 8)
        return bucket_model(step, at["cap_mb"], link, at["ranks"], at["speed"])

    view = View(start, model, _draw, _describe, Buckets.table)
    return view.show(lambda view: _controls(view, step))


def start_of(
    given: Step | HasTrace | Trace | None, link: LinkSpec | None, world_size: int | None
) -> tuple[Step, dict[str, float], int]:
    """The step, the settings of the link's sliders, and the number of ranks to start from."""
    step, emulated, n = given or example_step(), LINK, 4
    if not isinstance(step, Step):
        trace = trace_of(step)
        step, n = Step.typical(trace), trace.world_size
        emulated = str(trace.facts.get("emulated") or LINK)
    n = n if world_size is None else world_size
    each = Links.parse(emulated if link is None else link, n).slowest
    return step, numbers_of(each), n


def _draw(model: Buckets) -> Figure:
    from ddpkit.view.buckets.figure import draw_buckets

    return draw_buckets(model)


def _describe(model: Buckets) -> str:
    return prose(f"{model.title}.", model.text, model.notice)


def _controls(view: View[Buckets], step: Step) -> Any:
    at = view.start
    return view.live(
        {
            "cap_mb": slider("bucket cap", caps(step), at["cap_mb"], "{:g} MB".format),
            **link_sliders(at),
            "speed": slider("compute", SPEEDS, at["speed"], "{:g} × speed".format),
            "ranks": slider("ranks", RANKS, at["ranks"], "{:g}".format),
        }
    )


def numbers_of(link: Link) -> dict[str, float]:
    """A link as its sliders have it."""
    return {"gbits": link.bytes_per_s * 8 / 1e9, "us": link.latency_ns / 1e3}


def link_sliders(at: Mapping[str, Any]) -> dict[str, Any]:
    """Of a link's bandwidth and latency."""
    return {
        "gbits": slider("bandwidth", GBITS, at["gbits"], _bandwidth),
        "us": slider("latency", MICROSECONDS, at["us"], "{:.4g} us".format),
    }


def _bandwidth(gbits: float) -> str:
    return f"{gbits:.4g} Gbit/s" if gbits < math.inf else "unlimited"
