"""Controls that several widgets share: sliders and choices, and the sliders of a link. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ddpkit.link import Link

GBITS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 25, 50, 100, 200, 400)
MICROSECONDS = (0, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
RANKS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Control:
    """A control that chooses one of several values; ``words`` has a text for each value."""

    label: str
    values: tuple[Any, ...]
    words: tuple[str, ...]
    at: int  # index of the present value
    kind: str = "slider"  # also "choice", "player"
    pace_ms: int = 0  # time between two steps of a player

    def described(self) -> dict[str, object]:
        """Return the control's data for panel.js: the texts of the values, without the values."""
        return {"label": self.label, "words": [*self.words], "kind": self.kind,
                "pace_ms": self.pace_ms}  # fmt: skip


def slider(label: str, values: Sequence[float], now: float, say: Callable[[float], str]) -> Control:
    """Return a slider over ``values`` that starts at ``now``; ``say`` gives a value's text."""
    row = sorted({*values, now})
    return Control(label, tuple(row), tuple(map(say, row)), row.index(now))


def choice(label: str, values: Sequence[Any], now: Any, say: Callable[[Any], str] = str) -> Control:
    """Return a menu of ``values``, with ``now`` chosen; ``say`` gives a value's text."""
    row = list(dict.fromkeys([*values, now]))
    return Control(label, tuple(row), tuple(map(say, row)), row.index(now), "choice")


def numbers_of(link: Link) -> dict[str, float]:
    """Return a link's bandwidth in Gbit/s and latency in us, by the names of the sliders."""
    return {"gbits": link.bytes_per_s * 8 / 1e9, "us": link.latency_ns / 1e3}


def link_sliders(at: Mapping[str, Any]) -> dict[str, Control]:
    """Return sliders of a link's bandwidth and latency, by the name of the setting."""
    return {
        "gbits": slider("Bandwidth", GBITS, at["gbits"], _bandwidth),
        "us": slider("Latency", MICROSECONDS, at["us"], "{:.4g} us".format),
    }


def _bandwidth(gbits: float) -> str:
    return f"{gbits:.4g} Gbit/s" if gbits < math.inf else "unlimited"
