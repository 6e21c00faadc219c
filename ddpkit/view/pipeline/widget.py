"""`explore_pipeline`: the bubble of a schedule, by stages, micro-batches and latency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ddpkit.link import Link, duration_ns
from ddpkit.simulate.step.pipeline import PIPELINES, pipeline_plans, pipeline_time
from ddpkit.view.drawing.shell import View
from ddpkit.view.drawing.sliders import choice, slider
from ddpkit.view.pipeline.model import PipelinePicture, pipeline_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAGES = (1, 2, 3, 4, 6, 8, 12, 16)
MICRO = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LATENCIES_MS = (0, 1, 2, 5, 10, 20, 40)
PLAYED = tuple(part / 40 for part in range(41))  # shares of the step, from its start


def explore_pipeline(
    schedule: str = "1f1b",
    stages: int = 4,
    micro: int = 8,
    latency_ms: float = 0,
    *,
    forward: str = "20 ms",
    backward: str = "40 ms",
) -> View[PipelinePicture]:
    """Show a pipeline's bubble by stages, micro-batches and latency, up to any moment of the step.

    ``schedule`` is one of `ddpkit.simulate.PIPELINES`; ``forward`` and ``backward`` are the times
    of one micro-batch in one stage. In a notebook, sliders change the settings; "played" is the
    share of the step that is shown. ``explore_pipeline(...).figure(schedule="gpipe", stages=4,
    micro=16, latency_ms=10)`` returns the picture, and ``.table(...)`` the order of operations as
    text; both work without a notebook. Raises ValueError for an unknown schedule.
    """
    start: dict[str, Any] = {"schedule": schedule, "stages": stages, "micro": micro}
    start |= {"latency_ms": latency_ms, "played": 1.0}

    def model(**at: Any) -> PipelinePicture:
        plans = pipeline_plans(at["schedule"], at["stages"], _fitting(at))
        parts = 2 if at["schedule"] == "interleaved" else 1  # chunks of a rank's layers
        trace = pipeline_time(
            plans,
            forward=_seconds(forward) / parts,
            backward=_seconds(backward) / parts,
            link=Link(at["latency_ms"] / 1e3),
        )
        label = f"{at['schedule']}, {at['stages']} stages, {_fitting(at)} micro-batches"
        return pipeline_picture([trace], [label], at["played"])

    view = View(start, model, _draw, lambda model: model.text, PipelinePicture.table)
    return view.show(_controls)


def _fitting(at: dict[str, Any]) -> int:
    """Return the number of micro-batches; round "interleaved" up to a multiple of the stages."""
    micro, stages = int(at["micro"]), int(at["stages"])
    return micro if at["schedule"] != "interleaved" else -(-micro // stages) * stages


def _seconds(duration: str) -> float:
    return duration_ns(duration) / 1e9


def _draw(model: PipelinePicture) -> Figure:
    from ddpkit.view.pipeline.figure import draw_pipeline

    return draw_pipeline(model)


def _controls(view: View[PipelinePicture]) -> Any:
    at = view.start
    return view.live(
        {
            "schedule": choice("Schedule", list(PIPELINES), at["schedule"]),
            "stages": slider("Stages", STAGES, at["stages"], "{:g}".format),
            "micro": slider("Micro-batches", MICRO, at["micro"], "{:g}".format),
            "latency_ms": slider("Latency", LATENCIES_MS, at["latency_ms"], "{:g} ms".format),
            "played": slider("Played", PLAYED, at["played"], "{:.0%}".format),
        }
    )
