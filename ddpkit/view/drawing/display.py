"""A figure as an output of a notebook's cell."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING

from ddpkit.view.drawing import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSS_PIXELS = round(style.WIDTH * 90)  # half the pixels would be 792; 990 fills a notebook's cell


# Pictures are drawn on white, which is a slab of light on JupyterLab's dark page. There they are
# turned over, colours kept: also those of matplotlib, in a notebook that has one of ours.
# The text below a picture has tables, whose lines must not be broken. In a narrow page its letters
# are smaller, so that 88 of them fit; what is wider can be moved from side to side.
RULES = """<style class="ddpkit-picture">
.jp-OutputArea-child:has(> * > .ddpkit-picture) { display: none; }
[data-jp-theme-light="false"] .jp-Notebook:has(.ddpkit-picture) .jp-RenderedImage img,
[data-jp-theme-light="false"] .ddpkit-shown :is(img, canvas)
  { filter: invert(0.93) hue-rotate(180deg); }
.jp-OutputArea:has(.ddpkit-picture) { container-type: inline-size; }
.jp-OutputArea-child:has(.ddpkit-picture) ~ .jp-OutputArea-child .jp-RenderedText pre
  { white-space: pre; overflow-x: auto;
    font-size: clamp(10px, calc((100cqw - 90px) / 53), var(--jp-code-font-size)); }
</style>"""


def in_ipython() -> bool:
    """Whether pictures can be displayed here."""
    ipython = sys.modules.get("IPython")  # if nobody imported it, we are not in it
    return ipython is not None and ipython.get_ipython() is not None


def display_png(figure: Figure, alt: str) -> None:
    """Leave the picture as an output of its own, which a saved notebook keeps.

    ``alt`` is the picture in words, for those who do not see it.
    """
    from IPython.display import Image, display

    png = io.BytesIO()
    figure.savefig(png, format="png")
    picture = Image(png.getvalue(), format="png", width=CSS_PIXELS, alt=" ".join(alt.split()))  # type: ignore[no-untyped-call]
    display(picture)  # type: ignore[no-untyped-call]
    display({"text/plain": "", "text/html": RULES}, raw=True)  # type: ignore[no-untyped-call]
