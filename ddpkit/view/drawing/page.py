"""`Page`: a figure measured in inches from its top left corner, with text that fits.

The module uses matplotlib's object API and the Agg canvas, and not pyplot. So it opens no window,
makes no global figure, and no notebook shows a figure twice.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Affine2D, Transform

from ddpkit.view.drawing import style

Box = tuple[float, float, float, float]  # left, top, right, bottom


class Page:
    """A figure that is measured in inches from the top left corner.

    Bars and words lie on the figure itself: matplotlib's `Axes`, with ticks and spines, would take
    a third of a drawing's time. Only curves and maps have `Axes`.
    """

    def __init__(self, height: float, width: float = style.WIDTH) -> None:
        self.width, self.height = width, height
        self.figure = Figure((width, height), dpi=style.DPI, facecolor="white")
        self.canvas = FigureCanvasAgg(self.figure)
        down = Affine2D().scale(1, -1).translate(0, height)
        self.inches = down + self.figure.dpi_scale_trans

    def axes(self, left: float, top: float, width: float, height: float) -> Axes:
        box = left / self.width, 1 - (top + height) / self.height
        return self.figure.add_axes((*box, width / self.width, height / self.height))

    def add(self, artist: Artist) -> None:
        """Add an artist measured in inches."""
        artist.set_transform(self.inches)
        self.figure.add_artist(artist)

    def bars(self, boxes: Sequence[Box] | np.ndarray, **look: Any) -> None:
        """Draw rectangles as one collection: an object for each rectangle would take seconds."""
        if len(boxes):
            size = Affine2D().scale(1, -1) + self.figure.dpi_scale_trans
            self.figure.add_artist(_Boxes(np.asarray(boxes, float), self.inches, size, look))

    def text_width(self, text: str, points: float, *, bold: bool = False) -> float:
        return _width(text, points, bold)

    def write(
        self, x: float, y: float, text: str, points: float, color: str = style.INK, **more: Any
    ) -> None:
        """Write a line of text, vertically centred at y; ``more``: ``bold`` and text options."""
        font = _font(points, more.pop("bold", False))
        more |= {"color": color, "fontproperties": font, "va": "center_baseline"}
        self.figure.text(x, y, text, transform=self.inches, **more)

    def write_fitting(
        self, x: float, y: float, text: str, points: float, room: float, **more: Any
    ) -> None:
        """Write a line as `write` does, in smaller type if it would be longer than ``room``."""
        bold = more.get("bold", False)
        points *= min(1.0, room / self.text_width(text, points, bold=bold))
        while self.text_width(text, points, bold=bold) > room:
            points *= 0.99  # letters are rounded to pixels, so small type is relatively wide
        self.write(x, y, text, points, **more)

    def label(self, box: Box, texts: Sequence[str], points: float, **more: Any) -> bool:
        """Write the first text that fits into the box, and return True if a text fits.

        The last text is tried once more in slightly smaller type. ``halo=color`` separates the text
        from edges behind it; ``boxed=True`` separates the text from hatching by a white box.
        """
        bold = more.get("bold", False)
        sizes = [(text, points) for text in texts] + [(text, points - 0.8) for text in texts[-1:]]
        for text, size in sizes:
            if self.text_width(text, size, bold=bold) + 0.03 <= box[2] - box[0]:
                middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
                self.write(*middle, text, size, ha="center", zorder=6, **_parted(**more))
                return True
        return False

    def legend(
        self, entries: Iterable[tuple[str, style.Look]], x: float, y: float, room: float
    ) -> None:
        """Draw swatches and words in one line, or in two if one line would need very small type."""
        entries = list(entries)
        widths = [self.text_width(text, 9) + 0.36 for text, _ in entries]
        scale = min(1.0, room / (sum(widths) - 0.16))
        columns = len(entries)
        if scale < 0.85:
            columns = (columns + 1) // 2
            widths = [max(widths)] * len(entries)
            scale = min(1.0, room / (columns * max(widths)))
            y -= 0.05  # keeps both lines clear of the text above and the plot below
        at = x
        for n, ((text, look), width) in enumerate(zip(entries, widths, strict=True)):
            if n == columns:
                at, y = x, y + 0.17
            swatch = Rectangle((at, y - 0.05 * scale), 0.14 * scale, 0.1 * scale, **look)
            self.add(swatch)
            self.write(at + 0.19 * scale, y, text, 9 * scale)
            at += width * scale


class _Boxes(Collection):
    """Rectangles, drawn as one unit square with a matrix for each rectangle.

    A path for each rectangle would take twice as long.
    """

    def __init__(
        self, boxes: np.ndarray, inches: Transform, size: Transform, look: style.Look
    ) -> None:
        """Keep the boxes; ``inches`` maps points of the page to pixels, ``size`` maps sizes."""
        corners: Any = boxes[:, :2]
        super().__init__(offsets=corners, offset_transform=inches, **look)
        self._paths = [Path.unit_rectangle()]
        # matplotlib keeps the transforms of a collection in an array of this shape
        self._transforms = np.zeros((len(boxes), 3, 3))
        self._transforms[:, [0, 1], [0, 1]] = boxes[:, 2:] - boxes[:, :2]
        self._transforms[:, 2, 2] = 1
        self.set_transform(size)


def _parted(*, halo: str = "", boxed: bool = False, **more: Any) -> style.Look:
    """Return matplotlib's keyword arguments for a label, with its halo or its white box."""
    if halo:
        more["path_effects"] = [withStroke(linewidth=3, foreground=halo)]
    if boxed:
        more["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 1.2}
    return more


@lru_cache(maxsize=4096)  # every redraw measures the same words
def _width(text: str, points: float, bold: bool) -> float:
    width, _, _ = _renderer().get_text_width_height_descent(text, _font(points, bold), False)
    return float(width / style.DPI)


@lru_cache(maxsize=1)
def _renderer() -> Any:
    return FigureCanvasAgg(Figure((1, 1), dpi=style.DPI)).get_renderer()  # type: ignore[no-untyped-call]


@lru_cache(maxsize=256)
def _font(points: float, bold: bool) -> FontProperties:
    return FontProperties(family=style.FONT, size=points, weight="bold" if bold else "normal")
