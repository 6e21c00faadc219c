"""`comparison`: several runs on one axis of time, and their differences. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddpkit.text import prose
from ddpkit.trace import Trace
from ddpkit.view.drawing import words
from ddpkit.view.drawing.rows import PIXELS, RankRow
from ddpkit.view.drawing.typical import step_length, typical_step
from ddpkit.view.timeline.model import Timeline, timeline_model


@dataclass(frozen=True, slots=True)
class Side:
    """A run of the comparison."""

    label: str
    timeline: Timeline

    @property
    def slowest(self) -> RankRow:
        """The row of the slowest rank; of equally slow ranks, the row with the least idle time.

        In a run without steps, every rank lasts as long as the run: a rank that finishes early
        counts as idle until the run ends.
        """
        rows = self.timeline.rows
        return max(rows, key=lambda row: (row.breakdown.step_ns, -row.breakdown.idle_ns))

    @property
    def length_ns(self) -> int:
        return self.slowest.breakdown.step_ns


@dataclass(frozen=True, slots=True)
class Comparison:
    """The picture's numbers and text. All later runs are compared with the first run."""

    sides: tuple[Side, ...]
    title: str
    notice: str
    note: str  # conditions of all runs that a reader must know to read the numbers right; may be ""
    text: str  # the picture in words and numbers

    @property
    def length_ns(self) -> int:
        """Return the length of the axis, in ns: the length of the longest run."""
        return max(side.timeline.length_ns for side in self.sides)

    @property
    def whole(self) -> str:
        """Return "step" or "run": the thing that is compared."""
        return self.sides[0].timeline.whole

    def against_first(self, side: Side) -> str:
        """Return the ratio of a run's length to the first run's, in words: "1.42× shorter than"."""
        return words.ratio(self.sides[0].length_ns, side.length_ns)


def comparison(
    traces: Sequence[Trace],
    labels: Sequence[str] = (),
    rank: int | None = 0,
    step: int | None = None,
) -> Comparison:
    """Return a comparison of one rank of each trace, or of all ranks (``rank=None``).

    Step ``step`` of each trace is compared; without ``step``, the typical step of each (see
    `typical_step`). If one of the traces has no steps, the whole traces are compared. Raises
    ValueError for fewer than two traces or labels that do not fit the traces, TraceError if there
    is no such step or rank.
    """
    if len(traces) < 2:
        raise ValueError("compare needs two runs or more: compare(before, after)")
    labels = labels or [f"run {n}" for n in range(1, len(traces) + 1)]
    if len(labels) != len(traces):
        raise ValueError(f"{len(labels)} labels for {len(traces)} runs: give a label for each run")
    steps: list[int | None] = [None] * len(traces)
    if step is not None:
        steps = [_numbered(trace, step) for trace in traces]
    elif all(trace.steps for trace in traces):
        steps = [typical_step(trace, rank) for trace in traces]
    return compare_steps(list(zip(traces, steps, strict=True)), labels, rank)


def compare_steps(
    pairs: Sequence[tuple[Trace, int | None]], labels: Sequence[str], rank: int | None
) -> Comparison:
    """Return a comparison of chosen steps of traces (None: the whole trace), on one scale."""
    longest = max(step_length(trace, k, rank) for trace, k in pairs) or 1
    timelines = [
        timeline_model(trace, k, rank, -(-PIXELS * step_length(trace, k, rank) // longest) or 1)
        for trace, k in pairs
    ]
    return _compared(tuple(map(Side, labels, timelines)))


def _numbered(trace: Trace, step: int) -> int:
    """Return a step's number from 0 on (-1 is the last step); raise TraceError for no such step."""
    trace.step(step)
    return step % trace.steps


def _compared(sides: tuple[Side, ...]) -> Comparison:
    """Return the comparison: sentences on the first and the last run, and a table of all runs."""
    first, last = sides[0], sides[-1]
    title = f"{last.label}: {words.ratio(first.length_ns, last.length_ns)} {first.label}"
    if (before := _hidden(first)) and (after := _hidden(last)):
        changed = f"communication hidden {before} → {after}"
        title += f"; {changed if before != after else f'still {after} of communication hidden'}"
    notes = {side.timeline.note for side in sides}
    note = notes.pop() if len(notes) == 1 else ""
    done = Comparison(sides, title, _notice(first, last), note, "")
    return replace(done, text="\n".join(_lines(done)))


def _hidden(side: Side) -> str:
    """Return the hidden share of communication; "" without compute or communication."""
    shares = [row.breakdown.hidden for row in side.timeline.rows]
    known = [share for share in shares if share is not None]
    return words.percents(known) if known and side.timeline.has_compute else ""


def _notice(first: Side, last: Side) -> str:
    """Return a sentence with the changed parts of the step, the largest change first."""
    a, b = first.slowest.breakdown, last.slowest.breakdown
    least = words.LITTLE * max(a.step_ns, b.step_ns)
    pairs = {
        "compute": (a.compute_ns, b.compute_ns),
        "exposed communication": (a.exposed_ns, b.exposed_ns),
        "idle time": (a.idle_ns, b.idle_ns),
    }
    changes = {name: abs(after - before) for name, (before, after) in pairs.items()}
    said = [
        f"{name} {words.ms(pairs[name][0])} → {words.ms(pairs[name][1])}"
        for name in sorted(changes, key=lambda name: -changes[name])
        if changes[name] > least
    ]
    if a.compute_ns and changes["compute"] <= least:
        said.append(f"compute still {words.ms(b.compute_ns)}")
    where = " on the slowest rank" if len(first.timeline.rows) > 1 else ""
    return f"Notice{where}: {', '.join(said) or 'no part changed'}."


def _lines(model: Comparison) -> Iterator[str]:
    """Yield the text: the finding, a line for each run, and the table of the parts."""
    yield prose(model.title, model.notice)
    for n, side in enumerate(model.sides):
        against = f" {model.against_first(side)} {model.sides[0].label}." if n else ""
        alone = "" if model.note else side.timeline.note
        yield prose(f"{side.label}:{against} {side.timeline.title}. {alone}")
    single = all(len(side.timeline.rows) == 1 for side in model.sides)
    rows = {
        side.label if single else f"{side.label}, {row.name}": row for side, row in _rows(model)
    }
    parts = {name: row.breakdown for name, row in rows.items()}
    waits = {name: row.waiting_ns for name, row in rows.items()}
    corner = model.sides[0].slowest.name if single else ""
    yield from words.table(parts, waits, model.whole, corner)
    if model.note:
        yield prose(model.note)


def _rows(model: Comparison) -> Iterator[tuple[Side, RankRow]]:
    return ((side, row) for side in model.sides for row in side.timeline.rows)
