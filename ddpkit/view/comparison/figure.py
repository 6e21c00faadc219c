"""`draw_comparison`: several runs, one under the other, on one axis of time."""

from matplotlib.figure import Figure

from ddpkit.view.comparison.model import Comparison, Side
from ddpkit.view.drawing import style
from ddpkit.view.drawing.breakdown import draw_parts, panel, write_numbers
from ddpkit.view.drawing.chart import Chart
from ddpkit.view.drawing.layout import LEFT, MIDDLE, Heights, RowLayout, lay_out
from ddpkit.view.drawing.page import Page
from ddpkit.view.timeline.figure import draw_words, write_headings, write_names

TOP, BOTTOM, HEAD = 1.12, 0.54, 0.27  # inches; the head of each run is a line of text


def draw_comparison(model: Comparison) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of runs and ranks."""
    if not any(side.timeline.has_compute or side.timeline.has_comm for side in model.sides):
        return draw_words(model.title, model.notice)
    rows = _layouts(model)
    height = rows[-1][-1].bottom + 0.04
    page = Page(TOP + height + BOTTOM + (0.2 if model.note else 0.0))
    chart = Chart(page, LEFT, TOP, MIDDLE, height, model.length_ns)
    beside = panel(page, TOP, height, model.length_ns * 1.005 / 1e6 or 1.0)
    beside.axis(beside.ticks(4))
    for side, at in zip(model.sides, rows, strict=True):
        head = 0, at[0].top - HEAD, chart.right, at[0].top - 0.01
        chart.plot.bars([head], facecolor="white", zorder=1)  # hides the grid behind words
        _head(page, model, side, TOP + at[0].top - 0.13)
        timeline = side.timeline
        for row, place in zip(timeline.rows, at, strict=True):
            chart.row(row, place, compute=timeline.has_compute, comm=timeline.has_comm)
            chart.end(row.window[1], (place.top, place.bottom))
            write_names(page, TOP, timeline, row, place)
            write_numbers(page, TOP + place.header, row, model.whole, compute=timeline.has_compute)
            draw_parts(beside, place.bar, row.breakdown, percent=False)
    shown = [row for side in model.sides for row in side.timeline.rows]
    compute = any(side.timeline.has_compute for side in model.sides)
    under = f"time since each {model.whole} began (ms)", "ms"
    write_headings(page, shown, model.title, model.notice, model.whole, model.note,
                   compute=compute, under=under)  # fmt: skip
    return page.figure


def _layouts(model: Comparison) -> list[list[RowLayout]]:
    high = Heights.of(sum(len(side.timeline.rows) for side in model.sides))
    found: list[list[RowLayout]] = []
    top = HEAD - 0.04
    for side in model.sides:
        timeline = side.timeline
        compute, comm = timeline.has_compute, timeline.has_comm
        found.append(list(lay_out(timeline.rows, high, compute=compute, comm=comm, top=top)))
        top = found[-1][-1].bottom + 0.1 + HEAD
    return found


def _head(page: Page, model: Comparison, side: Side, y: float) -> None:
    """Write the run's label, its title, and its length compared with the first run."""
    first = model.sides[0]
    page.write(LEFT, y, side.label, 10, bold=True)
    left, right = LEFT + page.text_width(side.label, 10, bold=True) + 0.14, LEFT + MIDDLE
    whats = [f"{side.timeline.title}. {side.timeline.note}".rstrip(". "), side.timeline.title]
    what = whats[1 if model.note else 0]
    if side is not first:
        ratio = model.against_first(side)
        full, short = f"{ratio} {first.label}", ratio.removesuffix(" than")
        wide = page.text_width(what, 8.5) + 0.14 + page.text_width(full, 9.5, bold=True)
        against = full if left + wide < right else short
        page.write(right, y, against, 9.5, bold=True, ha="right")
        right -= page.text_width(against, 9.5, bold=True) + 0.14
    room = 0.96 * (right - left)  # letters are wider in a picture of few pixels
    for text in [text for text in (what, whats[1]) if page.text_width(text, 7) < room][:1]:
        page.write_fitting(left, y, text, 8.5, room, color=style.GREY)
