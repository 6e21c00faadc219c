"""`draw_held`: a line of bytes for each run, a dashed limit, a cross where memory ran out."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from ddpkit.text import size
from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.held.model import HeldPicture, Line

LEFT, TOP, WIDE, HIGH, BOTTOM = 0.86, 1.05, 9.84, 2.5, 0.62  # inches
ROW = 0.2  # a line of the legend
LOOKS: tuple[tuple[str, Any], ...] = (  # lines differ in their dashes too; each is dark on white
    (style.BACKWARD, "solid"),
    (style.EXPOSED, (0, (5, 1.5))),
    (style.COPY, (0, (1.5, 1))),
    ("#00785A", (0, (6, 1.5, 1.5, 1.5))),
    (style.INK, (0, (3, 1, 1, 1, 1, 1))),
    (style.ARROW, (0, (8, 2))),
)


def draw_held(model: HeldPicture) -> Figure:
    """Return a figure of 11 inches width, with a line of words for each run."""
    top = TOP + ROW * len(model.lines)
    page = Page(top + HIGH + BOTTOM)
    room = style.WIDTH - LEFT - 0.3
    page.write_fitting(LEFT, 0.24, model.title, 14.5, room, bold=True)
    page.write_fitting(LEFT, 0.53, model.finding, 10, room)
    unit, scale = ("GB", 1e9) if _most(model) >= 2e9 else ("MB", 1e6)
    axes = _axes(page, model, top, scale)
    for number, line in enumerate(model.lines):
        color, dashes = LOOKS[number]
        look: style.Look = {"color": color, "linestyle": dashes, "linewidth": 1.8}
        _line(axes, line, look, scale)
        y = 0.85 + ROW * number
        page.add(Line2D([LEFT, LEFT + 0.5], [y, y], **look))
        page.write_fitting(LEFT + 0.6, y, model.words(line), 9.5, room - 0.6)
    if model.limit is not None:
        axes.axhline(model.limit / scale, color=style.INK, linewidth=1.2, linestyle=(0, (6, 4)))
        said = f"limit {size(round(model.limit))}"
        axes.text(1.0, model.limit / scale, said, fontsize=9, color=style.INK, ha="right",
                  va="bottom", family=style.FONT, transform=axes.get_yaxis_transform())  # fmt: skip
    page.write(LEFT + WIDE / 2, top + HIGH + 0.42, "ms", 9, style.ARROW, ha="center")
    page.write(LEFT - 0.1, top - 0.14, unit, 9, style.ARROW, ha="right")
    return page.figure


def _most(model: HeldPicture) -> float:
    return max(1.0, model.limit or 0, *(line.most[1] for line in model.lines))


def _axes(page: Page, model: HeldPicture, top: float, scale: float) -> Axes:
    axes = page.axes(LEFT, top, WIDE, HIGH)
    plain(axes)
    end = max(line.end_ns for line in model.lines) or 1
    axes.set(xlim=(0, 1.01 * end / 1e6), ylim=(0, 1.12 * _most(model) / scale))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=style.GRID, linewidth=0.8)
    return axes


def _line(axes: Axes, line: Line, look: style.Look, scale: float) -> None:
    x, y = zip(*line.corners, strict=True)
    axes.plot([ns / 1e6 for ns in x], [nbytes / scale for nbytes in y], zorder=3, **look)
    if line.out_of_memory:
        at = x[-1] / 1e6, y[-1] / scale
        mark: style.Look = {"marker": "x", "markersize": 11, "markeredgewidth": 2.6}
        axes.plot(*at, color=look["color"], clip_on=False, zorder=5, **mark)
