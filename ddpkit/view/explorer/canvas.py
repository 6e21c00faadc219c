"""`Canvas`: the widget that gives a picture to canvas.js. Importing this needs anywidget."""

from pathlib import Path

import anywidget
import traitlets

from ddpkit.view.explorer.look import LOOK
from ddpkit.view.explorer.model import SpanColumns


class Canvas(anywidget.AnyWidget):
    """The picture in the browser. Nothing comes back from there: the kernel may be busy."""

    _esm = Path(__file__).with_name("canvas.js")
    picture = traitlets.Dict().tag(sync=True)
    spans = traitlets.Bytes().tag(sync=True)

    def __init__(self, columns: SpanColumns, title: str) -> None:
        """``title`` is what a screen reader says first."""
        described = {**columns.described(), **LOOK, "title": title}
        super().__init__(picture=described, spans=columns.packed())
