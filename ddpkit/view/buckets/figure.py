"""`draw_buckets`: the step with one bucket cap, beside the step times with all caps."""

from dataclasses import replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ddpkit.view.buckets.model import CapSweep
from ddpkit.view.drawing import style
from ddpkit.view.drawing.chart import EXPOSED, OVERLAP, Chart, plain
from ddpkit.view.drawing.lanes import merge_small
from ddpkit.view.drawing.layout import Heights, lay_out
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.words import ms

LEFT, TOP, STEP = 0.86, 1.6, 5.5  # inches: margin with names, head, width of the timeline
HEIGHTS = Heights(compute=0.36, overlap=0.06, lane=0.3, lanes=0.3, bar=0.0, gap=0.0)
CURVE, WIDE, HIGH = LEFT + STEP + 0.85, 3.5, 1.85


def draw_buckets(model: CapSweep) -> Figure:
    """Return a figure of 11 inches width, of the same height for all settings."""
    page = Page(TOP + HIGH + 0.3)
    page.write_fitting(0.2, 0.24, model.title, 14.5, style.WIDTH - 0.4, bold=True)
    page.write_fitting(0.2, 0.53, model.text, 10, style.WIDTH - 0.4)
    page.write_fitting(0.2, 0.8, model.notice, 10, style.WIDTH - 0.4)
    _step(page, model)
    _curve(page, model)
    return page.figure


def _step(page: Page, model: CapSweep) -> None:
    top = TOP + 0.14
    bars = (
        (r.start_ns, r.done_ns, "moving", (f"b{n}",))
        for n, r in enumerate(model.replay.all_reduces)
    )
    row = replace(model.row, lanes=[merge_small(bars, model.step_ns / (STEP * style.DPI))])
    (place,) = lay_out([row], HEIGHTS, compute=True, comm=True)
    chart = Chart(page, LEFT, top, STEP, place.bottom + 0.06, model.step_ns)
    chart.row(row, place, compute=True, comm=True)
    chart.end(model.step_ns, (place.top, place.bottom))
    for name, (high, low) in (("compute", place.compute), ("comm", place.lanes[0])):
        page.write(LEFT - 0.08, top + (high + low) / 2, name, 8.5, style.GREY, ha="right")
    said = f"One rank with a cap of {model.cap_mb:g} MB: step {ms(model.step_ns)}"
    page.write(LEFT, TOP - 0.42, said, 11, bold=True)
    page.legend(_legend(), LEFT + 0.01, TOP - 0.14, STEP)
    below = top + place.bottom + 0.44
    page.write(LEFT + STEP / 2, below, "time in the step (ms)", 9, style.GREY, ha="center")
    p = model.breakdown
    four = {
        "compute only": p.compute_only_ns,
        "overlapped": p.overlapped_ns,
        "exposed": p.exposed_ns,
        "idle": p.idle_ns,
    }
    said = ",  ".join(f"{name} {ms(ns)}" for name, ns in four.items())
    page.write_fitting(LEFT, below + 0.36, f"{ms(p.step_ns)} = {said}", 9.5, STEP)


def _legend() -> list[tuple[str, style.Look]]:
    kinds = {"forward": "forward", "backward": "backward", "optimizer": "optimizer"}
    swatches: list[tuple[str, style.Look]] = [
        (word, style.filled(style.FACE[kind])) for kind, word in kinds.items()
    ]
    swatches.append(("all-reduce", style.filled(style.MOVING)))
    swatches.append(("overlap", {**OVERLAP, "linewidth": 0}))
    return [*swatches, ("exposed", {**EXPOSED, "linewidth": 0.8})]


def _curve(page: Page, model: CapSweep) -> None:
    axes = page.axes(CURVE, TOP, WIDE, HIGH - 0.28)
    caps, times = zip(*((cap, ns / 1e6) for cap, ns in model.curve), strict=True)
    alone, high = model.compute_ns / 1e6, max(times)
    near = min(times) - alone < high - min(times) or high == min(times)
    low = alone if near else min(times)  # leave the line of compute alone out if it is far below
    room = (high - low or high) * 0.12
    axes.set(xscale="log", xlim=(caps[0] / 1.3, caps[-1] * 1.3), facecolor="none")
    axes.set_ylim(low - 2 * room, high + 2.2 * room)
    _scale(axes)
    axes.plot(caps, times, color=style.BACKWARD, linewidth=1.8, marker="o", markersize=3, zorder=3)
    axes.axhline(alone, color=style.GREY, linewidth=1, linestyle=(0, (4, 2)), zorder=2)
    cap, ns = model.best
    look: style.Look = {"linestyle": "", "zorder": 4, "clip_on": False}
    axes.plot([cap], [ns / 1e6], marker="o", markersize=10, markeredgecolor=style.OPTIMIZER,
              markerfacecolor="none", markeredgewidth=1.8, **look)  # fmt: skip
    axes.plot([model.cap_mb], [model.step_ns / 1e6], marker="D", markersize=6,
              color=style.EXPOSED, **look)  # fmt: skip
    page.write(CURVE, TOP - 0.42, "Step time against bucket cap", 11, bold=True)
    entries = _marks(model)
    x = CURVE + 0.06
    for text, marker, color, face in entries:
        mark: style.Look = {"markeredgecolor": color, "markerfacecolor": face}
        page.add(
            Line2D([x], [TOP - 0.14], marker=marker, markersize=6, markeredgewidth=1.5, **mark)
        )
        page.write(x + 0.11, TOP - 0.14, text, 9)
        x += page.text_width(text, 9) + 0.34
    page.write(CURVE + WIDE / 2, TOP + HIGH + 0.13, "cap (MB)", 9, style.GREY, ha="center")
    if near:
        said, backed = f"compute alone {ms(model.compute_ns)}", {"facecolor": "white", "pad": 0.6}
        more: style.Look = {"color": style.GREY, "family": style.FONT, "size": 8.5}
        more |= {"ha": "right", "va": "top", "bbox": {**backed, "edgecolor": "none"}}
        axes.annotate(said, (1, low), (0, -3), axes.get_yaxis_transform(),
                      textcoords="offset points", **more)  # fmt: skip


def _marks(model: CapSweep) -> list[tuple[str, str, str, str]]:
    """Return the text, marker, edge colour and face colour of the two marked points."""
    cap, ns = model.best
    return [
        (f"now {ms(model.step_ns)}", "D", style.EXPOSED, style.EXPOSED),
        (f"best {ms(ns)} at {cap:g} MB", "o", style.OPTIMIZER, "white"),
    ]


def _scale(axes: Axes) -> None:
    plain(axes)
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda cap, _: f"{cap:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda t, _: f"{t:,g} ms"))
    axes.grid(axis="y", color=style.GRID, linewidth=0.8, zorder=0.5)
    axes.tick_params(axis="y", length=0)
