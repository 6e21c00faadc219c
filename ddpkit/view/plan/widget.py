"""`explore_plan`: the hours and dollars of a training, by ranks and batch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ddpkit.text import prose
from ddpkit.view.drawing.shell import View
from ddpkit.view.drawing.sliders import slider
from ddpkit.view.plan.model import BATCHES, WORLDS, PlanMap, StepSeconds, plan_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEADLINES = (1, 2, 5, 10, 20, 24, 50, 100, 200, 500, 1000)
NOISES = (0, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000)
DOLLARS = (0.5, 1, 2, 3, 5)


def explore_plan(
    step_seconds: StepSeconds,
    noise: float,
    least_steps: float = 40_000,
    worlds: Sequence[int] = WORLDS,
    batches: Sequence[int] = BATCHES,
    dollars: float = 2.0,
    deadline: float = 24.0,
) -> View[PlanMap]:
    """Show the cheapest cluster that meets a deadline.

    ``step_seconds(ranks, batch)`` is the time of a step, in s, with ``batch`` samples on each rank.
    With n ranks and b samples on each, the training has least_steps · (1 + noise / (n·b)) steps.
    A rank costs ``dollars`` an hour; the deadline is in hours. In a notebook, sliders change the
    settings. ``explore_plan(...).figure(deadline=5, noise=1000, dollars=2)`` returns the picture,
    and ``.table(...)`` all plans as text; both work without a notebook. Raises ValueError without
    ranks, batches or a deadline.
    """
    seconds = lru_cache(None)(step_seconds)  # no slider changes the time of a step
    start = {"deadline": deadline, "noise": noise, "dollars": dollars}

    def model(**at: Any) -> PlanMap:
        return plan_map(
            seconds, at["noise"], least_steps, worlds, batches, at["dollars"], at["deadline"]
        )

    return View(start, model, _draw, _describe, PlanMap.table).show(_controls)


def _draw(model: PlanMap) -> Figure:
    from ddpkit.view.plan.figure import draw_plan

    return draw_plan(model)


def _describe(model: PlanMap) -> str:
    return prose(f"{model.title}.", model.text, model.notice)


def _controls(view: View[PlanMap]) -> Any:
    at = view.start
    return view.live(
        {
            "deadline": slider("Deadline", DEADLINES, at["deadline"], "{:g} h".format),
            "noise": slider("Noise scale", NOISES, at["noise"], "{:g}".format),
            "dollars": slider("Price of a rank", DOLLARS, at["dollars"], "{:g} dollars/h".format),
        }
    )
