"""`View`: a picture and its text, which need no notebook; some views have controls in a notebook.

The output of a cell holds the starting picture, its text, and the controls, which have a live
picture of their own (`panel.Panel`). A saved notebook keeps the starting picture and its text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ddpkit.errors import TraceError
from ddpkit.view.drawing.display import display_picture, in_ipython, picture_html, png_of
from ddpkit.view.drawing.sliders import Control

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = 64  # pictures kept, so that a return to an earlier setting draws nothing
VIEW = "application/vnd.jupyter.widget-view+json"
VERSION = {"version_major": 2, "version_minor": 0}  # version of the widget's format
NOT_LIVE = "(Live only: run all cells above, then this one.)"  # shown in place of a widget
# A saved notebook keeps the place of a widget, not the widget. When JupyterLab opens a trusted
# notebook, the place shows "Error displaying widget: model not found". These rules replace the
# error by NOT_LIVE. In front ends where the rules do not fit, the error stays.
_LOST = ".jp-OutputArea-child:has(.ddpkit-live) ~ * > .jp-OutputArea-output.jupyter-widgets"
# While the controls are shown, with a picture and a text of their own, the rules with
# .ddpkit-ready hide the still picture and its text.
_CHILD = ".jp-OutputArea-child"
RULES = f"""<style class="ddpkit-live">
{_CHILD}:has(> * > .ddpkit-figure):has(+ * + * + * + * .ddpkit-ready) {{ display: none; }}
{_CHILD}:has(> .jp-RenderedText):has(+ * + * .ddpkit-ready) {{ display: none; }}
.jp-OutputArea-child:has(> * > .ddpkit-live) {{ display: none; }}
{_LOST} {{ visibility: hidden; }}
{_LOST}::before {{ visibility: visible; content: "{NOT_LIVE}"; }}
</style>"""
Model = TypeVar("Model")


class View(Generic[Model]):
    """A picture and its text for each setting of some parameters.

    ``view.figure(step=3)`` and ``view.text(step=3)`` work without a notebook. Settings that a call
    leaves out have their starting values. Raises TypeError for an unknown setting.
    """

    def __init__(
        self,
        start: Mapping[str, Any],
        model: Callable[..., Model],
        draw: Callable[[Model], Figure],
        describe: Callable[[Model], str],
        details: Callable[[Model], str] | None = None,
    ) -> None:
        """Keep the starting settings ``start`` and the functions of the view.

        ``model`` takes the parameters that ``start`` names; the other functions take the result of
        ``model``.
        """
        self.start = dict(start)
        self._make, self._draw = model, draw
        self._describe, self._details = describe, details or describe
        self._last: tuple[dict[str, Any], Model] | None = None
        self._drawn: dict[tuple[Any, ...], str] = {}
        self.controls: Any = None  # a widget, once displayed

    def model(self, **changed: Any) -> Model:
        """Return the model for these settings; a picture and its text share one model."""
        if self.start and (unknown := changed.keys() - self.start.keys()):
            raise TypeError(
                f"this view has no setting {min(unknown)!r}: choose from {', '.join(self.start)}"
            )
        at = self.start | changed
        if self._last is None or self._last[0] != at:
            self._last = at, self._make(**at)
        return self._last[1]

    def figure(self, **changed: Any) -> Figure:
        """Return the picture, as a figure of matplotlib."""
        return self._draw(self.model(**changed))

    def text(self, **changed: Any) -> str:
        """Return the finding in words."""
        return self._describe(self.model(**changed))

    def table(self, **changed: Any) -> str:
        """Return all numbers of the picture, as text."""
        return self._details(self.model(**changed))

    def png(self, **changed: Any) -> bytes:
        """Return the picture as the bytes of a PNG."""
        return png_of(self.figure(**changed))

    def html(self, **changed: Any) -> str:
        """Return the picture as SVG in HTML, described by its text; 64 pictures are cached."""
        key = tuple((self.start | changed).values())
        if key not in self._drawn:
            if len(self._drawn) >= KEPT:
                self._drawn.pop(next(iter(self._drawn)))
            self._drawn[key] = picture_html(self.figure(**changed), self.text(**changed))
        return self._drawn[key]

    def live(self, controls: Mapping[str, Control]) -> Any:
        """Return a widget: a live picture under ``controls``, which are named by the settings."""
        from ddpkit.view.drawing.panel import Panel

        return Panel(controls, lambda **at: (self.html(**at), self.text(**at)))

    def show(self, make_controls: Callable[[View[Model]], Any]) -> View[Model]:
        """Print the text, and in IPython display the starting picture and the controls."""
        if in_ipython():
            self.controls = make_controls(self)  # before the outputs, so that they appear together
            display_picture(self.figure(), self.text(), self.table())
            print(self.text())
            display_live(self.controls)
        else:
            print(self.text())
        return self

    def _ipython_display_(self) -> None:
        """Show nothing when IPython displays the view: `show` has displayed it already."""

    def __repr__(self) -> str:
        return f"<View: {self.text()}>"


def nothing(why: str) -> View[Any]:
    """Print ``why``, and return the view of a skipped run: ``text`` returns ``why`` too.

    The view's ``figure`` raises TraceError.
    """

    def draw(_: None) -> Figure:
        raise TraceError(why)

    print(why)
    return View({}, lambda **_: None, draw, lambda _: why)


def display_live(widget: Any) -> None:
    """Display a widget as an output of the cell; a saved notebook shows `NOT_LIVE` there."""
    from IPython.display import display

    display({"text/plain": "", "text/html": RULES}, raw=True)  # type: ignore[no-untyped-call]
    widget.add_class("ddpkit-shown")
    bundle = {"text/plain": NOT_LIVE, VIEW: {**VERSION, "model_id": widget.model_id}}
    display(bundle, raw=True)  # type: ignore[no-untyped-call]
