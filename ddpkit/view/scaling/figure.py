"""`draw_scaling`: the efficiency over ranks, and the parts of the two steps."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from ddpkit.simulate import Scaled
from ddpkit.text import count
from ddpkit.view.drawing import style
from ddpkit.view.drawing.breakdown import draw_parts, part_kinds
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.drawing.words import ms
from ddpkit.view.scaling.model import GOOD, Scaling

LEFT, TOP, WIDE, HIGH = 0.86, 1.7, 4.6, 1.75  # inches
KEY = TOP - 0.22  # the place of the legends
BARS, LONG = LEFT + WIDE + 0.75, 4.4
LOOK = {  # looks of the two curves, which differ in markers and dashes too
    "the batch grows (weak)": (style.BACKWARD, "o", "solid"),
    "the batch is shared (strong)": (style.EXPOSED, "s", (0, (4, 2))),
}


def draw_scaling(model: Scaling) -> Figure:
    """Return a figure of 11 inches width, of the same height for all settings."""
    page = Page(TOP + HIGH + 0.62)
    for y, text, points in ((0.24, model.title, 14.5), (0.53, model.text, 10)):
        page.write_fitting(0.2, y, text, points, style.WIDTH - 0.4, bold=points > 12)
    page.write_fitting(0.2, 0.8, model.notice, 10, style.WIDTH - 0.4)
    page.write(LEFT, TOP - 0.52, "Efficiency: speed-up ÷ ranks", 11, bold=True)
    axes = _axes(page, model)
    x = LEFT
    for (name, look), some in zip(LOOK.items(), (model.weak, model.strong), strict=True):
        _curve(axes, some, model.at, look)
        x = _entry(page, x, name, look) + 0.2
    _steps(page, model)
    return page.figure


def _axes(page: Page, model: Scaling) -> Axes:
    axes = page.axes(LEFT, TOP, WIDE, HIGH)
    plain(axes)
    worlds = [each.world_size for each in model.weak]
    axes.set(xscale="log", xlim=(worlds[0] / 1.15, worlds[-1] * 1.15), ylim=(0, 1.06))
    axes.set_xticks([n for n in worlds if n.bit_count() == 1])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks((0, 0.2, 0.4, 0.6, GOOD, 1))
    axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=style.GRID, linewidth=0.8)
    axes.axvline(model.ranks, color=style.INK, linewidth=1.2, zorder=1.5)
    page.write(LEFT + WIDE / 2, TOP + HIGH + 0.42, "ranks", 9, style.GREY, ha="center")
    return axes


def _curve(axes: Axes, some: tuple[Scaled, ...], at: int, look: tuple[Any, ...]) -> None:
    color, marker, dashes = look
    points = [(each.world_size, each.efficiency) for each in some]
    free: style.Look = {"color": color, "marker": marker, "clip_on": False, "zorder": 3}
    axes.plot(*zip(*points, strict=True), linestyle=dashes, markersize=3, linewidth=1.8, **free)
    axes.plot(*points[at], markersize=8, **free)


def _entry(page: Page, x: float, name: str, look: tuple[Any, ...]) -> float:
    """Write a curve's name above the plot, and return the right end of the name, in inches."""
    color, marker, dashes = look
    line: style.Look = {"color": color, "linewidth": 1.8, "linestyle": dashes}
    page.add(Line2D([x, x + 0.34], [KEY, KEY], **line))
    page.add(Line2D([x + 0.17], [KEY], color=color, marker=marker, markersize=5))
    page.write(x + 0.41, KEY, name, 9)
    return x + 0.41 + page.text_width(name, 9)


def _steps(page: Page, model: Scaling) -> None:
    """Draw the parts of the step with weak and with strong scaling, on the chosen ranks."""
    page.write(BARS, TOP - 0.52, f"The step on {count(model.ranks, 'rank')}", 11, bold=True)
    pair = model.weak[model.at], model.strong[model.at]
    plot = Plot(page, BARS, TOP, LONG, HIGH, max(x.replay.step_ns for x in pair) / 1e6)
    plot.axis(plot.ticks(6))
    parts = [each.replay.trace(1).breakdown()[0] for each in pair]
    for n, (name, each) in enumerate(zip(LOOK, pair, strict=True)):
        top = 0.26 + 0.78 * n
        said = f"{name}: {ms(each.replay.step_ns)}, {each.speed_up:,.3g}× the samples of one rank"
        page.write_fitting(BARS, plot.top + top - 0.12, said, 9, LONG)
        draw_parts(plot, (top, top + 0.34), parts[n], percent=False)
    page.legend(part_kinds(parts, compute=True), BARS + 0.01, KEY, LONG)
    page.write(BARS + LONG / 2, TOP + HIGH + 0.42, "ms", 9, style.GREY, ha="center")
