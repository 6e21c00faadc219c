"""`stacked_steps`: the parts of a step of each run, against the first run of its group. Pure.

The bars are those of Li et al., PyTorch Distributed: Experiences on Accelerating Data Parallel
Training (VLDB 2020), figure 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ddpkit.text import columns, prose
from ddpkit.trace import Scalar, Trace
from ddpkit.trace.intervals import Interval, intersect, subtract, total, union
from ddpkit.view.drawing import words
from ddpkit.view.drawing.typical import typical_step

PARTS = ("forward", "backward", "other compute", "exposed comm", "optimizer", "copies", "idle")
# part -> kind of span; inner spans first
KINDS = {"optimizer": "optimizer", "backward": "backward", "forward": "forward"}


@dataclass(frozen=True, slots=True)
class Stacked:
    """A bar: the ns of each of `PARTS` in one run's step on one rank; the sum is the step."""

    label: str
    lengths: tuple[int, ...]
    base_ns: int  # the step of the first bar of its group, which is 100 %
    hidden: float | None  # the share of communication behind compute; None without communication

    @property
    def step_ns(self) -> int:
        return sum(self.lengths)

    @property
    def is_first(self) -> bool:
        """Return True if the bar is the first of its group, or as long as the first."""
        return self.step_ns == self.base_ns

    @property
    def gain(self) -> float:
        """The share of the first bar by which this bar is shorter; negative if it is longer."""
        return 1 - self.step_ns / self.base_ns if self.base_ns else 0.0

    @property
    def change(self) -> str:
        """Return the gain in words: "31% shorter"; "" for a bar as long as the first."""
        if self.is_first:
            return ""
        much = words.percent(abs(self.base_ns - self.step_ns), self.base_ns)
        return f"{much} {'shorter' if self.gain > 0 else 'longer'}"


@dataclass(frozen=True, slots=True)
class StackedSteps:
    """The numbers and the text of the picture: the bars, in groups of equal size."""

    bars: tuple[Stacked, ...]
    by: int
    title: str
    notice: str
    note: str  # conditions of all runs that a reader must know to read the numbers right; may be ""
    text: str  # the picture in words and numbers

    @property
    def shown(self) -> list[int]:
        """Return the indices in `PARTS` of the parts that some bar has."""
        return [i for i in range(len(PARTS)) if any(bar.lengths[i] for bar in self.bars)]


def stacked_steps(
    traces: Sequence[Trace],
    labels: Sequence[str] = (),
    by: int | None = None,
    rank: int = 0,
    step: int | None = None,
) -> StackedSteps:
    """Return a bar for each trace, compared with the first bar of its group of ``by`` bars.

    With ``by=None``, all bars are one group. A bar shows step ``step`` of one rank, or the typical
    step without ``step``; a trace without steps is shown whole. Raises ValueError without a trace,
    for labels or groups that do not fit and for a rank that a trace does not have, TraceError if
    there is no such step.
    """
    if not traces:
        raise ValueError("stack needs a run: stack(run)")
    by = len(traces) if by is None else by
    if by < 1 or len(traces) % by:
        raise ValueError(f"{len(traces)} runs cannot be divided into groups of {by}")
    labels = labels or [f"run {n}" for n in range(1, len(traces) + 1)]
    if len(labels) != len(traces):
        raise ValueError(f"{len(labels)} labels for {len(traces)} runs: give a label for each run")
    for trace in traces:
        if rank not in trace.ranks:
            raise ValueError(
                f"there is no rank {rank}: one of the runs has {trace.world_size} ranks"
            )
    bars: list[Stacked] = []
    for n, (label, trace) in enumerate(zip(labels, traces, strict=True)):
        bar = _bar(label, trace, rank, step)
        base = bars[n - n % by].step_ns if n % by else bar.step_ns
        bars.append(replace(bar, base_ns=base))
    note = words.note(_common(traces), compute=True, comm=True)
    title = f"Where a step went: {', '.join(PARTS[i] for i in _present(bars))}"
    title += " (emulated)" * bool(words.emulated(_common(traces)))
    made = StackedSteps(tuple(bars), by, title, _notice(bars), note, "")
    return replace(made, text="\n".join(_lines(made)))


def _bar(label: str, trace: Trace, rank: int, step: int | None) -> Stacked:
    if step is not None:
        trace = trace.step(step)
    elif trace.steps:
        trace = trace.step(typical_step(trace, rank))
    left = trace.activity(rank).compute
    found: dict[str, int] = {}
    for part, kind in KINDS.items():
        spans: list[Interval] = union(
            (span.start_ns, span.end_ns) for span in trace.of(rank) if span.kind == kind
        )
        found[part] = total(intersect(left, spans))
        left = subtract(left, spans)
    found["other compute"] = total(left)
    breakdown = trace.breakdown()[rank]
    found["exposed comm"], found["idle"] = breakdown.exposed_ns, breakdown.idle_ns
    found["copies"] = breakdown.copy_ns
    return Stacked(label, tuple(found[part] for part in PARTS), 0, breakdown.hidden)


def _common(traces: Sequence[Trace]) -> dict[str, Scalar]:
    """Return the facts that all runs share; facts that differ, such as links, are in the labels."""
    facts = (dict(trace.facts).items() for trace in traces)
    return dict(set.intersection(*map(set, facts)))


def _present(bars: Sequence[Stacked]) -> list[int]:
    return [i for i in range(len(PARTS)) if any(bar.lengths[i] for bar in bars)]


def _notice(bars: Sequence[Stacked]) -> str:
    """Return a sentence on the bar with the largest gain, or on the first bar's longest part."""
    best = max(bars, key=lambda bar: bar.gain)
    if best.gain >= 0.005:
        said = f"{best.label} is {best.change} than the first of its group"
        hidden = "" if best.hidden is None else f", and hides {100 * best.hidden:.0f}% of its comm"
        return f"Notice: {said}{hidden}."
    first = bars[0]
    most = max(range(len(PARTS)), key=lambda i: first.lengths[i])
    share = words.percent(first.lengths[most], first.step_ns)
    return f"Notice: {share} of {first.label} is {PARTS[most]}; no bar is shorter."


def _lines(model: StackedSteps) -> Iterator[str]:
    """Yield the text: the finding, and a line for each bar."""
    yield prose(model.title, model.notice)
    rows = [["", "step", *(PARTS[i] for i in model.shown), "comm hidden", "against the first"]]
    for n, bar in enumerate(model.bars):
        cells = [
            f"{words.ms(bar.lengths[i])} {words.percent(bar.lengths[i], bar.step_ns):>4}"
            for i in model.shown
        ]
        hidden = "no comm" if bar.hidden is None else f"{100 * bar.hidden:.0f}%"
        against = bar.change or ("as long" if n % model.by else "")
        rows.append([bar.label, words.ms(bar.step_ns), *cells, hidden, against])
    yield from columns(rows)
    if model.note:
        yield prose(model.note)
