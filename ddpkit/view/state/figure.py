"""`draw_state`: a bar of bytes for each stage, with a colour for each kind of state."""

from matplotlib.figure import Figure

from ddpkit.text import size
from ddpkit.view.drawing import style
from ddpkit.view.drawing.page import Box, Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.state.model import SHARED, StateBar, StateModel
from ddpkit.view.timeline.memory_figure import COLOR

LEFT, TOP, WIDE, ROW, BAR = 1.75, 1.35, 7.9, 0.5, 0.3  # inches
PANEL = LEFT + WIDE + 0.15
TICK = 0.07  # inches by which the mark of the least bytes extends above and below the bar


def draw_state(model: StateModel) -> Figure:
    """Return a figure of 11 inches width."""
    high = ROW * len(model.bars)
    page = Page(TOP + high + 0.55)
    lines = (0.24, model.title, 14.5), (0.53, model.text, 10), (0.79, model.notice, 10)
    for y, text, points in lines:
        page.write_fitting(0.2, y, text, points, style.WIDTH - 0.4, bold=points > 12)
    most = max(bar.total for bar in model.bars)
    plot = Plot(page, LEFT, TOP, WIDE, high, 1.02 * most / 1e9)
    _legend(page, model, drawn=model.memory <= most)
    plot.axis(plot.ticks(8), grid=True)
    page.write(PANEL, TOP + high + 0.15, "GB", 9, style.GREY)
    if model.memory <= most:
        at = model.memory / 1e9
        plot.lines([((at, -0.04), (at, high))], colors=style.INK, linewidths=1.4, zorder=5)
    for place, bar in enumerate(model.bars):
        _bar(page, plot, bar, ROW * place + ROW / 2)
    return page.figure


def _legend(page: Page, model: StateModel, *, drawn: bool) -> None:
    """Draw the legend: the colours, the line of the memory, and the mark of the least bytes."""
    entries = [(kind, {"facecolor": COLOR[kind], "linewidth": 0}) for kind in model.bars[0].by_kind]
    grey = {"facecolor": style.GREY, "linewidth": 0}
    entries.append(("grey mark: left on any number of ranks", grey))
    black = {"facecolor": style.INK, "linewidth": 0}
    where = "" if drawn else ", beyond the right edge"
    entries.append((f"black line: memory of a rank, {size(model.memory)}{where}", black))
    page.legend(entries, LEFT, TOP - 0.22, style.WIDTH - LEFT - 0.2)


def _bar(page: Page, plot: Plot, bar: StateBar, middle: float) -> None:
    """Draw one stage: the name, a bar of the kinds of state, and the bytes."""
    y = plot.top + middle
    page.write(LEFT - 0.12, y - 0.09, f"stage {bar.stage}", 10, bold=True, ha="right")
    page.write(LEFT - 0.12, y + 0.09, SHARED[bar.stage], 8, style.GREY, ha="right")
    low, top, bottom = 0.0, middle - BAR / 2, middle + BAR / 2
    plot.bars([(0, top, plot.end, bottom)], facecolor=style.BAND, zorder=0.2)
    for kind, nbytes in bar.by_kind.items():
        if not nbytes:
            continue
        box: Box = (low, top, low + nbytes / 1e9, bottom)
        plot.bars([box], facecolor=COLOR[kind], linewidth=0, zorder=3)
        plot.label(
            box, [f"{kind} {size(nbytes)}", size(nbytes)], 8, color=style.ink_on(COLOR[kind])
        )
        low = box[2]
    mark = bar.least / 1e9
    ends = (mark, top - TICK), (mark, bottom + TICK)
    plot.lines([ends], colors=style.GREY, linewidths=2.2, zorder=4)
    page.write(PANEL, y, size(bar.total), 11, bold=True)
