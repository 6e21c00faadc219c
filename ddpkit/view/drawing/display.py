"""A figure as an output of a notebook's cell: a drawing with words and numbers, and a PNG.

The drawing is SVG in HTML, because a front end gives an image of a notebook no description.
A front end does not trust a notebook that was run elsewhere: it removes the drawing and the CSS
rules, and shows the PNG.
"""

from __future__ import annotations

import html
import io
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ddpkit.view.drawing import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSS_PIXELS = round(style.WIDTH * 90)  # a picture's width: fills a notebook's cell
PNG_DPI = 90  # the PNG has a dot for each pixel of the page
PNG_COLORS = 256

# Containers of a cell's output in JupyterLab and Notebook 7, nbclassic, Colab, VS Code, MyST-NB.
_OUTPUTS = ".jp-OutputArea-child", ".output_area", ".output_subarea", ".output_container", ".output"
_DARK = (
    '[data-jp-theme-light="false"]', "html[theme=dark]", "body.vscode-dark", "body.dark", ".dark",
    'body[data-theme="dark"]',
)  # fmt: skip
# The rules hide the PNG of a picture if the front end shows the drawing. In a dark theme, the rules
# invert the notebook's pictures that ddpkit did not draw, and keep the hues.
# The text below a picture contains tables, and lines of tables must not be broken. On a narrow page
# 88 letters fit, because the letters are smaller; the reader can scroll a wider table sideways.
RULES = f"""<style class="ddpkit-drawing">
.ddpkit-figure {{ margin: 0; }}
:is(.ddpkit-figure, .ddpkit-shown) {{ color-scheme: light; }}
:is({", ".join(_DARK)}) :is(.ddpkit-figure, .ddpkit-shown) {{ color-scheme: dark; }}
.ddpkit-drawn {{ display: block !important; overflow-x: auto; }}
.ddpkit-drawn > svg {{ display: block; width: 100%; max-width: {CSS_PIXELS}px; height: auto; }}
:is({", ".join(_OUTPUTS)}):has(.ddpkit-drawn) + :is({", ".join(_OUTPUTS)}, img):has(img, :scope)
  {{ display: none; }}
.ddpkit-numbers {{ font-size: 12px; opacity: 0.9; }}
.ddpkit-numbers:not([open]) {{ width: max-content; }}
.ddpkit-numbers :is(td, th) {{ text-align: right; white-space: nowrap; padding: 1px 8px; }}
[data-jp-theme-light="false"] .jp-Notebook:has(.ddpkit-drawing) .jp-RenderedImage img
  {{ filter: invert(0.93) hue-rotate(180deg); }}
.jp-OutputArea:has(.ddpkit-drawing) {{ container-type: inline-size; }}
.jp-OutputArea-child:has(.ddpkit-drawing) ~ .jp-OutputArea-child .jp-RenderedText pre
  {{ white-space: pre; overflow-x: auto;
    font-size: clamp(10px, calc((100cqw - 90px) / 53), var(--jp-code-font-size)); }}
</style>"""


_CELL = re.compile(r"\S+(?: \S+)*")  # words, one space apart


def in_ipython() -> bool:
    """True if pictures can be displayed here: in a notebook, not in a terminal's IPython."""
    ipython = sys.modules.get("IPython")  # never imported outside IPython
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and type(shell).__name__ != "TerminalInteractiveShell"


def display_picture(figure: Figure, alt: str, numbers: str) -> None:
    """Display a picture as two outputs, which a saved notebook keeps: an SVG drawing and a PNG.

    ``alt`` is the picture in words, for readers without sight; ``numbers`` has the lines of the
    picture's tables.
    """
    from IPython.display import Image, display

    alt = described(alt)
    drawing = {"text/plain": "", "text/html": RULES + picture_html(figure, alt, numbers)}
    display(drawing, raw=True)  # type: ignore[no-untyped-call]
    display(Image(png_of(figure), format="png", width=CSS_PIXELS, alt=alt))  # type: ignore[no-untyped-call]


def described(text: str) -> str:
    """Return the sentences of a text, without the tables, as the description of a picture."""
    return " ".join(" ".join(lines[0] for lines in _blocks(text) if not _is_row(lines[0])).split())


def picture_html(figure: Figure, alt: str, numbers: str = "") -> str:
    """Return the drawing as HTML, with its description, and with tables of ``numbers`` if any."""
    from ddpkit.view.drawing.svg import svg_of

    # In an untrusted notebook, front ends remove <svg> and keep its words, which must stay hidden.
    # They also remove empty attributes: therefore hidden='hidden'.
    drawn = f"<div class='ddpkit-drawn' hidden='hidden'>{svg_of(figure, described(alt))}</div>"
    more = f"{_numbers(alt, numbers)}" if numbers else ""
    return f"<figure class='ddpkit-figure'>{drawn}{more}</figure>"


def png_of(figure: Figure) -> bytes:
    """Return a picture as a PNG of 256 colours: a third of the bytes of a PNG of all colours."""
    from PIL import Image

    drawn, packed = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=PNG_DPI, pil_kwargs={"compress_level": 0})
    picture = Image.open(drawn).convert("RGB")
    few = picture.quantize(PNG_COLORS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(packed, format="png", optimize=True)
    return packed.getvalue()


def _numbers(alt: str, text: str) -> str:
    parts = "".join(map(_block, _blocks(text)))
    summary = "<summary>This picture in words and numbers</summary>"
    words = f"<p>{html.escape(described(alt))}</p>"
    return f"<details class='ddpkit-numbers'>{summary}{words}{parts}</details>"


def _blocks(text: str) -> list[list[str]]:
    """Return the lines in blocks: all lines of a table in one block, each line of text alone."""
    parts: list[list[str]] = []
    before = False
    for line in filter(None, text.splitlines()):
        columns = _is_row(line)
        if columns and before:
            parts[-1].append(line)
        else:
            parts.append([line])
        before = columns
    return parts


def _is_row(line: str) -> bool:
    """True for a row of a table: a line of columns, two or more spaces apart."""
    # two spaces after a full stop separate sentences, not columns
    return re.search(r"[^.\s] {2,}\S", line) is not None


def _block(lines: list[str]) -> str:
    """Return a block as HTML: one line as text, several lines as a table."""
    if len(lines) == 1:
        return f"<pre>{html.escape(lines[0])}</pre>"
    first, *others = lines
    heads = [*_CELL.finditer(first)]
    ends = [head.end() for head in heads]
    named = [head[0] for head in heads]
    if first.startswith(" "):  # the names of the rows have no head
        ends, named = [0, *ends], ["", *named]
    head = "".join(f"<th scope='col'>{html.escape(name)}</th>" for name in named)
    body = "".join(f"<tr>{''.join(_row(line, ends))}</tr>" for line in others)
    return f"<table><tr>{head}</tr>{body}</table>"


def _row(line: str, ends: list[int]) -> Iterator[str]:
    """Yield the cells of a row; a cell belongs to the first column that ends at or after it."""
    cells: list[list[str]] = [[] for _ in ends]
    for number, found in enumerate(_CELL.finditer(line)):
        column = next((k for k, end in enumerate(ends) if found.end() <= end), len(ends) - 1)
        cells[column if number else 0].append(html.escape(found[0]))
    yield f"<th scope='row'>{' '.join(cells[0])}</th>"
    yield from (f"<td>{' '.join(cell)}</td>" for cell in cells[1:])
