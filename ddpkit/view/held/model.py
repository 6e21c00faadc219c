"""`held_picture`: the bytes of one rank over time, by run, beside a limit. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ddpkit.errors import TraceError
from ddpkit.text import size
from ddpkit.trace import Trace
from ddpkit.trace.memory import MEMORY_KINDS, MemoryLevel
from ddpkit.view.drawing.words import ms

MOST_RUNS = 6


@dataclass(frozen=True, slots=True)
class Line:
    """The bytes on a rank of one run over time: a pair (ns, bytes) for each change."""

    label: str
    levels: tuple[tuple[int, int], ...]
    end_ns: int
    out_of_memory: bool

    @property
    def most(self) -> tuple[int, int]:
        """The moment of the highest level, in ns, and the level's bytes."""
        return max(self.levels, key=lambda level: level[1])

    def over(self, limit: float) -> int | None:
        """Return the first moment above a limit, in ns; None if the line stays below the limit."""
        return next((ns for ns, nbytes in self.levels if nbytes > limit), None)

    @property
    def corners(self) -> tuple[tuple[int, int], ...]:
        """The points of the line as steps: each level ends where the next level begins."""
        ends = [ns for ns, _ in self.levels[1:]] + [self.end_ns]
        steps = zip(self.levels, ends, strict=True)
        return tuple(at for (ns, nbytes), end in steps for at in ((ns, nbytes), (end, nbytes)))


@dataclass(frozen=True, slots=True)
class HeldPicture:
    """Lines of several runs on common axes."""

    lines: tuple[Line, ...]
    rank: int
    kind: str | None  # one of MEMORY_KINDS; None for all bytes
    limit: float | None  # bytes

    @property
    def title(self) -> str:
        """The subject of the picture."""
        return f"Bytes of {self.kind or 'all kinds'} on rank {self.rank} over emulated time"

    def words(self, line: Line) -> str:
        """Return a run's highest level, its relation to the limit, and its end, in words."""
        at, most = line.most
        said = f"{line.label}: {size(most)} at {ms(at)}"
        if self.limit is not None and (over := line.over(self.limit)) is not None:
            said += f", over the limit of {size(round(self.limit))} from {ms(over)} on"
        elif self.limit is not None:
            said += f", within the limit of {size(round(self.limit))}"
        return said + (f", out of memory at {ms(line.end_ns)}" if line.out_of_memory else "")

    @property
    def finding(self) -> str:
        """The highest and the lowest peak in one sentence."""
        by_peak = sorted(self.lines, key=lambda line: line.most[1])
        low, high = by_peak[0], by_peak[-1]
        said = f"{high.label!r} holds up to {size(high.most[1])}"
        if len(by_peak) == 1:
            return f"{said}."
        return f"{said}, and {low.label!r} up to {size(low.most[1])}."

    @property
    def text(self) -> str:
        """The picture in words and numbers, a line for each run."""
        return "\n".join(map(self.words, self.lines))


def held_picture(
    traces: Mapping[str, Trace],
    failed: Sequence[str] = (),
    *,
    rank: int = 0,
    kind: str | None = "activations",
    limit: float | None = None,
) -> HeldPicture:
    """Return the picture of these runs; the runs in ``failed`` ran out of memory.

    Raises ValueError for no run, more runs than can be drawn or an unknown kind, and TraceError for
    a trace without memory levels of the rank.
    """
    if not 1 <= len(traces) <= MOST_RUNS:
        raise ValueError(f"show_held draws 1 to {MOST_RUNS} runs, not {len(traces)}")
    if kind is not None and kind not in MEMORY_KINDS:
        raise ValueError(f"kind={kind!r}: the kinds of memory are {', '.join(MEMORY_KINDS)}")
    if limit is not None and limit <= 0:
        raise ValueError(f"limit={limit}: a limit is a number of bytes above 0")
    lines = []
    for label, trace in traces.items():
        levels = trace.memory.get(rank, ())
        if not levels:
            raise TraceError(
                f"{label!r} has no memory levels of rank {rank}: run it on a machine with a "
                'bandwidth, such as Cluster(4, machine="1 TFLOP/s, 1000 TB/s")'
            )
        lines.append(_line(label, trace, levels, rank, kind, label in failed))
    return HeldPicture(tuple(lines), rank, kind, limit)


def _line(
    label: str,
    trace: Trace,
    levels: Sequence[MemoryLevel],
    rank: int,
    kind: str | None,
    failed: bool,
) -> Line:
    start, end = trace.window_of(rank)
    found = [(0, 0)]
    for level in levels:
        nbytes = level.of(kind) if kind else level.total
        found.append((max(0, level.ns - start), nbytes))
    last = found[-1][0]
    return Line(label, tuple(found), max(end - start, last), failed)
