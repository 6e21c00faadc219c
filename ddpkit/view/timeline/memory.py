"""`memory_track`: the memory, over the time of a timeline, of the rank that held most."""

from dataclasses import dataclass

from ddpkit.text import prose, size
from ddpkit.trace import MEMORY_KINDS, MemoryLevel, Trace, name_of
from ddpkit.trace.memory import inside


@dataclass(frozen=True, slots=True)
class MemoryTrack:
    """The memory of a rank over time. Times in ns since the picture's left edge."""

    rank: int
    name: str
    steps: list[tuple[int, int, tuple[int, ...]]]  # start, end, bytes by `MEMORY_KINDS`
    peak: MemoryLevel
    text: str


def memory_track(trace: Trace, pixel_ns: float) -> MemoryTrack | None:
    """Return the memory over time of the rank that held most; None without memory levels."""
    peaks = {rank: level for rank in trace.ranks if (level := trace.peak(rank)) is not None}
    if not peaks:
        return None
    rank = max(peaks, key=lambda rank: peaks[rank].total)
    start, end = trace.window_of(rank)
    left = trace.start_ns
    last = max(end, peaks[rank].ns)  # the peak may come at the end of the window, or after it
    levels = inside(trace.memory[rank], start, last + (last == peaks[rank].ns))
    steps: list[tuple[int, int, tuple[int, ...]]] = []
    times = [max(level.ns, start) - left for level in levels] + [last - left]
    for level, since, until in zip(levels, times, times[1:], strict=False):
        if steps and since - steps[-1][0] < pixel_ns:  # a pixel shows its highest level
            most = max(steps[-1][2], level.nbytes, key=sum)
            steps[-1] = steps[-1][0], until, most
        else:
            steps.append((since, until, level.nbytes))
    return MemoryTrack(
        rank, name_of(trace.facts, rank), steps, peaks[rank], prose(*_lines(trace, peaks, rank))
    )


def _lines(trace: Trace, peaks: dict[int, MemoryLevel], fullest: int) -> list[str]:
    """Return a line for each rank, or one for all ranks if they held nearly the same."""
    most = peaks[fullest]
    if len(peaks) == 1 or not all(_alike(level, most) for level in peaks.values()):
        return [
            f"Memory: {name_of(trace.facts, rank)} held at most {size(level.total)}: "
            f"{_by_kind(level)}."
            for rank, level in peaks.items()
        ]
    least = size(min(level.total for level in peaks.values()))
    if least == size(most.total):
        return [f"Memory: each rank held at most {least}: {_by_kind(most)}."]
    return [
        f"Memory: each rank held at most {least} to {size(most.total)}; "
        f"{name_of(trace.facts, fullest)}: {_by_kind(most)}."
    ]


def _alike(level: MemoryLevel, most: MemoryLevel) -> bool:
    """Return True if no kind of memory differs by more than 2 % of the fullest rank's bytes."""
    pairs = zip(level.nbytes, most.nbytes, strict=True)
    return all(abs(ours - theirs) <= most.total / 50 for ours, theirs in pairs)


def _by_kind(level: MemoryLevel) -> str:
    """Return the bytes of each kind: "parameters 17 kB, gradients 17 kB", without kinds of 0."""
    pairs = zip(MEMORY_KINDS, level.nbytes, strict=True)
    return ", ".join(f"{kind} {size(part)}" for kind, part in pairs if part) or "nothing"
