"""`draw_timeline`: the timeline as a static figure: one row a rank, and where its time went."""

from collections.abc import Iterator
from typing import Any

from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ddpkit.view import style, words
from ddpkit.view.lanes import Bar
from ddpkit.view.model import Row, Timeline
from ddpkit.view.page import Box, Page, bars
from ddpkit.view.places import Place, places

LEFT, MIDDLE, RIGHT = 1.32, 7.08, 2.08  # inches: margin with names, timeline, parts
PANEL = LEFT + MIDDLE + 0.32  # where the parts begin
TOP, BOTTOM = 1.08, 0.54

OVERLAP = {"facecolor": style.BACKWARD, "edgecolor": style.MOVING, "hatch": style.OVERLAP_HATCH}
EXPOSED = {"facecolor": "white", "edgecolor": style.EXPOSED, "hatch": style.EXPOSED_HATCH}


def draw_timeline(model: Timeline) -> Figure:
    """A figure of 11 inches width; its height follows the number of ranks. Shows nothing itself."""
    if not (model.has_compute or model.has_comm):
        page = Page(1.0)
        page.write(0.2, 0.3, model.title, 14, bold=True)
        page.write(0.2, 0.65, model.headline, 10)
        return page.figure
    rows = list(places(model))
    height = rows[-1].bottom + 0.04
    page = Page(TOP + height + BOTTOM + (0.2 if model.note else 0.0))
    timeline = page.axes(LEFT, TOP, MIDDLE, height)
    panel = page.axes(PANEL, TOP, RIGHT, height)
    _scales(model, timeline, panel, height)
    for row, place in zip(model.rows, rows, strict=True):
        _row(page, timeline, model, row, place)
        _parts(page, panel, model, row, place)
    _arrows(timeline, model, rows)
    _headings(page, model)
    return page.figure


def _scales(model: Timeline, timeline: Axes, panel: Axes, height: float) -> None:
    """Times are drawn in ms."""
    timeline.set(xlim=(0, _right(model)), ylim=(height, 0))
    panel.set(xlim=(0, 100), ylim=(height, 0), xticks=(0, 50, 100))
    timeline.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 2.5, 5, 10]))
    panel.xaxis.set_major_formatter(
        FuncFormatter(lambda x, _: f"{x:.0f}%" if x == 100 else f"{x:.0f}")
    )
    for axes in (timeline, panel):
        axes.set(yticks=(), facecolor="none")
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.spines["bottom"].set_color(style.GREY)
        axes.tick_params(colors=style.GREY, labelsize=9, labelfontfamily=style.FONT)
    timeline.grid(axis="x", color=style.GRID, linewidth=0.8, zorder=0.5)
    timeline.set_axisbelow(True)


def _right(model: Timeline) -> float:
    """The right end of the time axis in ms: a little beyond the last bar."""
    return 1.005 * model.length_ns / 1e6 or 1.0


def _row(page: Page, axes: Axes, model: Timeline, row: Row, place: Place) -> None:
    bars(axes, [(0, place.top, _right(model), place.bottom)], facecolor=style.BAND, zorder=0.2)
    _names(page, model, row, place)
    if model.has_compute:
        _draw(axes, row.compute, place.compute)
        _draw_labels(page, axes, row.labels, place.compute)
    for lane, where in zip(row.lanes, place.lanes, strict=False):
        _draw(axes, lane, where)
        _draw_labels(page, axes, lane, where)
    if model.has_compute and model.has_comm:
        _hatch(axes, [_box(bar, place.strip) for bar in row.overlap], OVERLAP, 0)
        boxes = [_box(bar, place.compute) for bar in row.exposed]
        _hatch(axes, boxes, EXPOSED, 0.8)
        for bar, box in zip(row.exposed, boxes, strict=True):
            page.label(axes, box, bar.texts, 8, color=style.EXPOSED, bold=True, boxed=True)
    if model.whole == "step" and row.window[1]:
        end = row.window[1] / 1e6
        axes.plot([end, end], [place.top, place.bottom], color=style.INK, linewidth=1.4, zorder=5)


