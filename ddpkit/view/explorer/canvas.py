"""`Canvas`: the widget that gives a picture to canvas.js. Importing this needs anywidget."""

from collections.abc import Sequence

import anywidget
import traitlets

from ddpkit.view.explorer.look import DARK, LOOK, WORDS, code
from ddpkit.view.explorer.model import SpanColumns


class Canvas(anywidget.AnyWidget):
    """A timeline that the browser draws. The browser sends nothing back: the kernel may be busy."""

    _esm = code()
    picture = traitlets.Dict().tag(sync=True)
    spans = traitlets.Bytes().tag(sync=True)

    def __init__(
        self, columns: SpanColumns, title: str, few: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Keep the columns, a ``title`` for screen readers, and the ``few`` ranks to show first."""
        described = {**columns.described(), **LOOK, "title": title, "few": few, "legend": WORDS}
        described["dark"] = DARK
        super().__init__(picture=described, spans=columns.packed())
