"""`draw_pipeline`: a box for each micro-batch and stage, coloured by the micro-batch."""

from collections.abc import Sequence
from dataclasses import replace

from matplotlib.figure import Figure

from ddpkit.view.drawing import style
from ddpkit.view.drawing.layout import LEFT
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.pipeline.model import OpBox, PipelinePicture, PipelineStep, StageRow

TOP, HEAD, BOTTOM = 0.86, 0.3, 0.46  # inches; the head of each step is a line of text
WIDE = style.WIDTH - LEFT - 1.75
BESIDE = LEFT + WIDE + 0.18
KINDS = {"F": "forward: faint", "B": "backward: full", "W": "of the weights: framed"}


def draw_pipeline(model: PipelinePicture) -> Figure:
    """Return a figure of 11 inches width; its height follows the number of steps and ranks."""
    rows = sum(len(step.rows) for step in model.steps)
    high = 0.34 if rows <= 8 else 0.25 if rows <= 16 else 0.18
    heads = HEAD * (len(model.steps) if _headed(model) else 0)
    height = heads + rows * high + 0.04
    above = TOP - (0.2 if _headed(model) else 0.0)
    page = Page(above + height + BOTTOM + (0.2 if model.note else 0.0))
    plot = Plot(page, LEFT, above, WIDE, height, 1.002 * model.length_ns / 1e6)
    plot.axis(plot.ticks(8))
    _headings(page, model)
    top = 0.0
    for step in model.steps:
        if _headed(model):
            room = style.WIDTH - LEFT - 0.2
            said = f"{step.label}: {step.finding}"
            page.write_fitting(LEFT, above + top + HEAD / 2, said, 10, room)
            top += HEAD
        for row in step.rows:
            _row(plot, step, row, (top + 0.03, top + high - 0.03), model.until_ns)
            top += high
        if model.played < 1:  # a line at the end of the shown time, below the step's head
            at = model.until_ns / 1e6
            line = (at, top - high * len(step.rows)), (at, top)
            plot.lines([line], colors=style.INK, linewidths=1.4, zorder=5)
    return page.figure


def _headed(model: PipelinePicture) -> bool:
    return any(step.label for step in model.steps)


def _headings(page: Page, model: PipelinePicture) -> None:
    page.write_fitting(LEFT, 0.24, model.title, 14.5, WIDE, bold=True)
    if not _headed(model):
        page.write_fitting(LEFT, 0.53, model.steps[0].finding, 10, style.WIDTH - LEFT - 0.2)
    present = {box.kind for step in model.steps for row in step.rows for box in row.boxes}
    entries = [(word, _look(kind, 0)) for kind, word in KINDS.items() if kind in present]
    entries.append(("bubble", {"facecolor": style.IDLE, "linewidth": 0}))
    y = 0.53 if _headed(model) else 0.75
    page.legend(entries, LEFT + 0.01, y, WIDE)
    page.write(BESIDE, y, "bubble", 8.5, style.GREY)
    if any(row.held is not None for step in model.steps for row in step.rows):
        page.write(BESIDE + 0.72, y, "held", 8.5, style.GREY)
    under = page.height - (0.3 if model.note else 0.1)
    page.write(LEFT + WIDE / 2, under, "ms since the step began", 9, style.GREY, ha="center")
    if model.note:
        room = style.WIDTH - LEFT - 0.2
        page.write_fitting(LEFT, page.height - 0.11, model.note, 9, room, color=style.GREY)


def _row(
    plot: Plot, step: PipelineStep, row: StageRow, where: tuple[float, float], until: int
) -> None:
    """Draw one rank's boxes up to ``until``, in ns, on a grey band that stands for idle time."""
    boxes = [replace(box, end=min(box.end, until)) for box in row.boxes if box.start < until]
    page, middle = plot.page, plot.top + sum(where) / 2
    points = 9.5 if where[1] - where[0] > 0.2 else 8.0
    page.write(LEFT - 0.1, middle, f"rank {row.rank}", points, bold=True, ha="right")
    page.write(BESIDE, middle, f"{100 * row.bubble:.1f}%", points)
    if row.held is not None:
        page.write(BESIDE + 0.72, middle, f"{row.held}", points)
    whole = (0.0, where[0], min(step.length_ns, until) / 1e6, where[1])
    plot.bars([whole], facecolor=style.IDLE, linewidth=0, zorder=1)
    looks = [_look(box.kind, box.micro) for box in boxes]
    places = [(box.start / 1e6, where[0], box.end / 1e6, where[1]) for box in boxes]
    if places:
        faces = [look["facecolor"] for look in looks]
        edges = [look["edgecolor"] for look in looks]
        lines = [1.4 if box.kind == "W" else 0.7 for box in boxes]
        plot.bars(places, facecolors=faces, edgecolors=edges, linewidth=lines, zorder=3)
    for box, place in zip(boxes, places, strict=True):
        plot.label(place, _texts(box), min(8.5, points), color=_ink(box))


def _texts(box: OpBox) -> Sequence[str]:
    return box.name, f"{box.kind}{box.micro}", str(box.micro)


def _look(kind: str, micro: int) -> style.Look:
    """Return a box's look: pale for a forward, full for a backward, framed for weight gradients."""
    tint = style.tint(micro)
    face = {"F": style.lighter(tint), "B": tint, "W": "#FFFFFF"}[kind]
    edge = "white" if kind == "B" and face == style.outline(tint) else style.outline(tint)
    return {"facecolor": face, "edgecolor": edge, "linewidth": 0.8}


def _ink(box: OpBox) -> str:
    return style.ink_on(_look(box.kind, box.micro)["facecolor"])
