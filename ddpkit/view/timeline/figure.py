"""`draw_timeline`: a static figure with a row for each rank, and the parts of the rank's time."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from ddpkit.view.drawing import style
from ddpkit.view.drawing.breakdown import draw_parts, panel, part_kinds, write_numbers
from ddpkit.view.drawing.chart import Chart, kinds
from ddpkit.view.drawing.layout import LEFT, MIDDLE, PANEL, RIGHT, Heights, RowLayout, lay_out
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.drawing.rows import RankRow
from ddpkit.view.timeline.memory_figure import GAP, HIGH, draw_memory
from ddpkit.view.timeline.model import Timeline

TOP, BOTTOM = 1.08, 0.54


def draw_timeline(model: Timeline) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of ranks."""
    if not (model.has_compute or model.has_comm):
        return draw_words(model.title, model.headline)
    compute, comm = model.has_compute, model.has_comm
    rows = list(lay_out(model.rows, Heights.of(len(model.rows)), compute=compute, comm=comm))
    height = rows[-1].bottom + 0.04
    track = 0.0 if model.memory is None else GAP + HIGH
    page = Page(TOP + height + track + BOTTOM + (0.2 if model.note else 0.0))
    chart = Chart(page, LEFT, TOP, MIDDLE, height, model.length_ns)
    shares = panel(page, TOP, height, end=100)
    shares.axis((0, 50, 100), ("0", "50", "100%"))
    for row, place in zip(model.rows, rows, strict=True):
        chart.row(row, place, compute=compute, comm=comm)
        if model.whole == "step" and row.window[1]:
            chart.end(row.window[1], (place.top, place.bottom))
        write_names(page, TOP, model, row, place)
        write_numbers(page, TOP + place.header, row, model.whole, compute=compute)
        draw_parts(shares, place.bar, row.breakdown, percent=True)
    _arrows(chart.plot, model, rows)
    if model.memory is not None:
        draw_memory(page, model.memory, TOP + height + GAP, MIDDLE, chart.right)
    under = f"time since the first rank began the {model.whole} (ms)", f"share of the {model.whole}"
    write_headings(page, model.rows, model.title, model.headline, model.whole, model.note,
                   compute=compute, under=under)  # fmt: skip
    return page.figure


def draw_words(title: str, finding: str) -> Figure:
    """Return a figure of two lines of text, for a trace with nothing to draw."""
    page = Page(1.0)
    page.write_fitting(0.2, 0.3, title, 14, style.WIDTH - 0.4, bold=True)
    page.write_fitting(0.2, 0.65, finding, 10, style.WIDTH - 0.4)
    return page.figure


def write_names(page: Page, top: float, model: Timeline, row: RankRow, place: RowLayout) -> None:
    """Write the names of a rank and its lanes left of the row; ``top`` is the chart's top."""
    comm = (place.lanes[0][0], place.lanes[-1][1]) if place.lanes else (place.top, place.bottom)
    y = top + sum(place.compute if model.has_compute else comm) / 2
    points = 11 if len(model.rows) <= 8 else 9.5
    wide = max(page.text_width(each.name, points, bold=True) for each in model.rows)
    points *= min(1.0, 0.58 / wide)  # the longest name fits; all names have one size
    page.write_fitting(0.62, y, row.name, points, 0.58, bold=True, ha="right")
    if model.has_compute:
        page.write(LEFT - 0.08, y, "compute", 8.5, style.GREY, ha="right")
    if place.lanes:
        page.write(LEFT - 0.08, top + sum(comm) / 2, "comm", 8.5, style.GREY, ha="right")
    if place.copies:
        page.write(LEFT - 0.08, top + sum(place.copies) / 2, "copy", 8.5, style.GREY, ha="right")
    for name, where in place.more.items():
        page.write(LEFT - 0.08, top + sum(where) / 2, name, 8.5, style.GREY, ha="right")


def _arrows(plot: Plot, model: Timeline, rows: list[RowLayout]) -> None:
    """Draw each message from its send to the end of its recv, as in a space-time diagram."""
    lines = []
    for message in model.messages:
        (rank, start), (to, end) = message.source, message.target
        if rank < to:
            y, to_y = rows[rank].bottom, rows[to].top
        else:
            y, to_y = rows[rank].top, rows[to].bottom
        lines.append(((start / 1e6, y), (end / 1e6, to_y)))
    plot.lines(lines, linewidths=0.9, colors=style.ARROW, zorder=2.5)
    if lines:  # lanes hide the arrows behind them: hide the arrows between the lanes too
        for row, place in zip(model.rows, rows, strict=True):
            for lane, above, below in zip(row.lanes, place.lanes, place.lanes[1:], strict=False):
                solid = [bar for bar in lane if bar.kind != "done"]
                gaps = [(bar.start / 1e6, above[1], bar.end / 1e6, below[0]) for bar in solid]
                plot.bars(gaps, facecolor=style.BAND, linewidth=0, zorder=2.7)
    plot.dots([end for _, end in lines], markersize=3.4, color=style.ARROW, zorder=5)


def write_headings(
    page: Page,
    rows: Sequence[RankRow],
    title: str,
    finding: str,
    whole: str,
    note: str,
    *,
    compute: bool,
    under: tuple[str, str],
) -> None:
    """Write the title, the finding, the legends and the note; ``under`` names the two axes."""
    page.write_fitting(LEFT, 0.24, title, 14.5, MIDDLE, bold=True)
    page.write_fitting(LEFT, 0.53, finding, 10, MIDDLE)
    page.legend(kinds(rows, compute=compute), LEFT + 0.01, 0.84, MIDDLE)
    went = "step" if whole == "step" else "time"
    page.write(PANEL, 0.24, f"Where the {went} went", 11, bold=True)
    page.legend(
        part_kinds([row.breakdown for row in rows], compute=compute), PANEL + 0.01, 0.53, RIGHT
    )
    bottom = page.height - (0.37 if note else 0.17)
    if note:
        room = PANEL + RIGHT - LEFT
        page.write_fitting(LEFT, page.height - 0.15, note, 9, room, color=style.GREY)
    page.write(LEFT + MIDDLE / 2, bottom, under[0], 9, style.GREY, ha="center")
    page.write(PANEL + RIGHT / 2, bottom, under[1], 9, style.GREY, ha="center")
