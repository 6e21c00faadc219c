"""`draw_roof`: dots for operations under a sloped and a flat roof, on logarithmic axes."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.roof.model import LIMITS, RoofPicture

LEFT, TOP, WIDE, HIGH, BOTTOM = 0.95, 1.25, 9.6, 2.9, 0.66  # inches
LOOKS = {  # limits differ in their marks too; each colour is dark on white
    "arithmetic": (style.BACKWARD, "o"),
    "memory": (style.EXPOSED, "s"),
    "launches": (style.INK, "^"),
}


def draw_roof(model: RoofPicture) -> Figure:
    """Return a figure of 11 inches width; a dot's area grows with the time of its operations."""
    page = Page(TOP + HIGH + BOTTOM)
    room = style.WIDTH - LEFT - 0.3
    page.write_fitting(LEFT, 0.24, model.title, 14.5, room, bold=True)
    page.write_fitting(LEFT, 0.53, model.finding, 10, room)
    axes = page.axes(LEFT, TOP, WIDE, HIGH)
    plain(axes)
    low = min([model.ridge / 10, *(dot.intensity / 2 for dot in model.dots)])
    high = max([model.ridge * 10, *(dot.intensity * 2 for dot in model.dots)])
    bottom = min([low * model.bandwidth, *(dot.rate / 2 for dot in model.dots)]) / 1e12
    axes.set(xscale="log", yscale="log", xlim=(low, high), ylim=(bottom, 3 * model.flops / 1e12))
    roofs = ([low, model.ridge, high], [low * model.bandwidth, model.flops, model.flops])
    axes.plot(roofs[0], [each / 1e12 for each in roofs[1]], color=style.INK, linewidth=1.8)
    axes.grid(color=style.GRID, linewidth=0.8)
    axes.minorticks_off()
    longest = max((dot.seconds for dot in model.dots), default=1.0)
    for name, (color, marker) in LOOKS.items():
        dots = [dot for dot in model.dots if dot.limit == name]
        look: style.Look = {"color": color, "marker": marker, "edgecolor": "white"}
        axes.scatter(
            [dot.intensity for dot in dots],
            [dot.rate / 1e12 for dot in dots],
            [30 + 170 * dot.seconds / longest for dot in dots],
            zorder=3,
            **look,
        )
    _legend(page, model)
    page.write(LEFT + WIDE / 2, TOP + HIGH + 0.44, "FLOPs a byte", 9, style.ARROW, ha="center")
    page.write(LEFT - 0.1, TOP - 0.14, "TFLOP/s", 9, style.ARROW, ha="right")
    return page.figure


def _legend(page: Page, model: RoofPicture) -> None:
    x = LEFT
    for name in LIMITS:
        color, marker = LOOKS[name]
        page.add(Line2D([x + 0.1], [0.88], color=color, marker=marker, markersize=8))
        said = f"{name}: {model.shares[name]:.0%} of the time"
        page.write(x + 0.26, 0.88, said, 9.5)
        x += 0.56 + page.text_width(said, 9.5)
