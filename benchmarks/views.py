"""The cost of pictures: of few spans, of 100,000 spans, and of a redraw by a slider.

    python -m benchmarks.views [--quick] [--markdown]

Prints the CPU time of this process for each picture: the numbers (trace -> model), and the drawing
(model -> figure -> pixels), which has a goal. Drawing 100,000 spans should cost no more than
drawing few spans, because bars too small to be seen apart are merged. Beside the drawing stands
matplotlib's own way: `broken_barh` of the same spans, without names, labels, legend or panel. A
second table has the HTML page in a browser, for 64 ranks of 200 spans and for a million spans: the
time until the page is drawn, its size, and a frame of a zoom.
"""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import replace

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Plot

from benchmarks._pages import in_a_browser
from benchmarks._report import Figure, Sample, as_markdown, as_text, machine, table
from ddpkit.simulate import assign_buckets
from ddpkit.simulate import replay as simulated
from ddpkit.trace import Span, Trace
from ddpkit.view import View, explore_buckets, timeline_model
from ddpkit.view.comparison.figure import draw_comparison
from ddpkit.view.comparison.model import comparison
from ddpkit.view.drawing import style
from ddpkit.view.drawing.steps import example_step
from ddpkit.view.explorer.model import span_columns
from ddpkit.view.heat.figure import draw_heat
from ddpkit.view.heat.model import heat_of
from ddpkit.view.timeline.figure import draw_timeline

GOAL_S = 0.2  # seconds for drawing 100,000 spans
REDRAW_S = 0.4  # seconds for drawing, of the 0.5 s from a slider's key to the picture


def run_of(steps: int, ranks: int = 4) -> Trace:
    """Return a simulated run with 96 layers and 20 buckets: 856 spans in each step."""
    step = example_step()
    one = simulated(step, ranks, "10 Gbit/s, 200 us", assign_buckets(step.gradients, 5.0)).trace()
    return Trace(
        [later(span, k * (one.end_ns + 2_000_000), k) for k in range(steps) for span in one.spans],
        ranks,
        one.facts,
    )


def later(span: Span, ns: int, step: int) -> Span:
    return replace(
        span,
        start_ns=span.start_ns + ns,
        end_ns=span.end_ns + ns,
        ready_ns=None if span.ready_ns is None else span.ready_ns + ns,
        blocked_ns=None if span.blocked_ns is None else span.blocked_ns + ns,
        seq=None if span.seq is None else span.seq + 100 * step,
    )


def cpu_s(do: Callable[[], object], repeats: int) -> Sample:
    """Return the CPU seconds of each repetition, after one repetition to warm up."""
    do()
    return Sample.of(_times(do, repeats))


def _times(do: Callable[[], object], repeats: int) -> Iterator[float]:
    for _ in range(repeats):
        start = time.process_time()
        do()
        yield time.process_time() - start


def plain(trace: Trace) -> None:
    """Draw each span as one rectangle, as matplotlib does it."""
    plot = Plot((style.WIDTH, 5), dpi=style.DPI)
    canvas, axes = FigureCanvasAgg(plot), plot.add_subplot()
    for rank in trace.ranks:
        for lane, kinds in enumerate((style.FACE, ("comm",))):
            spans = [span for span in trace.of(rank) if span.kind in kinds]
            extents = [(span.start_ns / 1e6, span.duration_ns / 1e6) for span in spans]
            axes.broken_barh(extents, (2 * rank + lane, 0.8))
    canvas.draw()


def pictures(steps: int, repeats: int) -> Iterator[Figure]:
    """Yield figures of the timeline and the heat map of a run, and of two runs on one axis."""
    trace = run_of(steps)
    spans = f"{len(trace.spans):,} spans"
    goal = GOAL_S if steps > 1 else None
    model, heat, both = timeline_model(trace), heat_of(trace), comparison([trace, trace])
    others: dict[str, Sample | str] = {"broken_barh": cpu_s(lambda: plain(trace), repeats)}

    def took(do: Callable[[], object]) -> Sample:
        return cpu_s(do, repeats)

    def drawn(draw: Callable[[], Plot]) -> Sample:
        return took(lambda: draw().canvas.draw())

    yield Figure(f"{spans}: numbers of the timeline", "s", took(lambda: timeline_model(trace)))
    timeline = drawn(lambda: draw_timeline(model))
    yield Figure(f"{spans}: drawing the timeline", "s", timeline, others, goal)
    yield Figure(f"{spans}: drawing the heat map", "s", drawn(lambda: draw_heat(heat)), goal=goal)
    yield Figure(f"{spans}: drawing the run twice", "s", drawn(lambda: draw_comparison(both)))
    packed = took(lambda: span_columns(trace).packed())
    note = f"{len(span_columns(trace).packed()) / 1e3:.0f} kB to the browser"
    yield Figure(f"{spans}: columns of the explorer", "s", packed, note=note)


def redraw(repeats: int) -> Figure:
    """Return a figure of the bucket explorer's redraw, at settings that are not yet drawn."""
    with redirect_stdout(io.StringIO()):
        view: View = explore_buckets()
    caps = iter(range(1, 1000))
    took = cpu_s(lambda: view.html(cap_mb=next(caps)), repeats)
    return Figure("a slider of explore_buckets: numbers and drawing", "s", took, goal=REDRAW_S)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer spans and repetitions")
    parser.add_argument("--markdown", action="store_true", help="the table as for BENCHMARKS.md")
    options = parser.parse_args()
    repeats, many = (3, 12) if options.quick else (7, 118)
    print(machine())
    figures = [*pictures(1, repeats), *pictures(many, repeats), redraw(repeats)]
    write = as_markdown if options.markdown else as_text
    print(write(table("CPU time of a picture", figures, ["broken_barh"])))
    sizes = [(64, 200)] if options.quick else [(64, 200), (8, 125_000)]
    pages = [figure for size in sizes for figure in in_a_browser(*size)]
    print(write(table("The HTML page in a browser", pages, [])))


if __name__ == "__main__":
    main()
