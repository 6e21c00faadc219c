"""`Canvas`: the widget that gives a picture to canvas.js. Importing this needs anywidget."""

from pathlib import Path

import anywidget
import traitlets

from ddpkit.view.drawing import style
from ddpkit.view.explorer.model import SpanColumns

LOOK = {
    "face": {**style.FACE},
    "label": {**style.LABEL},
    "thinness": style.THIN,
    "ink": {
        "text": style.INK,
        "grey": style.GREY,
        "grid": style.GRID,
        "band": style.BAND,
        "exposed": style.EXPOSED,
    },
}


class Canvas(anywidget.AnyWidget):
    """The picture in the browser. Nothing comes back from there: the kernel may be busy."""

    _esm = Path(__file__).with_name("canvas.js")
    picture = traitlets.Dict().tag(sync=True)
    spans = traitlets.Bytes().tag(sync=True)

    def __init__(self, columns: SpanColumns, title: str) -> None:
        """``title`` is what a screen reader says first."""
        described = {**columns.described(), **LOOK, "title": title}
        super().__init__(picture=described, spans=columns.packed())
