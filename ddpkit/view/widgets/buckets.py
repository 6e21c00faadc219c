"""`explore_buckets`: what do cap, network, compute and ranks do to a step?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ddpkit.link import Link, Links, LinkSpec
from ddpkit.simulate import Step
from ddpkit.simulate.buckets import DEFAULT_CAP_MB
from ddpkit.trace import Trace
from ddpkit.view.show import HasTrace
from ddpkit.view.widgets.bucket_model import Buckets, bucket_model, caps, example_step
from ddpkit.view.widgets.shell import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GBITS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 25, 50, 100, 200, 400)
MICROSECONDS = (0, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
SPEEDS = (0.25, 0.5, 0.75, 1, 1.5, 2, 4, 8)
RANKS = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1024)
LINK = "10 Gbit/s, 200 us"


def explore_buckets(
    step_or_trace: Step | HasTrace | Trace | None = None,
    link: LinkSpec | None = None,
    world_size: int | None = None,
    cap_mb: float = DEFAULT_CAP_MB,
) -> View:
    """Move the bucket cap, the link, the compute and the number of ranks, and see a step follow.

    Of the typical step of a run or trace (rank 0), of a `simulate.Step`, or without one, of an
    example. The link and the ranks are the trace's if not given, else "10 Gbit/s, 200 us" and 4. In
    a notebook there are sliders; anywhere ``explore_buckets(...).figure(cap_mb=5, gbits=1, us=200,
    speed=1, ranks=8)`` is the picture, and ``.table(...)`` the curve as text. Raises TraceError if
    the trace has no step with a backward, ValueError for a bad link.
    """
    step, emulated, n = _subject(step_or_trace)
    n = n if world_size is None else world_size
    each = Links.parse(emulated if link is None else link, n).slowest
    start = {
        "cap_mb": cap_mb,
        "gbits": each.bytes_per_s * 8 / 1e9,
        "us": each.latency_ns / 1e3,
        "speed": 1.0,
        "ranks": n,
    }
    explorer = _Explorer(step, start)
    return explorer.view.show(explorer.controls)


def _subject(given: Step | HasTrace | Trace | None) -> tuple[Step, str, int]:
    """The step, the link and the number of ranks to start from."""
    if given is None or isinstance(given, Step):
        return given or example_step(), LINK, 4
    trace = given if isinstance(given, Trace) else given.trace
    return Step.typical(trace), str(trace.facts.get("emulated") or LINK), trace.world_size


class _Explorer:
    """Joins the model and its drawing to a view."""

    def __init__(self, step: Step, start: dict[str, Any]) -> None:
        self.step = step
        self.last: tuple[tuple[Any, ...], Buckets] | None = None
        self.view = View(start, self.draw, self.describe, self.table)

    def model(self, **at: Any) -> Buckets:
        key = tuple(at.values())
        if self.last is None or self.last[0] != key:
            link = Link(at["us"] / 1e6, at["gbits"] * 1e9 / 8)
            self.last = key, bucket_model(self.step, at["cap_mb"], link, at["ranks"], at["speed"])
        return self.last[1]

    def draw(self, **at: Any) -> Figure:
        from ddpkit.view.widgets.bucket_figure import draw_buckets

        return draw_buckets(self.model(**at))

    def describe(self, **at: Any) -> str:
        model = self.model(**at)
        return f"{model.title}. {model.text}\n{model.notice}"

    def table(self, **at: Any) -> str:
        return self.model(**at).table()

    def controls(self) -> Any:
        """Sliders that redraw when they are let go: the keys work on them too."""
        import ipywidgets

        def slider(name: str, label: str, values: Sequence[float], unit: str) -> Any:
            now = self.view.start[name]
            options = [(f"{value:g}{unit}", value) for value in sorted({*values, now})]
            return ipywidgets.SelectionSlider(
                options=options, value=now, description=label, continuous_update=False
            )

        return self.view.live(
            {
                "cap_mb": slider("cap_mb", "bucket cap", caps(self.step), " MB"),
                "gbits": slider("gbits", "bandwidth", GBITS, " Gbit/s"),
                "us": slider("us", "latency", MICROSECONDS, " us"),
                "speed": slider("speed", "compute", SPEEDS, " × speed"),
                "ranks": slider("ranks", "ranks", RANKS, ""),
            }
        )
