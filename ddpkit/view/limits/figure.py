"""`draw_limits`: a line of exposed shares for each network, and a vertical mark at each limit."""

from __future__ import annotations

import math
from typing import Any

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.limits.model import LimitsPicture

LEFT, TOP, WIDE, HIGH, BOTTOM = 0.86, 0.92, 9.84, 2.5, 0.62  # inches
ROW = 0.2  # a line of the legend
LOOKS: tuple[tuple[str, Any, str], ...] = (  # lines differ in dashes and marks too
    (style.BACKWARD, "solid", "o"),
    (style.EXPOSED, (0, (5, 1.5)), "s"),
    (style.COPY, (0, (1.5, 1)), "^"),
    ("#00785A", (0, (6, 1.5, 1.5, 1.5)), "D"),
    (style.INK, (0, (3, 1, 1, 1, 1, 1)), "v"),
)


def draw_limits(model: LimitsPicture) -> Figure:
    """Return a figure of 11 inches width, with a line of words for each network."""
    top = TOP + ROW * len(model.lines)
    page = Page(top + HIGH + BOTTOM)
    room = style.WIDTH - LEFT - 0.3
    page.write_fitting(LEFT, 0.24, model.title, 14.5, room, bold=True)
    page.write_fitting(LEFT, 0.53, model.finding, 10, room)
    axes = page.axes(LEFT, top, WIDE, HIGH)
    plain(axes)
    most = max(line.tokens[-1] for line in model.lines)
    axes.set(xlim=(0, 1.03 * most), ylim=(0, 1.03))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:.0%}"))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=style.GRID, linewidth=0.8)
    for number, line in enumerate(model.lines):
        color, dashes, marker = LOOKS[number]
        look: style.Look = {
            "color": color, "linestyle": dashes, "linewidth": 1.8, "marker": marker,
        }  # fmt: skip
        axes.plot(line.tokens, line.shares, zorder=3, markersize=5, **look)
        if line.limit is not None and not math.isinf(line.limit) and line.limit <= 1.03 * most:
            axes.axvline(line.limit, color=color, linestyle=dashes, linewidth=1.2)
        y = 0.85 + ROW * number
        page.add(Line2D([LEFT, LEFT + 0.5], [y, y], markersize=5, **look))
        page.write_fitting(LEFT + 0.6, y, line.words, 9.5, room - 0.6)
    said = "tokens of a rank; vertical lines: limits by the formula"
    page.write(LEFT + WIDE / 2, top + HIGH + 0.42, said, 9, style.ARROW, ha="center")
    return page.figure
