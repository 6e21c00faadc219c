"""`Chart`: the ranks' rows of bars over an axis of time, for all pictures with such rows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba

from ddpkit.view.drawing import style
from ddpkit.view.drawing.lanes import Bar
from ddpkit.view.drawing.layout import Extent, RowLayout
from ddpkit.view.drawing.page import Box, Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.drawing.rows import RankRow, is_micro

Look = style.Look
OVERLAP: Look = {
    "facecolor": style.BACKWARD,
    "edgecolor": style.MOVING,
    "hatch": style.OVERLAP_HATCH,
}
EXPOSED: Look = {"facecolor": "white", "edgecolor": style.EXPOSED, "hatch": style.EXPOSED_HATCH}
FACE = {kind: to_rgba(color) for kind, color in style.FACE.items()}  # names of colours draw slowly
EDGE = {kind: to_rgba(color) for kind, color in style.EDGE.items()}
WHITE = to_rgba("white")
LOWEST = 0.13  # inches: a lower bar has no room for a line of text


class Chart:
    """A plot of the ranks' work as rows of bars, over an axis of time in ms."""

    def __init__(
        self, page: Page, left: float, top: float, width: float, height: float, end_ns: int
    ) -> None:
        """Place the plot, in inches; ``end_ns`` is the time at which the last bar ends."""
        self.right = 1.005 * end_ns / 1e6 or 1.0  # a little beyond the last bar
        self.pixel = self.right / (width * style.DPI)  # ms of one pixel
        self.plot = Plot(page, left, top, width, height, self.right)
        self.plot.axis(self.plot.ticks(8), grid=True)

    def row(self, row: RankRow, place: RowLayout, *, compute: bool, comm: bool) -> None:
        """Draw one rank: compute, communication, or both with their overlap."""
        band = 0, place.top, self.right, place.bottom
        self.plot.bars([band], facecolor=style.BAND, zorder=0.2)
        if compute:
            self.bars(row.compute, place.compute)
            self.labels(row.labels, place.compute)
        for lane, where in zip(row.lanes, place.lanes, strict=False):
            self.bars(lane, where)
            self.labels(lane, where)
        if place.copies:
            self.bars(row.copies, place.copies)
            self.labels(row.copies, place.copies)
        for name, where in place.more.items():
            self.bars(row.more[name], where)
            self.labels(row.more[name], where)
        if compute and comm:
            self.hatch(row.overlap, place.overlap, OVERLAP, 0, style.MOVING)
            self.hatch(row.exposed, place.compute, EXPOSED, 0.8, style.EXPOSED_THIN)
            for bar in row.exposed:
                box = _box(bar, place.compute)
                look: Look = {"color": style.EXPOSED, "bold": True, "boxed": True}
                self.plot.label(box, bar.texts, 8, **look)
        if row.died is not None:
            self.death(row.died, (place.top, place.bottom))

    def bars(self, drawn: Sequence[Bar], where: Extent) -> None:
        """Draw the bars of a lane. White edges separate bars that are wide enough for edges."""
        done = [bar for bar in drawn if bar.kind == "done"]
        inset = (where[1] - where[0]) * (1 - style.THIN) / 2
        self._bars(done, (where[0] + inset, where[1] - inset), edgecolors="none", linewidth=0)
        wide, thin = self._by_width([bar for bar in drawn if bar.kind != "done"], 6)
        edges = [EDGE.get(bar.kind, WHITE) for bar in wide]
        line = 0.7 if where[1] - where[0] > LOWEST / 2 else 0.35
        self._bars(wide, where, edgecolors=edges, linewidth=line)
        inset = 0.5 / 72  # inches: bars without edges get the visible height of bars with edges
        self._bars(thin, (where[0] + inset, where[1] - inset), edgecolors="none", linewidth=0)

    def _bars(self, drawn: Sequence[Bar], where: Extent, **look: Any) -> None:
        boxes = [_box(bar, where, 0.6 * self.pixel) for bar in drawn]
        self.plot.bars(boxes, facecolors=[FACE[bar.kind] for bar in drawn], zorder=3, **look)

    def hatch(
        self, drawn: Sequence[Bar], where: Extent, look: Look, line: float, thin_face: str
    ) -> None:
        """Draw hatched bars; narrow bars are plain, because hatching is slow to draw."""
        wide, thin = self._by_width(drawn, 8)
        self.plot.bars([_box(bar, where) for bar in wide], linewidth=line, zorder=3.5, **look)
        boxes = [_box(bar, where, 0.8 * self.pixel) for bar in thin]
        self.plot.bars(boxes, linewidth=0, zorder=3.5, facecolor=thin_face)

    def _by_width(self, drawn: Sequence[Bar], pixels: int) -> tuple[list[Bar], list[Bar]]:
        """Return the bars wider than this number of pixels, and the narrower bars."""
        parted: tuple[list[Bar], list[Bar]] = [], []
        for bar in drawn:
            parted[bar.end - bar.start <= pixels * 1e6 * self.pixel].append(bar)
        return parted

    def labels(self, drawn: Iterable[Bar], where: Extent) -> None:
        """Write on each bar the first of the bar's texts that fits."""
        if where[1] - where[0] < LOWEST:
            return
        for bar in drawn:
            if bar.texts:
                # a label of several bars may lie over the edges between the bars
                halo = style.FACE[bar.kind] if bar.count > 1 else ""
                look = {"color": style.LABEL[bar.kind], "halo": halo}
                self.plot.label(_box(bar, where), bar.texts, 8, **look)

    def death(self, ns: int, where: Extent) -> None:
        """Draw a line at the time when a rank died, and a grey area after the line."""
        at = ns / 1e6
        rest = at, where[0], self.right, where[1]
        self.plot.bars([rest], facecolor=style.IDLE, linewidth=0, zorder=3.6)
        line = (at, where[0]), (at, where[1])
        self.plot.lines([line], colors=style.INK, linewidths=2.2, zorder=5)
        self.plot.label(rest, ("died",), 8.5, color=style.INK)

    def end(self, ns: int, where: Extent) -> None:
        """Draw a line at the end of a step."""
        at = ns / 1e6
        line = (at, where[0]), (at, where[1])
        self.plot.lines([line], colors=style.INK, linewidths=1.4, zorder=5)


