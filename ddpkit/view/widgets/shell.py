"""The thin part of a widget: a picture that is there without any front end, and controls if any.

A cell leaves three outputs: the starting picture as a PNG and its text, both of which a saved
notebook keeps, and the controls with a live picture of their own. The live picture is an Image
widget: `widgets.Output` can hang nbclient.
"""

from __future__ import annotations

import html
import io
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ddpkit.view import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PIXELS = round(style.WIDTH * 90)  # CSS pixels: as wide as what `show` displays
KEPT = 64  # pictures: going back to one costs nothing


class View:
    """A picture and its text for each setting of some parameters.

    ``view.figure(step=3)`` and ``view.text(step=3)`` need no front end. What is not given is as at
    the start.
    """

    def __init__(
        self,
        start: Mapping[str, Any],
        draw: Callable[..., Figure],
        describe: Callable[..., str],
        details: Callable[..., str] | None = None,
    ) -> None:
        """``draw``, ``describe``, ``details`` take the parameters that ``start`` names."""
        self.start = dict(start)
        self._draw, self._describe, self._details = draw, describe, details or describe
        self._pngs: dict[tuple[Any, ...], bytes] = {}
        self.controls: Any = None  # an ipywidgets box, once it is displayed

    def figure(self, **changed: Any) -> Figure:
        return self._draw(**(self.start | changed))

    def text(self, **changed: Any) -> str:
        """The finding in words."""
        return self._describe(**(self.start | changed))

    def table(self, **changed: Any) -> str:
        """All that the picture shows, as text."""
        return self._details(**(self.start | changed))

    def png(self, **changed: Any) -> bytes:
        key = tuple((self.start | changed).values())
        if key not in self._pngs:
            if len(self._pngs) >= KEPT:
                self._pngs.pop(next(iter(self._pngs)))
            file = io.BytesIO()
            # Hardly compressed: a redraw takes half as long, and stays on this machine.
            self.figure(**changed).savefig(file, format="png", pil_kwargs={"compress_level": 1})
            self._pngs[key] = file.getvalue()
        return self._pngs[key]

    def live(self, controls: Mapping[str, Any], *, above: Any = None) -> Any:
        """Controls over a picture that follows them; ``controls`` has a widget per parameter."""
        import ipywidgets

        image = ipywidgets.Image(value=self.png(), format="png", width=PIXELS)
        image.layout.max_width = "100%"
        line = ipywidgets.HTML(_spoken(self.text()))

        def redraw(_: object) -> None:
            values = {name: control.value for name, control in controls.items()}
            image.value, line.value = self.png(**values), _spoken(self.text(**values))

        for control in controls.values():
            control.observe(redraw, names="value")
        top = above if above is not None else ipywidgets.HBox(list(controls.values()))
        top.layout.flex_flow = "row wrap"
        return ipywidgets.VBox([top, image, line])

    def show(self, make_controls: Callable[[], Any]) -> View:
        """Print the text, and in IPython display the starting picture and the controls."""
        ipython = sys.modules.get("IPython")  # if nobody imported it, we are not in it
        if ipython is not None and ipython.get_ipython() is not None:
            from IPython.display import Image, display

            picture = Image(self._small(), format="png", width=PIXELS, alt=self.text())  # type: ignore[no-untyped-call]
            display(picture)  # type: ignore[no-untyped-call]
            print(self.text())
            self.controls = make_controls()
            display(self.controls)  # type: ignore[no-untyped-call]
        else:
            print(self.text())
        return self

    def _small(self) -> bytes:
        """The starting picture, well compressed: it stays in the notebook."""
        file = io.BytesIO()
        self.figure().savefig(file, format="png")
        return file.getvalue()

    def _ipython_display_(self) -> None:
        """Nothing more: a view at the end of a cell has been displayed already."""

    def __repr__(self) -> str:
        return f"<View: {self.text()}>"


def _spoken(text: str) -> str:
    """A line that screen readers say when it changes."""
    return f'<div role="status" aria-live="polite">{html.escape(text)}</div>'
