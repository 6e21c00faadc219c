"""Pictures that stand still in a notebook, each with its text: `show`, `compare`, `heat_map`."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ddpkit.trace import Trace
from ddpkit.view.comparison.model import comparison
from ddpkit.view.drawing import style
from ddpkit.view.heat.model import heat_of
from ddpkit.view.timeline.model import timeline_model

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CSS_PIXELS = round(style.WIDTH * 90)  # half the pixels would be 792; 990 fills a notebook's cell


class HasTrace(Protocol):
    """A run, to this module."""

    @property
    def trace(self) -> Trace: ...


def trace_of(run_or_trace: HasTrace | Trace) -> Trace:
    return run_or_trace if isinstance(run_or_trace, Trace) else run_or_trace.trace


def skipped(*runs_or_traces: HasTrace | Trace) -> str:
    """Why there is nothing to show of these, if torchrun had too few ranks for a run; else ""."""
    if any("skipped" in trace_of(each).facts for each in runs_or_traces):
        return "No picture: the run was skipped."
    return ""


def show(run_or_trace: HasTrace | Trace, step: int | None = None) -> Figure | None:
    """Draw the timeline of a run or a trace, or of one of its steps, and print its finding.

    In IPython the picture is displayed, as a PNG, and None returned, so that it does not appear
    twice. Elsewhere the figure is returned: ``show(run).savefig("run.png")``. Without matplotlib
    only the text is printed. Raises TraceError if there is no such step.
    """
    if why := skipped(run_or_trace):
        print(why)
        return None
    model = timeline_model(trace_of(run_or_trace), step)

    def draw() -> Figure:
        from ddpkit.view.timeline.figure import draw_timeline

        return draw_timeline(model)

    return _present(draw, f"{model.title}. {model.headline}", model.text)


def compare(
    *runs_or_traces: HasTrace | Trace,
    labels: Sequence[str] = (),
    rank: int | None = 0,
    step: int | None = None,
) -> Figure | None:
    """Draw two or more runs on one axis of time, and print how they differ: before and after.

    One rank of each, or all with ``rank=None``. Compared is a step of each: the one that ``step``
    names, or of each the typical one after the warm-up; or the whole runs, if one of them has no
    steps. Shown and returned as by `show`. Raises ValueError for fewer than two runs or labels that
    do not fit them, TraceError if there is no such step or rank.
    """
    if why := skipped(*runs_or_traces):
        print(why)
        return None
    model = comparison([trace_of(each) for each in runs_or_traces], labels, rank, step)

    def draw() -> Figure:
        from ddpkit.view.comparison.figure import draw_comparison

        return draw_comparison(model)

    return _present(draw, model.title, model.text)


def heat_map(run_or_trace: HasTrace | Trace) -> Figure | None:
    """Draw every step of every rank: how long it took, and how long it waited for its peers.

    Stragglers and long steps show at once; what the others wait for is printed. Shown and returned
    as by `show`. Raises TraceError for a run without steps.
    """
    if why := skipped(run_or_trace):
        print(why)
        return None
    model = heat_of(trace_of(run_or_trace))

    def draw() -> Figure:
        from ddpkit.view.heat.figure import draw_heat

        return draw_heat(model)

    return _present(draw, model.notice, model.text)


def _present(draw: Callable[[], Figure], finding: str, text: str) -> Figure | None:
    """Display the picture, print its text; outside IPython, return the picture."""
    try:
        figure = draw()
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        print(text, "(No picture: matplotlib is not installed.)", sep="\n")
        return None
    displayed = in_ipython()
    if displayed:
        display_png(figure, finding)
    print(text)
    return None if displayed else figure


def in_ipython() -> bool:
    """Whether pictures can be displayed here."""
    ipython = sys.modules.get("IPython")  # if nobody imported it, we are not in it
    return ipython is not None and ipython.get_ipython() is not None


def display_png(figure: Figure, alt: str) -> None:
    """Leave the picture as an output of its own, which a saved notebook keeps.

    ``alt`` is the picture in words, for those who do not see it.
    """
    from IPython.display import Image, display

    png = io.BytesIO()
    figure.savefig(png, format="png")
    picture = Image(png.getvalue(), format="png", width=CSS_PIXELS, alt=" ".join(alt.split()))  # type: ignore[no-untyped-call]
    display(picture)  # type: ignore[no-untyped-call]
