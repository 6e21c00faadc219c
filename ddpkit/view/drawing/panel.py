"""`Panel`: controls above a picture and its text, drawn by panel.js; needs anywidget.

The panel was tried in JupyterLab, and in no other front end of anywidget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from ddpkit.view.drawing.sliders import Control


class Panel(anywidget.AnyWidget):
    """A picture with controls: the browser shows the controls, and the kernel draws the picture."""

    _esm = Path(__file__).with_suffix(".js").read_text("utf-8")
    controls = traitlets.Dict().tag(sync=True)
    at = traitlets.Dict().tag(sync=True)  # control -> index of its present value
    picture = traitlets.Unicode().tag(sync=True)  # HTML
    said = traitlets.Unicode().tag(sync=True)

    def __init__(
        self,
        controls: Mapping[str, Control] | None = None,
        draw: Callable[..., tuple[str, str]] = lambda: ("", ""),
    ) -> None:
        """Show ``controls``; ``draw`` takes their values and returns the picture and its text."""
        self._known, self._draw = dict(controls or {}), draw
        at = {name: control.at for name, control in self._known.items()}
        described = {name: control.described() for name, control in self._known.items()}
        self._shown = at
        picture, said = draw(**self._chosen(at))
        super().__init__(controls=described, at=at, picture=picture, said=_flowing(said))

    def values(self) -> dict[str, Any]:
        """Return the present value of each control, by the control's name."""
        return self._chosen(self.at)

    def choose(self, **values: Any) -> None:
        """Set controls, as a reader does in the browser.

        Raises ValueError if a control does not have the value.
        """
        places = {name: self._known[name].values.index(value) for name, value in values.items()}
        self.at = {**self.at, **places}

    def show(self, picture: str, said: str) -> None:
        """Show another picture and its text."""
        self.picture, self.said = picture, _flowing(said)

    def _chosen(self, at: Mapping[str, int]) -> dict[str, Any]:
        return {name: control.values[at[name]] for name, control in self._known.items()}

    @traitlets.observe("at")
    def _moved(self, _: object) -> None:
        if self.at != self._shown:
            self._shown = dict(self.at)
            self.show(*self._draw(**self.values()))


def _flowing(text: str) -> str:
    """Return a text with its wrapped lines joined; a continuation line begins with two spaces."""
    return text.replace("\n  ", " ")
