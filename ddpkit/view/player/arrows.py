"""Straight arrows between boxes; many arrows take hardly longer to draw than few."""

from math import hypot
from typing import Any

from matplotlib.collections import LineCollection, PolyCollection

from ddpkit.view.drawing.page import Page
from ddpkit.view.player.boxes import Line, Point


def draw_arrows(page: Page, lines: list[Line], color: str, linestyle: Any) -> None:
    """Draw straight arrows as two collections, shafts and heads; the more arrows, the thinner."""
    heads = [_head(line) for line in lines]
    shafts = [
        [line[0], between((head[1], head[2]), 0.5)] for line, head in zip(lines, heads, strict=True)
    ]
    width = 1.7 if len(lines) <= 24 else 0.8
    look: dict[str, Any] = {
        "colors": color,
        "linestyles": [linestyle],
        "linewidths": width,
        "zorder": 3,
    }
    page.add(LineCollection(shafts, **look))
    page.add(PolyCollection(heads, facecolors=color, zorder=3.2))


def between(line: Line, part: float) -> Point:
    """Return the point at ``part`` (0 to 1) of a line."""
    (x, y), (to_x, to_y) = line
    return x + (to_x - x) * part, y + (to_y - y) * part


def _head(line: Line) -> list[Point]:
    (x, y), (to_x, to_y) = line
    far = hypot(to_x - x, to_y - y) or 1.0
    long = min(0.13, 0.7 * far)
    wide = 0.42 * long
    dx, dy = (to_x - x) / far, (to_y - y) / far
    back = to_x - dx * long, to_y - dy * long
    return [(to_x, to_y), (back[0] - dy * wide, back[1] + dx * wide),
            (back[0] + dy * wide, back[1] - dx * wide)]  # fmt: skip
