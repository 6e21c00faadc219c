"""`draw_plan`: a column for each number of ranks, a row for each batch; darker cells cost more."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.plan.model import PlanCell, PlanMap, _short

LEFT, TOP, WIDE, ROW = 0.95, 1.6, 9.85, 0.46  # inches
LATE = "#ececec"
DARK = 0.6  # a shade from 0 to 1: text on darker cells is white
KEY = "Each cell: hours, dollars. Thick frame: cheapest in time; dashed: fastest; grey: too late"


def draw_plan(model: PlanMap) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of batches."""
    high = ROW * len(model.rows)
    page = Page(TOP + high + 0.62)
    for y, text, points in ((0.24, model.title, 14.5), (0.53, model.text, 10)):
        page.write_fitting(0.2, y, text, points, style.WIDTH - 0.4, bold=points > 12)
    page.write_fitting(0.2, 0.8, model.notice, 10, style.WIDTH - 0.4)
    page.write_fitting(LEFT, TOP - 0.42, KEY, 9, WIDE, color=style.GREY)
    axes = page.axes(LEFT, TOP, WIDE, high)
    plain(axes)
    axes.set(xlim=(0, len(model.rows[0])), ylim=(len(model.rows), 0), xticks=(), yticks=())
    shades = _cells(axes, model)
    _deadline(axes, model)
    wide = WIDE / len(model.rows[0])
    for i, row in enumerate(model.rows):
        y = TOP + ROW * (i + 0.5)
        page.write(LEFT - 0.1, y, f"{row[0].batch:,}", 9, bold=True, ha="right")
        for k, cell in enumerate(row):
            x = LEFT + wide * k
            _numbers(page, (x, y, wide), cell, model, shades[i, k])
    for k, cell in enumerate(model.rows[0]):
        x = LEFT + wide * (k + 0.5)
        page.write(x, TOP + high + 0.17, f"{cell.ranks:,}", 9, bold=True, ha="center")
    page.write(LEFT + WIDE / 2, TOP + high + 0.42, "ranks", 9, style.GREY, ha="center")
    page.write(LEFT - 0.1, TOP - 0.14, "batch a rank", 9, style.GREY, ha="right")
    return page.figure


def _cells(axes: Axes, model: PlanMap) -> "np.ndarray[tuple[int, int], np.dtype[np.float64]]":
    """Draw the cells and frames, and return the darkness of each cell, from 0 to 1."""
    dollars = np.array([[max(cell.dollars, 1e-9) for cell in row] for row in model.rows])
    late = np.array([[cell.hours > model.deadline for cell in row] for row in model.rows])
    norm = LogNorm(dollars.min(), max(dollars.max(), dollars.min() * 1.01))
    colors = LinearSegmentedColormap.from_list("dollars", ["white", style.BACKWARD])
    shown = np.ma.masked_where(late, dollars)
    axes.pcolormesh(
        shown, cmap=colors.with_extremes(bad=LATE), norm=norm, edgecolors="white", linewidth=1.2
    )
    for cell, dashes in ((model.fastest, (0, (4, 2))), (model.cheapest, "solid")):
        if cell is None:
            continue
        (at,) = [(k, i) for i, row in enumerate(model.rows) for k, c in enumerate(row) if c == cell]
        thick = 1.6 if cell is model.fastest else 2.6
        frame: style.Look = {
            "fill": False,
            "edgecolor": style.INK,
            "linewidth": thick,
            "linestyle": dashes,
        }
        axes.add_patch(Rectangle(at, 1, 1, clip_on=False, zorder=5, **frame))
    return np.where(late, 0.0, np.asarray(norm(dollars)))


def _deadline(axes: Axes, model: PlanMap) -> None:
    """Draw the border between the plans that meet the deadline and the plans that miss it."""
    late = np.array([[cell.hours > model.deadline for cell in row] for row in model.rows])
    beside = [
        ((k, i), (k, i + 1)) for i, k in zip(*np.nonzero(late[:, 1:] != late[:, :-1]), strict=True)
    ]
    below = [((k, i), (k + 1, i)) for i, k in zip(*np.nonzero(late[1:] != late[:-1]), strict=True)]
    edges = [[(x + 1, y) for x, y in edge] for edge in beside]
    edges += [[(x, y + 1) for x, y in edge] for edge in below]
    axes.add_collection(LineCollection(edges, colors=style.EXPOSED, linewidths=1.8, zorder=4))


def _numbers(
    page: Page, at: tuple[float, float, float], cell: PlanCell, model: PlanMap, shade: float
) -> None:
    x, y, wide = at
    late = cell.hours > model.deadline
    color = style.GREY if late else "white" if shade > DARK else style.INK
    for move, text in ((-0.09, f"{_short(cell.hours)} h"), (0.1, f"$ {_short(cell.dollars)}")):
        page.label((x, y + move - 0.1, x + wide, y + move + 0.1), [text], 8, color=color)
