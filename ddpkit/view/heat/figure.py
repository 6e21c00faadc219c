"""`draw_heat`: a row for each rank, a column for each step; darker cells took longer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.words import ms
from ddpkit.view.heat.model import Heat

LEFT, WIDE, GAP = 0.8, 4.72, 0.4  # inches: margin with names, width of a map, gap between two maps
TOP, BOTTOM = 1.2, 0.62
EDGED = 60  # columns: with more columns, white edges would hide the cells


@dataclass(frozen=True, slots=True)
class Scale:
    """The times drawn in white (``low``) and in the darkest colour (``high`` or more), in ns."""

    low: float
    high: float
    color: str
    capped: bool  # True if some time is above ``high``

    @property
    def colors(self) -> LinearSegmentedColormap:
        return LinearSegmentedColormap.from_list("heat", ["white", self.color])


def draw_heat(model: Heat) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of ranks."""
    ranks = len(model.took)
    height = ranks * (0.34 if ranks <= 8 else max(0.06, min(0.24, 5.0 / ranks)))
    page = Page(TOP + height + BOTTOM + (0.15 if model.note else 0.0))
    page.write_fitting(LEFT, 0.24, model.title, 14.5, style.WIDTH - LEFT - 0.2, bold=True)
    page.write_fitting(LEFT, 0.53, model.notice, 10, style.WIDTH - LEFT - 0.2)
    maps = ("Step time", model.took, _around(model)), ("Lost waiting", model.waited, _from_0(model))
    for n, (name, rows, scale) in enumerate(maps):
        left = LEFT + n * (WIDE + GAP)
        axes = _cells(page, left, height, rows, scale)
        _heading(page, left, name, scale)
        _names(page, axes, ranks, height, model.ranks if n == 0 else ())
        steps = "step" if model.group == 1 else f"steps, the longest of each {model.group}"
        page.write(left + WIDE / 2, TOP + height + 0.4, steps, 9, style.GREY, ha="center")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: str(round(x) * model.group)))
    if model.note:
        page.write_fitting(
            LEFT, page.height - 0.14, model.note, 9, 2 * WIDE + GAP, color=style.GREY
        )
    return page.figure


def _around(model: Heat) -> Scale:
    """Return a scale of step times: a long step stands out, a few percent more do not."""
    typical, every = model.typical_ns or 1.0, [ns for row in model.took for ns in row]
    high = max(1.1 * typical, min(max(every), 2 * typical))
    return Scale(min(0.9 * typical, min(every)), high, style.BACKWARD, max(every) > high)


def _from_0(model: Heat) -> Scale:
    typical, most = model.typical_ns or 1.0, max(max(row, default=0) for row in model.waited)
    high = max(0.1 * typical, min(most, typical))
    return Scale(0.0, high, style.EXPOSED, most > high)


def _cells(
    page: Page, left: float, height: float, rows: Sequence[Sequence[int]], scale: Scale
) -> Axes:
    columns = max(map(len, rows))
    axes = page.axes(left, TOP, WIDE, height)
    plain(axes)
    axes.set(xlim=(-0.5, columns - 0.5), ylim=(len(rows) - 0.5, -0.5), yticks=())
    cells = np.full((len(rows), columns), np.nan)  # cells without a step stay empty
    for rank, row in enumerate(rows):
        cells[rank, : len(row)] = row
    edge: style.Look = {"edgecolors": "white", "linewidth": 1.2} if columns <= EDGED else {}
    axes.pcolormesh(
        np.arange(columns + 1) - 0.5, np.arange(len(rows) + 1) - 0.5, np.ma.masked_invalid(cells),
        cmap=scale.colors, vmin=scale.low, vmax=scale.high, **edge,
    )  # fmt: skip
    axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
    _numbers(page, left, height, rows, scale)
    return axes


def _numbers(
    page: Page, left: float, height: float, rows: Sequence[Sequence[int]], scale: Scale
) -> None:
    """Write the times in ms, if the cells are large enough for most numbers."""
    columns, high = max(map(len, rows)), height / len(rows)
    if columns > 20 or high < 0.16:
        return
    wide = WIDE / columns
    for rank, row in enumerate(rows):
        for k, ns in enumerate(row):
            dark = ns > scale.low + 0.8 * (scale.high - scale.low)
            x, y = left + wide * k, TOP + high * rank
            box = x, y, x + wide, y + high
            said = ms(ns).removesuffix(" ms") if ns else ""
            page.label(box, [said], 8, color="white" if dark else style.INK)


def _heading(page: Page, left: float, name: str, scale: Scale) -> None:
    """Write the map's name, and the times that stand for white and for the darkest colour."""
    y = TOP - 0.2
    page.write(left, y, f"{name} (ms)", 11, bold=True)
    least, most = (ms(round(ns)) for ns in (scale.low, scale.high))
    most = f"{most} or more" if scale.capped else most
    right = left + WIDE
    page.write(right, y, most, 8.5, ha="right")
    bar = right - page.text_width(most, 8.5) - 1.1, y - 0.06
    axes = page.axes(bar[0], bar[1], 1.0, 0.12)
    axes.pcolormesh(np.linspace(0, 1, 65), [0, 1], np.linspace(0, 1, 64)[None], cmap=scale.colors)
    axes.set(xticks=(), yticks=())
    axes.spines[:].set_color(style.IDLE)
    page.write(bar[0] - 0.08, y, least, 8.5, ha="right")


def _names(page: Page, axes: Axes, rows: int, height: float, ranks: Sequence[int]) -> None:
    """Write the names of as many ranks as there is room for; none if there are no ``ranks``."""
    axes.tick_params(axis="x", length=2)
    pitch = height / rows
    every = max(1, -(-rows * 15 // 100) if pitch < 0.15 else 1)
    for row, rank in list(enumerate(ranks))[::every]:
        y = TOP + pitch * (row + 0.5)
        page.write(LEFT - 0.1, y, f"rank {rank}", 9, bold=True, ha="right")
