"""The parts of each rank's time as a bar: beside a timeline, or alone."""

from collections.abc import Iterator, Sequence

from ddpkit.trace import Breakdown
from ddpkit.view.drawing import style, words
from ddpkit.view.drawing.chart import EXPOSED, OVERLAP, Look
from ddpkit.view.drawing.layout import PANEL, RIGHT, Extent
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.drawing.rows import RankRow


def panel(page: Page, top: float, height: float, end: float) -> Plot:
    """Return an empty plot to the right of a timeline, with a scale from 0 to ``end``.

    ``top`` and ``height`` are in inches.
    """
    return Plot(page, PANEL, top, RIGHT, height, end)


def draw_parts(plot: Plot, bar: Extent, parts: Breakdown, *, percent: bool) -> None:
    """Draw the parts of one rank's time as a bar, in percent of the rank's step or in ms."""
    unit, left = (parts.step_ns / 100 or 1.0) if percent else 1e6, 0.0
    for ns, look, label in _looks(parts):
        box = left, bar[0], left + ns / unit, bar[1]
        plot.bars([box] if ns else [], zorder=3, **look)
        said = f"{ns / unit:.0f}%" if percent else words.ms(ns)
        plot.label(box, [said], 8.5, bold=True, **label)
        left = box[2]


def _looks(parts: Breakdown) -> Iterator[tuple[int, Look, Look]]:
    """Yield the ns of each part of the time, the look of its bar, and the look of its label."""
    yield parts.compute_only_ns, {"facecolor": style.BACKWARD}, {"color": "white"}
    yield parts.overlapped_ns, {**OVERLAP, "linewidth": 0.8}, {"boxed": True}
    exposed = {"color": style.EXPOSED, "boxed": True}
    yield parts.exposed_ns, {**EXPOSED, "linewidth": 0.8}, exposed
    yield parts.copy_ns, {"facecolor": style.COPY}, {"color": "white"}
    yield parts.idle_ns, style.filled(style.IDLE), {}


def write_numbers(page: Page, y: float, row: RankRow, whole: str, *, compute: bool) -> None:
    """Write the length of a rank's step or run, and the hidden communication or the waits.

    The line stands above the bar of the parts of the rank's time. The second number is left out if
    there is no room for the number.
    """
    p = row.breakdown
    length = f"{whole} {words.ms(p.step_ns)}"
    page.write(PANEL, y, length, 8.5)
    texts: tuple[str, ...] = ()
    if p.hidden is not None and compute:
        hidden = words.percent(p.overlapped_ns, p.comm_ns)
        texts = f"{hidden} of comm hidden", f"{hidden} hidden"
    elif row.waiting_ns:
        waiting = words.ms(row.waiting_ns)
        texts = f"{waiting} waiting for peers", f"{waiting} waiting"
    room = RIGHT - page.text_width(length, 8.5) - 0.08
    for text in [text for text in texts if page.text_width(text, 8.5) <= room][:1]:
        page.write(PANEL + RIGHT, y, text, 8.5, ha="right")


def part_kinds(parts: Sequence[Breakdown], *, compute: bool) -> Iterator[tuple[str, Look]]:
    """Yield the legend's entries: the parts of time that at least one rank has, and idle time."""
    if compute:
        yield "compute", {"facecolor": style.BACKWARD}
    if any(each.overlapped_ns for each in parts):
        yield "overlap", {**OVERLAP, "linewidth": 0}
    if any(each.exposed_ns for each in parts):
        yield "exposed", {**EXPOSED, "linewidth": 0.8}
    if any(each.copy_ns for each in parts):
        yield "copy", {"facecolor": style.COPY}
    yield "idle", style.filled(style.IDLE)
