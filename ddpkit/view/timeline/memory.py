"""The memory of the fullest rank, under a timeline: `memory_track`, pure, and `draw_memory`."""

from dataclasses import dataclass

from ddpkit.text import prose, size
from ddpkit.trace import MEMORY_KINDS, MemoryLevel, Trace
from ddpkit.trace.memory import inside
from ddpkit.view.drawing import style
from ddpkit.view.drawing.layout import LEFT, PANEL, RIGHT
from ddpkit.view.drawing.page import Page
from ddpkit.view.drawing.plot import Plot

GAP, HIGH = 0.44, 0.62  # inches: below the axis of time, and the track
COLOR = dict(
    zip(
        MEMORY_KINDS,
        (style.BACKWARD, style.EXPOSED, style.OPTIMIZER, style.MOVING, style.FORWARD),
        strict=True,
    )
)


@dataclass(frozen=True, slots=True)
class MemoryTrack:
    """What a rank held over time. Times in ns since the picture's left edge."""

    rank: int
    steps: list[tuple[int, int, tuple[int, ...]]]  # from, until, bytes by `MEMORY_KINDS`
    peak: MemoryLevel
    text: str


def memory_track(trace: Trace, pixel_ns: float) -> MemoryTrack | None:
    """The track of the rank that held most; None if nothing is known of memory."""
    peaks = {rank: level for rank in trace.ranks if (level := trace.peak(rank)) is not None}
    if not peaks:
        return None
    rank = max(peaks, key=lambda rank: peaks[rank].total)
    start, end = trace.window_of(rank)
    left = trace.start_ns
    levels = inside(trace.memory[rank], start, end)
    steps: list[tuple[int, int, tuple[int, ...]]] = []
    times = [max(level.ns, start) - left for level in levels] + [end - left]
    for level, since, until in zip(levels, times, times[1:], strict=False):
        if steps and since - steps[-1][0] < pixel_ns:  # of what one pixel shows, the most
            most = max(steps[-1][2], level.nbytes, key=sum)
            steps[-1] = steps[-1][0], until, most
        else:
            steps.append((since, until, level.nbytes))
    same = len({level.nbytes for level in peaks.values()}) == 1 < len(peaks)
    lines = [
        f"Memory: {'each rank' if same else f'rank {each}'} held at most {size(level.total)}: "
        f"{_by_kind(level)}."
        for each, level in [*peaks.items()][: 1 if same else None]
    ]
    return MemoryTrack(rank, steps, peaks[rank], prose(*lines))


def _by_kind(level: MemoryLevel) -> str:
    """ "parameters 17 kB, gradients 17 kB": what a level holds, and nothing of 0 bytes."""
    pairs = zip(MEMORY_KINDS, level.nbytes, strict=True)
    return ", ".join(f"{kind} {size(part)}" for kind, part in pairs if part) or "nothing"


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
    page.write(0.62, middle, f"rank {track.rank}", 9.5, bold=True, ha="right")
    page.write(LEFT - 0.08, middle, "memory", 8.5, style.GREY, ha="right")
    words = f"most: {size(track.peak.total)}"
    page.write_fitting(PANEL, top - 0.02, words, 10, RIGHT, bold=True)
    pairs = zip(MEMORY_KINDS, track.peak.nbytes, strict=True)
    shown = [(kind, part) for kind, part in pairs if part]
    apart = min(0.14, HIGH / max(1, len(shown)))
    for line, (kind, part) in enumerate(shown):
        y = top + 0.14 + apart * line
        page.bars([(PANEL, y - 0.045, PANEL + 0.12, y + 0.045)], facecolor=COLOR[kind])
        page.write(PANEL + 0.18, y, f"{kind} {size(part)}", 8)
