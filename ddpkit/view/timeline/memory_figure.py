"""`draw_memory`: the memory of the rank that held most, drawn under a timeline."""

from ddpkit.text import size
from ddpkit.trace import MEMORY_KINDS
from ddpkit.view.drawing import style
from ddpkit.view.drawing.layout import LEFT, PANEL, RIGHT
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot
from ddpkit.view.timeline.memory import MemoryTrack

GAP, HIGH = 0.44, 0.62  # inches: below the axis of time, and the track
COLOR = dict(
    zip(
        MEMORY_KINDS,
        (
            style.BACKWARD,
            style.EXPOSED,
            style.OPTIMIZER,
            style.EDGE["moving"],
            style.EDGE["forward"],
        ),
        strict=True,
    )
)


def draw_memory(page: Page, track: MemoryTrack, top: float, width: float, end_ms: float) -> None:
    """Draw a track at ``top`` inches, over the axis of time that ends at ``end_ms``."""
    plot = Plot(page, LEFT, top, width, HIGH, end_ms)
    high = HIGH / max(1, track.peak.total)
    plot.bars([(0, 0, end_ms, HIGH)], facecolor=style.BAND, zorder=0.2)
    under = [0] * len(track.steps)
    for place, kind in enumerate(MEMORY_KINDS):
        boxes = []
        for step, (since, until, held) in enumerate(track.steps):
            low, under[step] = under[step], under[step] + held[place]
            if held[place]:
                above = HIGH - under[step] * high
                boxes.append((since / 1e6, above, until / 1e6, HIGH - low * high))
        plot.bars(boxes, facecolor=COLOR[kind], linewidth=0, zorder=3)
    at_ns = next(since for since, _, held in track.steps if sum(held) == track.peak.total)
    plot.dots([(at_ns / 1e6, 0.0)], markersize=4, color=style.INK, zorder=5)
    middle = top + HIGH / 2
    page.write_fitting(0.62, middle, track.name, 9.5, 0.58, bold=True, ha="right")
    page.write(LEFT - 0.08, middle, "memory", 8.5, style.GREY, ha="right")
    words = f"most: {size(track.peak.total)}"
    page.write_fitting(PANEL, top - 0.02, words, 10, RIGHT, bold=True)
    pairs = zip(MEMORY_KINDS, track.peak.nbytes, strict=True)
    ever = [any(held) for held in zip(*(held for *_, held in track.steps), strict=True)]
    # every kind that the track shows at some time, even if the kind has no bytes at the peak
    shown = [pair for pair, drawn in zip(pairs, ever, strict=True) if drawn]
    apart = min(0.14, HIGH / max(1, len(shown)))
    for line, (kind, part) in enumerate(shown):
        y = top + 0.14 + apart * line
        page.bars([(PANEL, y - 0.045, PANEL + 0.12, y + 0.045)], facecolor=COLOR[kind])
        page.write(PANEL + 0.18, y, f"{kind} {size(part)}", 8)