def _box(bar: Bar, where: Extent, least: float = 0.0) -> Box:
    start, end = bar.start / 1e6, bar.end / 1e6
    return start, where[0], max(end, start + least), where[1]


def plain(axes: Axes) -> None:
    """Remove the frame of the axes except the bottom line, which becomes grey."""
    axes.spines[["left", "right", "top"]].set_visible(False)
    axes.spines["bottom"].set_color(style.GREY)
    axes.tick_params(colors=style.GREY, labelsize=9, labelfontfamily=style.FONT)
    axes.set_axisbelow(True)


def kinds(rows: Sequence[RankRow], *, compute: bool) -> Iterator[tuple[str, Look]]:
    """Yield a legend entry for each kind of bar that these rows have."""
    words_of = {
        "F0": "forward: faint",
        "B0": "backward: full",
        "W0": "weights",
        "forward": "forward",
        "backward": "backward",
        "optimizer": "optimizer",
        "span": "your own code",
        "moving": "communication",
        "waiting": "waiting for a peer",
        "done": "done",
        "copy": "copy",
        "host": "host",
    }
    present = {bar.kind for row in rows for bar in (*row.compute, *row.copies)}
    present |= {bar.kind for row in rows for bars in row.more.values() for bar in bars}
    present |= {bar.kind for row in rows for lane in row.lanes for bar in lane}
    if any(map(is_micro, present)):  # micro-batches have no legend: the bars carry their names
        present = {f"{kind[0]}0" if is_micro(kind) else kind for kind in present}
        present -= {"forward", "backward"}
    for kind, word in words_of.items():
        if kind in present:
            edge = style.EDGE.get(kind, "none")
            yield word, {"facecolor": style.FACE[kind], "edgecolor": edge, "linewidth": 0.8}
    if compute and any(row.overlap for row in rows):
        yield "overlap", {**OVERLAP, "linewidth": 0}
    if compute and any(row.exposed for row in rows):
        yield "exposed comm", {**EXPOSED, "linewidth": 0.8}
