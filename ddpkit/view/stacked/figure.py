"""`draw_stacked`: a stacked bar for each run; the first bar of each group is 100 %."""

from __future__ import annotations

from matplotlib.figure import Figure

from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import EXPOSED, Look
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.drawing.words import ms
from ddpkit.view.stacked.model import PARTS, Stacked, StackedSteps

TOP, BOTTOM, EDGE = 1.12, 0.6, 0.25  # inches
BAR, PITCH, GAP = 0.3, 0.38, 0.2  # inches: a bar, a bar with its gap, the gap between groups
NAMES = 3.6  # inches of the labels, at most
BESIDE = 1.9  # inches right of the longest bar, for its time and the gain

WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}  # a box under words, over the grid

LOOKS: dict[str, tuple[Look, Look]] = {  # looks of a part, and of the word on the part
    "forward": (style.filled(style.FORWARD), {"color": style.INK}),
    "backward": ({"facecolor": style.BACKWARD}, {"color": "white"}),
    "other compute": (style.filled(style.SPAN), {"color": style.INK}),
    "exposed comm": ({**EXPOSED, "linewidth": 0.8}, {"color": style.EXPOSED, "boxed": True}),
    "optimizer": ({"facecolor": style.OPTIMIZER}, {"color": "white"}),
    "copies": ({"facecolor": style.COPY}, {"color": "white"}),
    "idle": (style.filled(style.IDLE), {"color": style.INK}),
}


def draw_stacked(model: StackedSteps) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of bars."""
    groups = len(model.bars) // model.by
    height = len(model.bars) * PITCH + (groups - 1) * GAP
    page = Page(TOP + height + BOTTOM + (0.2 if model.note else 0.0))
    left = EDGE + 0.15 + _longest_name(page, model)
    room = style.WIDTH - left - BESIDE - EDGE
    longest = max((bar.step_ns / bar.base_ns for bar in model.bars if bar.base_ns), default=1.0)
    plot = Plot(page, left, TOP, room, height, 100 * max(1.0, longest))
    plot.axis(plot.ticks(5), grid=True)
    y = 0.0
    for n, bar in enumerate(model.bars):
        y += GAP if n and n % model.by == 0 else 0.0
        _draw_bar(page, plot, bar, y + (PITCH - BAR) / 2, first=n % model.by == 0)
        y += PITCH
    page.write_fitting(EDGE, 0.24, model.title, 14.5, style.WIDTH - 2 * EDGE, bold=True)
    page.write_fitting(EDGE, 0.53, model.notice, 10, style.WIDTH - 2 * EDGE)
    shown = [(PARTS[i], LOOKS[PARTS[i]][0]) for i in model.shown]
    page.legend(shown, EDGE + 0.01, 0.84, style.WIDTH - 2 * EDGE)
    under = "of the first step of each group (%)" if groups > 1 else "of the first step (%)"
    page.write(left + room / 2, TOP + height + 0.42, under, 9, style.GREY, ha="center")
    if model.note:
        room = style.WIDTH - 2 * EDGE
        page.write_fitting(EDGE, page.height - 0.15, model.note, 9, room, color=style.GREY)
    return page.figure


def _longest_name(page: Page, model: StackedSteps) -> float:
    return min(NAMES, max(page.text_width(bar.label, 9.5) for bar in model.bars))


def _draw_bar(page: Page, plot: Plot, bar: Stacked, y: float, *, first: bool) -> None:
    """Draw one bar, its name on the left, and its time and gain on the right."""
    middle = plot.top + y + BAR / 2
    width = page.text_width(bar.label, 9.5)
    points = 9.5 * min(1.0, NAMES / width) if width else 9.5
    page.write(plot.left - 0.1, middle, bar.label, points, ha="right")
    unit, left = bar.base_ns / 100 or 1.0, 0.0
    for part, ns in zip(PARTS, bar.lengths, strict=True):
        look, label = LOOKS[part]
        box = left, y, left + ns / unit, y + BAR
        plot.bars([box] if ns else [], zorder=3, **look)
        plot.label(box, [f"{ns / unit:.0f}%"] if ns else [], 8.5, bold=True, **label)
        left = box[2]
    x = plot.on_page((left, 0, left, 0))[0] + 0.1
    took = ms(bar.step_ns)
    page.write(x, middle, took, 9, style.GREY, bbox=WHITE)
    if not first and bar.change:
        page.write(
            x + page.text_width(took, 9) + 0.1, middle, bar.change, 9.5, bold=True, bbox=WHITE
        )
