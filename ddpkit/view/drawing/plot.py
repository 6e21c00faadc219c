"""`Plot`: a part of a page with its own horizontal scale; vertical positions are in inches."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Box, Page

Point = tuple[float, float]
NAMES = 0.15  # inches from the line down to the names of ticks


class Plot:
    """A part of a page with a horizontal scale: 0 at the left edge, ``end`` at the right edge."""

    def __init__(
        self, page: Page, left: float, top: float, width: float, height: float, end: float
    ) -> None:
        """Place the plot, in inches; the horizontal scale goes from 0 to ``end``."""
        self.page, self.end = page, end
        self.left, self.top, self.width, self.height = left, top, width, height
        self.scale = np.array([width / end, 1.0])  # inches per unit, across and down
        self.origin = np.array([left, top])

    def on_page(self, box: Box) -> Box:
        (left, right), (top, bottom) = box[::2], box[1::2]
        at = self.width / self.end
        return self.left + at * left, self.top + top, self.left + at * right, self.top + bottom

    def bars(self, boxes: Sequence[Box], **look: Any) -> None:
        if len(boxes):
            corners = np.asarray(boxes, float).reshape(-1, 2, 2) * self.scale + self.origin
            self.page.bars(corners.reshape(-1, 4), **look)

    def label(self, box: Box, texts: Sequence[str], points: float, **more: Any) -> bool:
        return self.page.label(self.on_page(box), texts, points, **more)

    def lines(self, lines: Sequence[tuple[Point, Point]], **look: Any) -> None:
        if len(lines):
            self.page.add(LineCollection(np.asarray(lines) * self.scale + self.origin, **look))

    def dots(self, points: Sequence[Point], **look: Any) -> None:
        if len(points):
            placed = np.asarray(points) * self.scale + self.origin
            self.page.add(Line2D(*placed.T, linestyle="", marker="o", **look))

    def ticks(self, most: int) -> list[float]:
        """Return round values on the scale, with at most ``most`` intervals between them."""
        values = MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]).tick_values(0, self.end)
        return [float(value) for value in values if 0 <= value <= self.end]

    def axis(
        self, ticks: Sequence[float], names: Sequence[str] = (), *, grid: bool = False
    ) -> None:
        """Draw a grey axis at the bottom, with ticks; without ``names``, the ticks show numbers."""
        low = self.height
        self.lines([((0, low), (self.end, low))], colors=style.GREY, linewidths=0.8, zorder=2)
        marks = [((tick, low), (tick, low + 0.05)) for tick in ticks]
        self.lines(marks, colors=style.GREY, linewidths=0.8, zorder=2)
        if grid:
            lines = [((tick, 0), (tick, low)) for tick in ticks]
            self.lines(lines, colors=style.GRID, linewidths=0.8, zorder=0.5)
        for tick, name in zip(ticks, names or in_figures(ticks), strict=True):
            x, y = self.left + tick * self.width / self.end, self.top + low + NAMES
            self.page.write(x, y, name, 9, style.GREY, ha="center")


def in_figures(values: Sequence[float]) -> list[str]:
    """Return values as texts with equal numbers of decimals.

    ``in_figures([0, 2.5, 5]) == ["0.0", "2.5", "5.0"]``
    """
    decimals = max((len(f"{v:.6f}".rstrip("0").split(".")[1]) for v in values), default=0)
    return [f"{value:,.{decimals}f}" for value in values]
