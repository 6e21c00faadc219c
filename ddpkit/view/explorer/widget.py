"""`explore`: a timeline to point at, to move and to zoom."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ddpkit.trace import Trace, with_names
from ddpkit.view.drawing.runs import HasTrace, skipped, trace_of
from ddpkit.view.drawing.shell import View, nothing
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.timeline.model import Timeline, few, timeline_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def explore(
    run_or_trace: HasTrace | Trace,
    step: int | None = None,
    *,
    names: Mapping[int, str] | None = None,
) -> View[Timeline]:
    """Show a run or one of its steps on a canvas, with the name, times and bytes of any bar.

    Drag, wheel and keys move and zoom the canvas, even with 100,000 spans: only the browser works.
    Beside the canvas stand the picture and the text of `show`, and a saved notebook keeps both.
    ``names`` gives names to ranks, as in `show`. Raises TraceError if there is no such step, or no
    such rank to name.
    """
    if why := skipped("explore", run_or_trace):
        return nothing(why)
    trace = with_names(trace_of(run_or_trace), names or {})
    view = View({}, lambda: timeline_model(trace, step), _draw, lambda model: model.text)

    def canvas(view: View[Timeline]) -> Any:
        from ddpkit.view.explorer.canvas import Canvas

        model = view.model()
        return Canvas(span_columns(trace, step), model.title, few(model))

    return view.show(canvas)


def _draw(model: Timeline) -> Figure:
    from ddpkit.view.timeline.figure import draw_timeline

    return draw_timeline(model)
