"""`timeline_model`: a trace as the bars and numbers of its timeline. Pure; needs no matplotlib."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.errors import TraceError
from ddpkit.text import prose, rank_list
from ddpkit.trace import Trace
from ddpkit.trace.waits import waited_for, waiting
from ddpkit.view.drawing import words
from ddpkit.view.drawing.rows import PIXELS, RankRow, RowBuilder
from ddpkit.view.timeline.memory import MemoryTrack, memory_track

MAX_MESSAGES = 60  # more arrows would hide the bars that they connect
MANY = 16  # ranks: a longer table hides the ranks that differ
MAX_AT_ONCE = 3  # messages of a rank at one time: more arrows could not be told apart


@dataclass(frozen=True, slots=True)
class Arrow:
    """A message, from (rank, time when the bytes began to move) to (rank, time of arrival).

    Times in ns since the picture's left edge.
    """

    source: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Timeline:
    """The numbers of the picture, and its text."""

    title: str
    headline: str
    rows: list[RankRow]
    messages: list[Arrow]  # messages to draw as arrows
    length_ns: int
    whole: str  # the whole of which the parts are shares: "step" or "run"
    note: str  # conditions that a reader must know to read the numbers right; may be ""
    text: str  # the picture in words and numbers
    memory: MemoryTrack | None = None  # only a modelled machine has memory

    @property
    def has_compute(self) -> bool:
        """Return True if any rank computed."""
        return any(row.breakdown.compute_ns for row in self.rows)

    @property
    def has_comm(self) -> bool:
        """Return True if any rank communicated."""
        return any(row.lanes for row in self.rows)


def timeline_model(
    trace: Trace,
    step: int | None = None,
    rank: int | None = None,
    pixels: int = PIXELS,
    *,
    short: bool = False,
) -> Timeline:
    """Return the timeline of a whole trace or of a step, with all ranks or a single rank.

    ``pixels`` is the drawn width: bars too small for a pixel are merged, while all numbers come
    from the spans. With ``short`` and more than `MANY` ranks, the text's tables show three ranks:
    those with the most, the median and the least exposed communication.
    Raises TraceError if there is no such step or rank.
    """
    shown = trace
    if step is not None:
        shown = trace.step(step)
        step %= trace.steps
    if rank is not None:
        shown = _alone(shown, rank)
    builder = RowBuilder(shown, trace, pixels)
    rows = [builder.row(each) for each in (shown.recorded_ranks if rank is None else [rank])]
    parts = {row.rank: row.breakdown for row in rows}
    compute = any(part.compute_ns for part in parts.values())
    comm = any(row.lanes for row in rows)
    whole = "run" if step is None else "step"
    title = words.title(shown, "Run" if step is None else f"Step {step}")
    finding = words.headline(parts, shown.facts, compute=compute, comm=comm)
    died = {row.rank: row.died for row in rows if row.died is not None}
    deaths = words.deaths(died, shown.facts)
    note = " ".join(filter(None, [deaths, words.note(shown.facts, compute=compute, comm=comm)]))
    lines = [prose(title), prose(finding), prose(deaths)]
    if compute or comm:
        labels = _extremes(rows) if short and len(rows) > MANY else {r.rank: r.name for r in rows}
        by_rank = {row.rank: row for row in rows}
        named = {label: by_rank[each] for each, label in labels.items()}
        waits = {name: row.waiting_ns for name, row in named.items()}
        lines += words.table({name: row.breakdown for name, row in named.items()}, waits, whole)
        only = [*labels] if len(labels) < len(rows) else []
        windows = {each: [shown.window_of(each)] for each in shown.recorded_ranks}
        lines += words.copied({name: row.copied for name, row in named.items()})
        lines.append(prose(words.starved(shown)))
        waited = words.waited(waited_for(builder.comm, builder.last_in, windows), shown.facts)
        # compute=True leaves out the sentence on "idle", which only the picture needs
        said = words.note(shown.facts, compute=True, comm=comm)
        lines += [waited, prose(said)]
    if comm and rank is None:
        lines.append(shown.traffic.table(only))
    memory = memory_track(shown, builder.pixel_ns)
    if memory is not None:
        lines.append(memory.text)
    text = "\n".join(line for line in lines if line)
    arrows = _arrows(builder) if max(len(row.lanes) for row in rows) <= MAX_AT_ONCE else []
    return Timeline(title, finding, rows, arrows, builder.length, whole, note, text, memory)


def few(model: Timeline) -> list[tuple[int, str]]:
    """Return the ranks to show first, with labels; no ranks if there are at most `MANY`."""
    return sorted(_extremes(model.rows).items()) if len(model.rows) > MANY else []


def _extremes(rows: Sequence[RankRow]) -> dict[int, str]:
    """Return the ranks with the most, the median and the least exposed communication, labelled.

    Without communication, the ranks are ordered by their idle time.
    """
    comm = any(row.breakdown.comm_ns for row in rows)

    def lost(row: RankRow) -> tuple[int, int]:
        parts = row.breakdown
        return parts.exposed_ns if comm else parts.idle_ns, -row.rank

    ordered = sorted(rows, key=lost)
    worst, median, best = ordered[-1], ordered[len(ordered) // 2], ordered[0]
    labels = {"worst": worst, "median": median, "best": best}
    return {row.rank: f"{row.name} ({label})" for label, row in labels.items()}


def _alone(trace: Trace, rank: int) -> Trace:
    """Return a trace with the spans of one rank only; the other ranks have empty windows."""
    if rank not in trace.ranks:
        raise TraceError(f"there is no rank {rank}: this trace has {_range(trace.world_size)}")
    if rank not in trace.recorded_ranks:
        raise TraceError(
            f"rank {rank} was not recorded: this trace has {rank_list(trace.recorded_ranks)}"
        )
    bounds = dict.fromkeys(trace.ranks, (0, 0)) | {rank: trace.window_of(rank)}
    memory = {each: held for each, held in trace.memory.items() if each == rank}
    return Trace(trace.of(rank), trace.world_size, trace.facts, bounds, memory)


def _range(world_size: int) -> str:
    return "rank 0 only" if world_size == 1 else f"ranks 0 to {world_size - 1}"


def _arrows(builder: RowBuilder) -> list[Arrow]:
    """Return the messages as arrows; none if there are too many, or if the trace has compute."""
    shown = {id(span) for span in builder.comm}
    pairs = [(s, r) for s, r in builder.pairs if id(s) in shown and id(r) in shown]
    if len(pairs) > MAX_MESSAGES or any(span.is_compute for span in builder.trace.spans):
        return []
    return [
        Arrow((s.rank, waiting(s)[1] - builder.origin), (r.rank, r.end_ns - builder.origin))
        for s, r in pairs
    ]
