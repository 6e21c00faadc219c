"""A rank's row of the timeline, small: the same bars and colours, in any place of a page."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ddpkit.view import style
from ddpkit.view.lanes import Bar
from ddpkit.view.model import Row
from ddpkit.view.page import Box, Page, bars
from ddpkit.view.timeline import EXPOSED, OVERLAP

COMPUTE, COMM = 0.36, 0.3  # inches
HEIGHT = COMPUTE + 0.1 + COMM


@dataclass(frozen=True, slots=True)
class Strip:
    """Axes in ms and inches, and the page they are on."""

    page: Page
    axes: Axes
    pixel: float  # ms

    @classmethod
    def on(
        cls, page: Page, left: float, top: float, width: float, height: float, end_ms: float
    ) -> "Strip":
        """An empty one, with its axis of time."""
        axes = page.axes(left, top, width, height)
        axes.set(xlim=(0, end_ms), ylim=(height, 0), yticks=(), facecolor="none")
        plain(axes)
        axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 2.5, 5, 10]))
        axes.grid(axis="x", color=style.GRID, linewidth=0.8, zorder=0.5)
        return cls(page, axes, end_ms / (width * style.DPI))

    def row(self, row: Row, lane: list[Bar], top: float = 0.0) -> None:
        """Compute, what overlaps, and one lane of communication."""
        right = self.axes.get_xlim()[1]
        bars(self.axes, [(0, top, right, top + HEIGHT)], facecolor=style.BAND, zorder=0.2)
        compute = top, top + COMPUTE
        self.bars(row.compute, compute)
        self.labels(row.labels, compute)
        self.hatch(row.overlap, (top + COMPUTE + 0.02, top + COMPUTE + 0.08), OVERLAP, 0)
        self.hatch(row.exposed, compute, EXPOSED, 0.8)
        for bar in row.exposed:
            look: dict[str, Any] = {"color": style.EXPOSED, "bold": True, "boxed": True}
            self.page.label(self.axes, _box(bar, compute), bar.texts, 8, **look)
        comm = top + COMPUTE + 0.1, top + HEIGHT
        self.bars(lane, comm)
        self.labels(lane, comm)

    def bars(self, drawn: list[Bar], where: tuple[float, float]) -> None:
        """White edges part neighbours that are wide enough for edges."""
        for edged in (True, False):
            chosen = [bar for bar in drawn if (bar.end - bar.start > 6e6 * self.pixel) == edged]
            boxes = [_box(bar, where, 0.6 * self.pixel) for bar in chosen]
            faces = [style.FACE[bar.kind] for bar in chosen]
            edge, width = ("white", 0.7) if edged else ("none", 0)
            bars(self.axes, boxes, facecolors=faces, edgecolors=edge, linewidth=width, zorder=3)

    def hatch(
        self, drawn: list[Bar], where: tuple[float, float], look: dict[str, Any], line: float
    ) -> None:
        """Plain where no hatching could be seen."""
        wide = [bar for bar in drawn if bar.end - bar.start > 4e6 * self.pixel]
        narrow = [_box(bar, where, self.pixel) for bar in drawn if bar not in wide]
        bars(self.axes, [_box(bar, where) for bar in wide], linewidth=line, zorder=3.5, **look)
        bars(self.axes, narrow, linewidth=0, zorder=3.5, facecolor=look["edgecolor"])

    def labels(self, drawn: list[Bar], where: tuple[float, float]) -> None:
        for bar in drawn:
            if bar.texts:
                color, face = style.LABEL[bar.kind], style.FACE[bar.kind]
                box = _box(bar, where)
                self.page.label(self.axes, box, bar.texts, 8, color=color, halo=face)


def plain(axes: Axes) -> None:
    """No frame but the axis below, in grey."""
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(style.GREY)
    axes.tick_params(colors=style.GREY, labelsize=9, labelfontfamily=style.FONT)
    axes.set_axisbelow(True)


def _box(bar: Bar, where: tuple[float, float], least: float = 0.0) -> Box:
    start, end = bar.start / 1e6, bar.end / 1e6
    return start, where[0], max(end, start + least), where[1]