def _draw(axes: Axes, drawn: list[Bar], where: tuple[float, float]) -> None:
    """The bars of a lane. White edges part neighbours, where there is room for an edge."""
    pixel = _pixel(axes)
    boxes = [_box(bar, where, least=0.6 * pixel) for bar in drawn]
    wide = [box[2] - box[0] > 4 * pixel for box in boxes]
    inset = 0.35 / 72  # half an edge: so bars without edges are as high as those with
    boxes = [
        box if is_wide else (box[0], box[1] + inset, box[2], box[3] - inset)
        for box, is_wide in zip(boxes, wide, strict=True)
    ]
    for edged in (True, False):
        chosen = [at for at, is_wide in enumerate(wide) if is_wide == edged]
        faces = [style.FACE[drawn[at].kind] for at in chosen]
        edges = [style.MOVING if drawn[at].kind == "waiting" else "white" for at in chosen]
        bars(
            axes,
            [boxes[at] for at in chosen],
            facecolors=faces,
            edgecolors=edges if edged else "none",
            linewidth=0.7 if edged else 0,
            zorder=3,
        )


def _hatch(axes: Axes, boxes: list[Box], look: dict[str, Any], linewidth: float) -> None:
    """Hatched boxes; plain ones where no hatching could be seen, for it is slow to draw."""
    least = 4 * _pixel(axes)
    wide = [box for box in boxes if box[2] - box[0] > least]
    bars(axes, wide, linewidth=linewidth, zorder=3.5, **look)
    narrow = [(a, b, max(c, a + least / 5), d) for a, b, c, d in boxes if c - a <= least]
    bars(axes, narrow, linewidth=0, zorder=3.5, facecolor=look["edgecolor"])


def _pixel(axes: Axes) -> float:
    """The width of a pixel, in ms."""
    return float(axes.get_xlim()[1]) / (MIDDLE * style.DPI)


def _draw_labels(page: Page, axes: Axes, drawn: list[Bar], where: tuple[float, float]) -> None:
    if where[1] - where[0] < 0.13:  # lower than a line of type
        return
    for bar in drawn:
        if bar.texts:
            color, face = style.LABEL[bar.kind], style.FACE[bar.kind]
            page.label(axes, _box(bar, where), bar.texts, 8, color=color, halo=face)


def _box(bar: Bar, where: tuple[float, float], least: float = 0.0) -> Box:
    start, end = bar.start / 1e6, bar.end / 1e6
    return start, where[0], max(end, start + least), where[1]


def _names(page: Page, model: Timeline, row: Row, place: Place) -> None:
    """The names of the rank and of its lanes, left of the row."""
    compute, lanes = place.compute, place.lanes
    y = TOP + (sum(compute) / 2 if model.has_compute else (lanes[0][0] + lanes[-1][1]) / 2)
    page.write(
        0.62, y, f"rank {row.rank}", 11 if len(model.rows) <= 8 else 9.5, bold=True, ha="right"
    )
    if model.has_compute:
        page.write(LEFT - 0.08, y, "compute", 8.5, style.GREY, ha="right")
    if lanes:
        y = TOP + (lanes[0][0] + lanes[-1][1]) / 2
        page.write(LEFT - 0.08, y, "comm", 8.5, style.GREY, ha="right")


def _parts(page: Page, axes: Axes, model: Timeline, row: Row, place: Place) -> None:
    """The four parts of the row's rank as one bar of 100 %, with its numbers above."""
    p = row.parts
    length = f"{model.whole} {words.ms(p.step_ns)}"
    page.write(PANEL, TOP + place.header, length, 8.5)
    texts: tuple[str, ...] = ()
    if p.hidden is not None and model.has_compute:
        hidden = words.percent(p.overlapped_ns, p.comm_ns)
        texts = f"{hidden} of comm hidden", f"{hidden} hidden"
    elif row.waiting_ns:
        texts = (
            f"{words.ms(row.waiting_ns)} waiting for peers",
            f"{words.ms(row.waiting_ns)} waiting",
        )
    room = RIGHT - page.text_width(length, 8.5) - 0.08
    for text in [text for text in texts if page.text_width(text, 8.5) <= room][:1]:
        page.write(PANEL + RIGHT, TOP + place.header, text, 8.5, ha="right")
    left = 0.0
    for ns, look, label in (
        (p.compute_only_ns, {"facecolor": style.BACKWARD}, {"color": "white"}),
        (p.overlapped_ns, OVERLAP, {"boxed": True}),
        (p.exposed_ns, EXPOSED, {"color": style.EXPOSED, "boxed": True}),
        (p.idle_ns, {"facecolor": style.IDLE}, {}),
    ):
        share = 100 * ns / p.step_ns if p.step_ns else 0.0
        box = left, place.bar[0], left + share, place.bar[1]
        bars(axes, [box] if ns else [], linewidth=0.8 if "hatch" in look else 0, zorder=3, **look)
        page.label(axes, box, [f"{share:.0f}%"], 8.5, bold=True, **label)
        left += share


