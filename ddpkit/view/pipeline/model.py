"""`pipeline_picture`: the micro-batches that each rank works on, over time. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.errors import TraceError
from ddpkit.simulate.step.pipeline import Op, bubbles, held, op_of
from ddpkit.text import prose
from ddpkit.trace import Span, Trace
from ddpkit.view.drawing import words


@dataclass(frozen=True, slots=True)
class OpBox:
    """An operation on a micro-batch. Times in ns since the step began."""

    start: int
    end: int
    kind: str  # "F", "B" or "W"
    micro: int
    name: str  # "F3"


@dataclass(frozen=True, slots=True)
class StageRow:
    """The operations of one rank."""

    rank: int
    boxes: tuple[OpBox, ...]
    bubble: float  # share of the step in which the rank works on nothing
    held: int | None  # the most micro-batches with kept activations; None without a backward

    def at(self, ns: int) -> str:
        """Return the name of the operation at a time, or "nothing"."""
        return next((box.name for box in self.boxes if box.start <= ns < box.end), "nothing")


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """One step of a pipeline, with a row for each rank."""

    label: str
    rows: tuple[StageRow, ...]
    length_ns: int

    @property
    def finding(self) -> str:
        """The step's time, the bubble, and the number of held micro-batches, in words.

        For example "660 ms. In the bubble: 27.3% of it. Micro-batches held at most: 4, 3, 2, 1".
        """
        lost = sorted({f"{100 * row.bubble:.1f}%" for row in self.rows}, key=_number)
        share = lost[0] if len(lost) == 1 else f"{lost[0]} to {lost[-1]}"
        took = f"{words.ms(self.length_ns)}. In the bubble: {share} of it"
        most = [str(row.held) for row in self.rows if row.held is not None]
        if not most:
            return took
        same = len(set(most)) == 1 < len(most)
        kept = f"{most[0]} on each rank" if same else ", ".join(most)
        return f"{took}. Micro-batches held at most: {kept}"


@dataclass(frozen=True, slots=True)
class PipelinePicture:
    """Steps of pipelines, one under the other, on one axis of time."""

    steps: tuple[PipelineStep, ...]
    note: str
    played: float = 1.0  # the share of the time that is shown, from the start

    @property
    def until_ns(self) -> int:
        """The end of the shown time, in ns since the step began."""
        return round(self.played * self.length_ns)

    def under_way(self) -> str:
        """Return the operations at the end of the shown time, in a sentence."""
        at = self.until_ns
        now = [row.at(at) for step in self.steps for row in step.rows]
        return f"At {words.ms(at)} the ranks work on {', '.join(now)}."

    @property
    def title(self) -> str:
        """Return the subject of the picture."""
        return "The work of each rank"

    @property
    def length_ns(self) -> int:
        return max(step.length_ns for step in self.steps)

    @property
    def text(self) -> str:
        """The picture in words and numbers."""
        lines = [
            prose(f"{f'{step.label}: ' * bool(step.label)}{step.finding}") for step in self.steps
        ]
        moment = [prose(self.under_way())] if self.played < 1 else []
        return "\n".join([*lines, *moment, *([prose(self.note)] if self.note else [])])

    def table(self) -> str:
        """Return the operations of each rank, in order, as text."""
        rows = []
        for step in self.steps:
            rows += [step.label] * bool(step.label)
            rows += [f"rank {r.rank}: {' '.join(b.name for b in r.boxes)}" for r in step.rows]
        return "\n".join([self.text, *rows])


def pipeline_picture(
    traces: Sequence[Trace], labels: Sequence[str] = (), played: float = 1.0
) -> PipelinePicture:
    """Return the picture of the operations on micro-batches in these traces.

    The span F0 is the forward of micro-batch 0, B0 its backward, W0 the gradients of the weights.

    ``played`` is the share of the time that is shown, from 0 to 1.

    Raises ValueError for no trace and for labels that do not fit, TraceError for a trace without
    such spans.
    """
    if not traces:
        raise ValueError("show_pipeline needs a run or a trace: show_pipeline(run)")
    names = list(labels) or (
        [""] if len(traces) == 1 else [f"run {n + 1}" for n in range(len(traces))]
    )
    if len(names) != len(traces):
        raise ValueError(f"{len(names)} labels for {len(traces)} runs: give a label for each run")
    steps = [_step(trace, name) for trace, name in zip(traces, names, strict=True)]
    notes = dict.fromkeys(words.emulated(trace.facts) for trace in traces)
    return PipelinePicture(tuple(steps), " ".join(filter(None, notes)), played)


def _step(trace: Trace, label: str) -> PipelineStep:
    found = [(span, op) for span in trace.spans if span.is_compute and (op := op_of(span.name))]
    if not found:
        raise TraceError(
            "no span of this trace is named F0, B0, …: mark the forward of micro-batch 0 with "
            'span("F0") or busy("20 ms", "F0")'
        )
    start = min(span.start_ns for span, _ in found)
    lost = bubbles(trace)
    rows = []
    for rank in trace.recorded_ranks:
        own = [(span, op) for span, op in found if span.rank == rank]
        own.sort(key=lambda pair: pair[0].start_ns)
        boxes = tuple(_box(span, op, start) for span, op in own)
        plan = [op for _, op in own]
        most = held(plan) if any(op[0] == "B" for op in plan) else None
        rows.append(StageRow(rank, boxes, lost[rank], most))
    return PipelineStep(label, tuple(rows), max(span.end_ns for span, _ in found) - start)


def _box(span: Span, op: Op, start: int) -> OpBox:
    return OpBox(span.start_ns - start, span.end_ns - start, op[0], op[1], span.name)


def _number(share: str) -> float:
    return float(share.rstrip("%"))
