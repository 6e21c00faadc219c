"""`svg_of`: a figure as SVG, sharp at any size, with colours for a light page and for a dark one.

matplotlib's own SVG writer makes files of twice the size, with the colours of one theme. Here each
colour is CSS ``light-dark(a, b)``, and the page's ``color-scheme`` chooses one of the two.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backend_bases import GraphicsContextBase, RendererBase
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from ddpkit.view.drawing import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POINTS = 72  # per inch: the unit of the SVG
LEAST_PX = 9.0  # the smallest letter: a narrower page scrolls the picture sideways
MANY_CELLS = 1000  # a map of more cells becomes an image, one pixel a cell
HALO = 3.0  # points: an outline of letters that is this wide is a halo in the bar's colour
FONTS = f"{style.FONT},Verdana,sans-serif"  # Verdana has the widths of DejaVu Sans
HATCH = 72  # points: the side of a hatching's tile


def svg_of(figure: Figure, alt: str) -> str:
    """Return the figure as an ``<svg>`` element, described by ``alt``, in one line."""
    dpi = figure.dpi
    figure.dpi = POINTS
    try:
        renderer = _Renderer(*(round(float(side) * POINTS, 1) for side in figure.get_size_inches()))
        figure.draw(renderer)
    finally:
        figure.dpi = dpi
    return renderer.element(alt)


class _Renderer(RendererBase):
    """A matplotlib renderer that writes SVG; consecutive paths of the same look become one path."""

    def __init__(self, width: float, height: float) -> None:
        super().__init__()
        self.width, self.height = width, height
        self.smallest = 9.0  # points of the smallest letters so far, or 9
        self._flip = Affine2D().scale(1, -1).translate(0, height)
        self._defs: dict[str, str] = {}
        self._out: list[tuple[str, str]] = []  # (look, data of a path), or ("", an element)
        self._groups: list[str] = []  # matplotlib's groups around the present element
        self._themed = True  # False within a map, where colours stand for numbers
        # box of each fill, and True if the fill is a background, which a dark theme makes dark
        self._grounds: list[tuple[float, float, float, float, bool]] = []

    def element(self, alt: str) -> str:
        """Return the whole ``<svg>`` element."""
        parts, look, data = [], "", list[str]()
        for each, more in [*self._out, ("", "")]:
            if data and each != look:
                parts.append(f"<path {look} d='{''.join(data)}'/>")
                data = []
            look = each
            if each:
                data.append(more)
            else:
                parts.append(more)
        body = f"<defs>{''.join(self._defs.values())}</defs>{''.join(parts)}"
        name = hashlib.sha256(body.encode()).hexdigest()[:8]  # unique on a page
        least = style.WIDTH * POINTS * LEAST_PX / self.smallest * self.width / 792
        return (
            f"<svg xmlns='http://www.w3.org/2000/svg' role='img' aria-label='{_quoted(alt)}' "
            f"viewBox='0 0 {_n(self.width)} {_n(self.height)}' font-family='{FONTS}' "
            f"style='min-width:{least:.0f}px'>{body.replace('ID-', f'p{name}-')}</svg>"
        )

    def open_group(self, s: str, gid: str | None = None) -> None:
        self._groups.append(s)

    def close_group(self, s: str) -> None:
        self._groups.pop()

    def get_canvas_width_height(self) -> tuple[float, float]:
        return self.width, self.height

    def draw_path(
        self, gc: GraphicsContextBase, path: Path, transform: Any, rgbFace: Any = None
    ) -> None:
        placed = (transform + self._flip).transform_path(path)
        data = _data(placed)
        if not data:
            return
        points: Any = placed.vertices
        box = (*points.min(axis=0).tolist(), *points.max(axis=0).tolist())
        # matplotlib draws the letters of a text with a halo as filled paths
        if rgbFace is not None and self._groups[-1:] == ["text"]:
            color = _hex(rgbFace)
            middle = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
            fill, ground = _paint("fill", color, self._ink(color, middle)), None
        else:
            fill, ground = self._fill(gc, rgbFace)
        look = f"{fill} {self._stroke(gc)}{self._clip(gc, box)}".strip()
        if ground is not None:
            self._grounds.append((*box, ground))
        self._out.append((look, data))

    def draw_path_collection(self, *given: Any, **named: Any) -> None:
        """Draw a collection's paths in groups of equal look. The paths do not overlap."""
        before, self._out = self._out, []
        super().draw_path_collection(*given, **named)
        looks = dict.fromkeys(look for look, _ in self._out)
        place = {look: number for number, look in enumerate(looks)}
        self._out = before + sorted(self._out, key=lambda each: place[each[0]])

    def draw_quad_mesh(
        self, gc: Any, master_transform: Any, meshWidth: int, meshHeight: int, coordinates: Any,
        offsets: Any, offsetTrans: Any, facecolors: Any, antialiased: Any, edgecolors: Any,
    ) -> None:  # fmt: skip
        """Draw a map of cells; a map of many cells becomes an image, which the browser enlarges."""
        if meshWidth * meshHeight <= MANY_CELLS:
            self._themed = False
            super().draw_quad_mesh(
                gc, master_transform, meshWidth, meshHeight, coordinates, offsets, offsetTrans,
                facecolors, antialiased, edgecolors,
            )  # fmt: skip
            self._themed = True
            return
        from PIL import Image

        corners = (master_transform + self._flip).transform(coordinates.reshape(-1, 2))
        (left, top), (right, bottom) = corners.min(axis=0), corners.max(axis=0)
        cells = np.round(255 * np.asarray(facecolors)).astype(np.uint8)
        cells = cells.reshape(meshHeight, meshWidth, 4)
        grid = corners.reshape(meshHeight + 1, meshWidth + 1, 2)
        cells = cells[::-1] if grid[0, 0, 1] > grid[-1, 0, 1] else cells
        file = io.BytesIO()
        Image.fromarray(cells).save(file, format="png", optimize=True)
        packed = base64.b64encode(file.getvalue()).decode()
        self._add(
            f"<image x='{_n(left)}' y='{_n(top)}' width='{_n(right - left)}' "
            f"height='{_n(bottom - top)}' preserveAspectRatio='none' "
            f"style='image-rendering:pixelated' href='data:image/png;base64,{packed}'/>"
        )

    def draw_text(
        self, gc: Any, x: float, y: float, s: str, prop: Any, angle: float, ismath: Any = False,
        mtext: Any = None,
    ) -> None:  # fmt: skip
        points = prop.get_size_in_points()
        self.smallest = min(self.smallest, points)
        if ismath:  # matplotlib draws a formula, because its symbols come from several fonts
            super().draw_text(gc, x, y, s, prop, angle, ismath)
            return
        width, high, _ = self.get_text_width_height_descent(s, prop, False)
        color = _hex(gc.get_rgb())
        turned = f" transform='rotate({_n(-angle)} {_n(x)} {_n(y)})'" if angle else ""
        middle = (x, y - width / 2) if angle else (x + width / 2, y - high / 3)
        bold = " font-weight='bold'" if prop.get_weight() == "bold" else ""
        self._add(
            f"<text x='{_n(x)}' y='{_n(y)}' font-size='{_n(points)}'{bold}{turned} "
            f"textLength='{_n(width)}' lengthAdjust='spacingAndGlyphs' "
            f"{_paint('fill', color, self._ink(color, middle))}>{html.escape(s)}</text>"
        )

    def _add(self, element: str) -> None:
        self._out.append(("", element))

    def _ink(self, color: str, at: tuple[float, float]) -> str:
        """Return the colour of a text in a dark theme: unchanged on a bar, changed on a background.

        ``at`` is the middle of the text, in points.
        """
        x, y = at
        for left, top, right, bottom, ground in reversed(self._grounds):
            if left <= x <= right and top <= y <= bottom:
                return style.dark_ink(color) if ground else color
        return style.dark_ink(color)

    def _fill(self, gc: Any, face: Any) -> tuple[str, bool | None]:
        """Return the SVG attribute of a fill, and True if the fill is a background.

        The second value is None for a transparent fill.
        """
        if face is None or (len(face) == 4 and face[3] == 0):
            return "fill='none'", None
        color = _hex(face)
        ground = self._themed and style.is_ground(color)
        if gc.get_hatch() is not None:
            return f"fill='url(#{self._hatching(gc, color)})'", ground
        opacity = gc.get_alpha() if gc.get_forced_alpha() or len(face) == 3 else face[3]
        seen = f" fill-opacity='{_n(opacity)}'" if opacity not in (None, 1.0) else ""
        dark = style.dark_fill(color) if self._themed else color
        return _paint("fill", color, dark) + seen, None if seen else ground

    def _stroke(self, gc: Any) -> str:
        width, rgb = gc.get_linewidth(), gc.get_rgb()
        if not width or (len(rgb) == 4 and rgb[3] == 0):
            return ""
        color = _hex(rgb)
        halo = width >= HALO and self._groups[-1:] == ["text"]
        dark = style.dark_fill(color) if halo else style.dark_line(color)
        offset, dashes = gc.get_dashes()
        dashed = f" stroke-dasharray='{' '.join(map(_n, dashes))}'" if dashes is not None else ""
        dashed += f" stroke-dashoffset='{_n(offset)}'" if dashes is not None and offset else ""
        cap = "" if gc.get_capstyle() == "butt" else f" stroke-linecap='{_cap(gc)}'"
        opacity = gc.get_alpha() if gc.get_forced_alpha() else rgb[3] if len(rgb) == 4 else 1.0
        seen = f" stroke-opacity='{_n(opacity)}'" if opacity not in (None, 1.0) else ""
        return f"{_paint('stroke', color, dark)} stroke-width='{_n(width)}'{dashed}{cap}{seen}"

    def _clip(self, gc: Any, drawn: Sequence[float]) -> str:
        """Return the attribute that clips a path to its axes; "" for a path inside its axes.

        ``drawn`` is the box of the path.
        """
        box = gc.get_clip_rectangle()
        if box is None:
            return ""
        corners = self._flip.transform(box.get_points())
        low, high = np.minimum(*corners), np.maximum(*corners)
        if (drawn[:2] >= low - 0.5).all() and (drawn[2:] <= high + 0.5).all():
            return ""
        x, y, wide, tall = map(_n, (*low, *(high - low)))
        name = f"ID-c{x}-{y}-{wide}-{tall}".replace(".", "_")
        shape = f"<rect x='{x}' y='{y}' width='{wide}' height='{tall}'/>"
        self._defs[name] = f"<clipPath id='{name}'>{shape}</clipPath>"
        return f" clip-path='url(#{name})'"

    def _hatching(self, gc: Any, face: str) -> str:
        """Define a pattern of lines on the colour ``face``, and return the pattern's name."""
        line = _hex(gc.get_hatch_color())
        name = f"ID-h{face[1:]}{line[1:]}{len(gc.get_hatch())}{ord(gc.get_hatch()[0])}"
        to_tile = Affine2D().scale(HATCH, -HATCH).translate(0, HATCH)
        lines = _data(to_tile.transform_path(gc.get_hatch_path()))
        side = f"width='{HATCH}' height='{HATCH}'"
        self._defs[name] = (
            f"<pattern id='{name}' patternUnits='userSpaceOnUse' {side}><rect {side} "
            f"{_paint('fill', face, style.dark_fill(face))}/><path d='{lines}' fill='none' "
            f"{_paint('stroke', line, style.dark_line(line))} "
            f"stroke-width='{_n(gc.get_hatch_linewidth())}'/></pattern>"
        )
        return name


