"""`show`: the timeline in a notebook, as a static picture and as text."""

from __future__ import annotations

import io
import sys
from typing import TYPE_CHECKING, Protocol

from ddpkit.trace import Trace
from ddpkit.view import style
from ddpkit.view.model import timeline_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class HasTrace(Protocol):
    """A run, to this module."""

    @property
    def trace(self) -> Trace: ...


def show(run_or_trace: HasTrace | Trace, step: int | None = None) -> Figure | None:
    """Draw the timeline of a run or a trace, or of one of its steps, and print its finding.

    In IPython the picture is displayed, as a PNG, and None returned, so that it does not appear
    twice. Elsewhere the figure is returned: ``show(run).savefig("run.png")``. Without matplotlib
    only the text is printed. Raises TraceError if there is no such step.
    """
    trace = run_or_trace if isinstance(run_or_trace, Trace) else run_or_trace.trace
    model = timeline_model(trace, step)
    try:
        from ddpkit.view.timeline import draw_timeline
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(model.text, "(No picture: matplotlib is not installed.)", sep="\n")
        return None
    figure = draw_timeline(model)
    displayed = _display(figure, alt=model.headline)
    print(model.text)
    return None if displayed else figure


def _display(figure: Figure, alt: str) -> bool:
    """Show the figure where IPython shows pictures; False if this is not IPython."""
    ipython = sys.modules.get("IPython")  # if nobody imported it, we are not in it
    if ipython is None or ipython.get_ipython() is None:
        return False
    from IPython.display import Image, display

    png = io.BytesIO()
    figure.savefig(png, format="png")
    # Half the pixels as CSS width would be 792; 990 fills a notebook's cell and stays sharp.
    width = round(style.WIDTH * 90)
    display(Image(png.getvalue(), format="png", width=width, alt=alt))  # type: ignore[no-untyped-call]
    return True
