"""A figure measured in inches from its top left corner, and text that is known to fit.

Object API and Agg canvas only: no pyplot, so no window, no global figure, and nothing shown twice.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke

from ddpkit.view import style

Box = tuple[float, float, float, float]  # left, top, right, bottom, in units of the axes


class Page:
    """A figure and its measures, all in inches."""

    def __init__(self, height: float, width: float = style.WIDTH) -> None:
        self.width, self.height = width, height
        self.figure = Figure((width, height), dpi=style.DPI, facecolor="white")
        self.canvas = FigureCanvasAgg(self.figure)
        self.paper = self.axes(0, 0, width, height)  # for everything outside the plots
        self.paper.set(xlim=(0, width), ylim=(height, 0))
        self.paper.axis("off")
        self.paper.set_zorder(1)  # above the plots

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        box = left / self.width, 1 - (top + height) / self.height
        return self.figure.add_axes((*box, width / self.width, height / self.height))

    def text_width(self, text: str, points: float, *, bold: bool = False) -> float:
        return _width(text, points, bold)

    def write(
        self, x: float, y: float, text: str, points: float, color: str = style.INK, **more: Any
    ) -> None:
        """A line of text, its middle at y. ``bold=True`` and ``ha`` as in matplotlib."""
        font = _font(points, more.pop("bold", False))
        self.paper.text(x, y, text, color=color, fontproperties=font, va="center_baseline", **more)

    def write_fitting(
        self, x: float, y: float, text: str, points: float, room: float, **more: Any
    ) -> None:
        """As `write`, in smaller type if the line would be longer than ``room``."""
        width = self.text_width(text, points, bold=more.get("bold", False))
        self.write(x, y, text, points * min(1.0, room / width), **more)

    def label(self, axes: Axes, box: Box, texts: Sequence[str], points: float, **more: Any) -> bool:
        """Write the first text that fits into the box of ``axes``, if any does; say whether.

        The last text is tried once more in slightly smaller type.
        """
        bold = more.pop("bold", False)
        left, right = (axes.transData.transform((x, 0))[0] / style.DPI for x in (box[0], box[2]))
        middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
        sizes = [(text, points) for text in texts] + [(text, points - 1.2) for text in texts[-1:]]
        for text, size in sizes:
            if self.text_width(text, size, bold=bold) + 0.03 <= right - left:
                _put(axes, middle, text, _font(size, bold), **more)
                return True
        return False

    def legend(
        self, entries: Iterable[tuple[str, dict[str, Any]]], x: float, y: float, room: float
    ) -> None:
        """Swatches and words in one line; in two, if the type would have to be very small."""
        entries = list(entries)
        widths = [self.text_width(text, 9) + 0.36 for text, _ in entries]
        scale = min(1.0, room / (sum(widths) - 0.16))
        columns = len(entries)
        if scale < 0.85:
            columns = (columns + 1) // 2
            widths = [max(widths)] * len(entries)
            scale = min(1.0, room / (columns * max(widths)))
        at = x
        for n, ((text, look), width) in enumerate(zip(entries, widths, strict=True)):
            if n == columns:
                at, y = x, y + 0.21
            swatch = Rectangle((at, y - 0.05 * scale), 0.14 * scale, 0.1 * scale, **look)
            self.paper.add_patch(swatch)
            self.write(at + 0.19 * scale, y, text, 9 * scale)
            at += width * scale


def bars(axes: Axes, boxes: Sequence[Box], **look: Any) -> None:
    """Many rectangles as one collection: one matplotlib object each would take seconds."""
    if len(boxes):
        corners: Any = np.asarray(boxes)[:, [0, 1, 0, 3, 2, 3, 2, 1]].reshape(-1, 4, 2)
        axes.add_collection(PolyCollection(corners, **look), autolim=False)


def _put(
    axes: Axes,
    at: tuple[float, float],
    text: str,
    font: FontProperties,
    *,
    color: str = style.INK,
    halo: str = "",
    boxed: bool = False,
) -> None:
    """Text on a bar. A halo in the bar's colour parts it from edges, a white box from hatching."""
    written = axes.text(
        *at, text, color=color, fontproperties=font, ha="center", va="center_baseline", clip_on=True
    )
    written.set_zorder(6)
    if halo:
        written.set_path_effects([withStroke(linewidth=3, foreground=halo)])
    if boxed:
        written.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.2})


@lru_cache(maxsize=4096)  # the same words come again in every redraw
def _width(text: str, points: float, bold: bool) -> float:
    width, _, _ = _renderer().get_text_width_height_descent(text, _font(points, bold), False)
    return float(width / style.DPI)


@lru_cache(maxsize=1)
def _renderer() -> Any:
    return FigureCanvasAgg(Figure((1, 1), dpi=style.DPI)).get_renderer()  # type: ignore[no-untyped-call]


def _font(points: float, bold: bool) -> FontProperties:
    return FontProperties(family=style.FONT, size=points, weight="bold" if bold else "normal")
