"""The sliders that several widgets have: of a link, of ranks, of any row of numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ddpkit.link import Link

GBITS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 25, 50, 100, 200, 400)
MICROSECONDS = (0, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
ROOM = {"description_width": "100px"}  # of a label: "micro-batches" fits
RANKS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)


def slider(label: str, values: Sequence[float], now: float, say: Callable[[float], str]) -> Any:
    """A slider over values and the present one; redraws when it is let go. The keys work on it."""
    import ipywidgets

    options = [(say(value), value) for value in sorted({*values, now})]
    return ipywidgets.SelectionSlider(
        options=options, value=now, description=label, continuous_update=False, style=ROOM
    )


def choice(label: str, values: Sequence[str], now: str) -> Any:
    """A list of words to choose from, and the present one."""
    import ipywidgets

    options = list(dict.fromkeys([*values, now]))
    return ipywidgets.Dropdown(options=options, value=now, description=label, style=ROOM)


def numbers_of(link: Link) -> dict[str, float]:
    """A link as its sliders have it."""
    return {"gbits": link.bytes_per_s * 8 / 1e9, "us": link.latency_ns / 1e3}


def link_sliders(at: Mapping[str, Any]) -> dict[str, Any]:
    """Sliders of a link's bandwidth and latency, by the name of the setting."""
    return {
        "gbits": slider("bandwidth", GBITS, at["gbits"], _bandwidth),
        "us": slider("latency", MICROSECONDS, at["us"], "{:.4g} us".format),
    }


def _bandwidth(gbits: float) -> str:
    return f"{gbits:.4g} Gbit/s" if gbits < math.inf else "unlimited"