def _arrows(axes: Axes, model: Timeline, rows: list[Place]) -> None:
    """Each message as a line from its send to the end of its recv, as in a space-time diagram."""
    lines = []
    for message in model.messages:
        (rank, start), (to, end) = message.source, message.target
        if rank < to:
            y, to_y = rows[rank].bottom, rows[to].top
        else:
            y, to_y = rows[rank].top, rows[to].bottom
        lines.append([(start / 1e6, y), (end / 1e6, to_y)])
    if lines:
        arrows = LineCollection(lines, linewidth=0.9, color=style.ARROW, zorder=2.5)
        axes.add_collection(arrows, autolim=False)
        ends = zip(*(line[1] for line in lines), strict=True)
        axes.plot(*ends, linestyle="", marker="o", markersize=3.4, color=style.ARROW, zorder=5)


def _headings(page: Page, model: Timeline) -> None:
    """Everything written around the plots."""
    page.write_fitting(LEFT, 0.24, model.title, 14.5, MIDDLE, bold=True)
    page.write_fitting(LEFT, 0.53, model.headline, 10, MIDDLE)
    page.legend(_kinds(model), LEFT + 0.01, 0.84, MIDDLE)
    went = "step" if model.whole == "step" else "time"
    page.write(PANEL, 0.24, f"Where the {went} went", 11, bold=True)
    page.legend(_part_kinds(model), PANEL + 0.01, 0.53, RIGHT)
    bottom = page.height - (0.37 if model.note else 0.17)
    if model.note:
        room = PANEL + RIGHT - LEFT
        page.write_fitting(LEFT, page.height - 0.15, model.note, 9, room, color=style.GREY)
    since = f"time since the first rank began the {model.whole} (ms)"
    page.write(LEFT + MIDDLE / 2, bottom, since, 9, style.GREY, ha="center")
    page.write(PANEL + RIGHT / 2, bottom, f"share of the {model.whole}", 9, style.GREY, ha="center")


def _kinds(model: Timeline) -> Iterator[tuple[str, dict[str, Any]]]:
    """The legend of what is in the timeline, and of nothing else."""
    words_of = {
        "forward": "forward",
        "backward": "backward",
        "optimizer": "optimizer",
        "span": "your own span",
        "moving": "communication",
        "waiting": "waiting for a peer",
    }
    present = {bar.kind for row in model.rows for bar in row.compute}
    present |= {bar.kind for row in model.rows for lane in row.lanes for bar in lane}
    for kind, word in words_of.items():
        if kind in present:
            edge = style.MOVING if kind == "waiting" else "none"
            yield word, {"facecolor": style.FACE[kind], "edgecolor": edge, "linewidth": 0.8}
    if model.has_compute and any(row.overlap for row in model.rows):
        yield "overlap", {**OVERLAP, "linewidth": 0}
    if model.has_compute and any(row.exposed for row in model.rows):
        yield "exposed comm", {**EXPOSED, "linewidth": 0.8}


def _part_kinds(model: Timeline) -> Iterator[tuple[str, dict[str, Any]]]:
    if model.has_compute:
        yield "compute", {"facecolor": style.BACKWARD}
    if any(row.parts.overlapped_ns for row in model.rows):
        yield "overlap", {**OVERLAP, "linewidth": 0}
    if any(row.parts.exposed_ns for row in model.rows):
        yield "exposed", {**EXPOSED, "linewidth": 0.8}
    yield "idle", {"facecolor": style.IDLE}
