"""`explore_state`: the bytes of state on each rank, and the rank's memory."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ddpkit.text import prose
from ddpkit.view.drawing.shell import View
from ddpkit.view.drawing.sliders import RANKS, slider
from ddpkit.view.state.model import StateBytes, StateModel, state_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BILLIONS = (0.125, 0.35, 1.5, 7.5, 13, 70, 175, 405, 1000)
GIGABYTES = (16, 24, 40, 80, 141, 192)  # memory sizes of GPUs on the market


def explore_state(
    state_bytes: StateBytes, billions: float = 7.5, ranks: int = 64, gigabytes: float = 80
) -> View[StateModel]:
    """Show the bytes on a rank in each stage of ZeRO, and the stages that fit into its memory.

    ``state_bytes(parameters, ranks, stage)``, the function of lab 13, returns the bytes on a rank
    in a stage from 0 to 3. ``billions`` is the number of parameters in billions, ``gigabytes`` the
    memory of a rank in units of 1e9 bytes. In a notebook, sliders change the settings.
    ``explore_state(...).figure(ranks=8, billions=70, gigabytes=80)`` returns the picture, and
    ``.table(...)`` all bars as text; both work without a notebook. Raises ValueError without
    parameters or ranks.
    """
    counted = lru_cache(None)(state_bytes)
    start = {"ranks": ranks, "billions": billions, "gigabytes": gigabytes}

    def model(**at: Any) -> StateModel:
        parameters, memory = round(at["billions"] * 1e9), round(at["gigabytes"] * 1e9)
        return state_model(counted, parameters, at["ranks"], memory)

    return View(start, model, _draw, _describe, StateModel.table).show(_controls)


def _draw(model: StateModel) -> Figure:
    from ddpkit.view.state.figure import draw_state

    return draw_state(model)


def _describe(model: StateModel) -> str:
    return prose(f"{model.title}.", model.text, model.notice)


def _controls(view: View[StateModel]) -> Any:
    at = view.start
    return view.live(
        {
            "ranks": slider("Ranks", (1, *RANKS), at["ranks"], "{:g}".format),
            "billions": slider("Parameters", BILLIONS, at["billions"], "{:g} billion".format),
            "gigabytes": slider("Memory", GIGABYTES, at["gigabytes"], "{:g} GB".format),
        }
    )
