"""`draw_progress`: loss, throughput, and the lag of each rank."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import plain
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.words import ms
from ddpkit.view.live_run.model import RunProgress

LEFT, TOP, HIGH = 0.75, 1.2, 1.75  # inches
LOSS, RATE, LAG = 3.7, 2.9, 2.15  # inches: widths of the plots
POINTS = 400  # points of a curve: more could not be told apart


def draw_progress(model: RunProgress) -> Figure:
    """Return a figure of 11 inches width, of the same height at all steps."""
    page = Page(TOP + HIGH + 0.6)
    page.write_fitting(LEFT, 0.24, model.title, 14.5, style.WIDTH - LEFT - 0.2, bold=True)
    page.write(LEFT, 0.53, model.notice, 10)
    loss = _axes(page, LEFT, LOSS, "Loss (thin: each rank)")
    steps = min(map(len, model.losses.values()), default=0)
    for curve in model.losses.values():
        _curve(loss, list(enumerate(curve)), style.EDGE["forward"], 0.8)
    mean = [
        (k, sum(curve[k] for curve in model.losses.values()) / len(model.losses))
        for k in range(steps)
    ]
    _curve(loss, mean, style.BACKWARD, 1.8)
    rate = _axes(page, LEFT + LOSS + 0.7, RATE, "Samples per second")
    _curve(rate, model.rates, style.OPTIMIZER, 1.6)
    rate.set_ylim(bottom=0)
    rate.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
    _lags(page, LEFT + LOSS + RATE + 1.4, model)
    return page.figure


def _axes(page: Page, left: float, width: float, name: str) -> Axes:
    page.write(left, TOP - 0.2, name, 11, bold=True)
    axes = page.axes(left, TOP, width, HIGH)
    plain(axes)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", color=style.GRID, linewidth=0.8)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    page.write(left + width / 2, TOP + HIGH + 0.42, "step", 9, style.GREY, ha="center")
    return axes


def _curve(axes: Axes, points: Sequence[tuple[int, float]], color: str, width: float) -> None:
    points = points[:: -(-len(points) // POINTS) or 1]
    marker = "o" if len(points) == 1 else ""
    steps, values = [k for k, _ in points], [value for _, value in points]
    axes.plot(steps, values, color=color, linewidth=width, marker=marker, markersize=3)


def _lags(page: Page, left: float, model: RunProgress) -> None:
    """Draw a bar for each rank, with the names of as many ranks as there is room for."""
    page.write(left, TOP - 0.2, "Behind the first rank", 11, bold=True)
    most = max(model.lags_ms.values(), default=0.0) or 1.0
    pitch = min(0.24, HIGH / max(1, len(model.lags_ms)))
    every = -(-15 * len(model.lags_ms) // 170) or 1  # names are 0.15 inches high
    boxes = []
    for n, (rank, lag) in enumerate(model.lags_ms.items()):
        y = TOP + pitch * (n + 0.5)
        boxes.append(
            (left + 0.58, y - 0.35 * pitch, left + 0.58 + 1.0 * lag / most, y + 0.35 * pitch)
        )
        if n % every == 0:
            page.write(left, y, f"rank {rank}", 9)
            page.write(left + LAG, y, ms(round(lag * 1e6)), 9, ha="right")
    page.bars(boxes, facecolor=style.EXPOSED, linewidth=0, zorder=2)