def _paint(what: str, light: str, dark: str) -> str:
    """Return the SVG attribute for a colour, with a style if the dark theme has another colour."""
    if dark.lower() == light:
        return f"{what}='{light}'"
    return f"{what}='{light}' style='{what}:light-dark({light},{dark})'"


def _hex(color: Any) -> str:
    return "#{:02x}{:02x}{:02x}".format(*(round(255 * part) for part in color[:3]))


def _data(path: Path) -> str:
    """Return the ``d`` attribute of a path, in points with one decimal."""
    parts, x, y = list[str](), "", ""
    letters = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
    for numbers, code in path.iter_segments(simplify=False):
        if code == Path.CLOSEPOLY:
            parts.append("Z")
            continue
        said = [f"{number:.1f}".removesuffix(".0") for number in numbers]
        if code == Path.LINETO and said[1] == y:
            parts.append(f"H{said[0]}")
        elif code == Path.LINETO and said[0] == x:
            parts.append(f"V{said[1]}")
        else:
            parts.append(letters[code] + " ".join(said))
        x, y = said[-2:]
    return "".join(parts) if len(parts) > 1 else ""


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _cap(gc: Any) -> str:
    style: str = gc.get_capstyle()
    return "square" if style == "projecting" else style


def _quoted(text: str) -> str:
    return html.escape(" ".join(text.split()))
