"""`Canvas`: the widget that gives a scene to canvas.js. Importing this needs anywidget."""

from pathlib import Path

import anywidget
import traitlets

from ddpkit.view.drawing import style
from ddpkit.view.explorer.scene import Scene

LOOK = {
    "face": {**style.FACE},
    "label": {**style.LABEL},
    "ink": {
        "text": style.INK,
        "grey": style.GREY,
        "grid": style.GRID,
        "band": style.BAND,
        "exposed": style.EXPOSED,
    },
}


class Canvas(anywidget.AnyWidget):
    """A scene in the browser. Nothing comes back from there: the kernel may be busy."""

    _esm = Path(__file__).with_name("canvas.js")
    scene = traitlets.Dict().tag(sync=True)
    spans = traitlets.Bytes().tag(sync=True)

    def __init__(self, scene: Scene, title: str) -> None:
        """``title`` is what a screen reader says first."""
        super().__init__(scene={**scene.described(), **LOOK, "title": title}, spans=scene.packed())
