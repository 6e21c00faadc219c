"""`changes`: the differences of two runs, by rank and by kind of work. Pure.

Two runs may have different numbers of steps, so a step of the first is compared with a step of the
second: the named step, or the typical step of each run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ddpkit.text import columns, prose, rank_list, size
from ddpkit.trace import Breakdown, Span, Trace, name_of
from ddpkit.trace.intervals import Interval, intersect, total
from ddpkit.trace.waits import waiting
from ddpkit.view.drawing import words
from ddpkit.view.drawing.typical import typical_step

PARTS = {  # fields of a breakdown -> their names in a sentence
    "compute_ns": "compute",
    "exposed_ns": "exposed communication",
    "copy_ns": "copies",
    "idle_ns": "idle time",
}
COMPUTE = {
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "span": "other compute",
}


@dataclass(frozen=True, slots=True)
class KindTotal:
    """Totals of one rank's spans of one kind; ``ns`` is the time in which at least one span ran."""

    times: int = 0
    bytes: int = 0
    ns: int = 0


@dataclass(frozen=True, slots=True)
class Ranked:
    """One rank's time in each of the two runs: its parts, and its waits for peers."""

    rank: int
    name: str
    breakdowns: tuple[Breakdown, Breakdown]
    waiting_ns: tuple[int, int]

    def change_of(self, field: str) -> int:
        """Return the change of a field from the first breakdown to the second, in ns."""
        before, after = (int(getattr(part, field)) for part in self.breakdowns)
        return after - before

    @property
    def waits_ns(self) -> int:
        """The part of the change of exposed communication that comes from waits, in ns.

        Other ranks are the cause of these waits.
        """
        exposed, waits = self.change_of("exposed_ns"), self.waiting_ns[1] - self.waiting_ns[0]
        return 0 if exposed * waits <= 0 else min(exposed, waits, key=abs)

    def own_change_of(self, field: str) -> int:
        """Return the change of a field in ns, without the change that comes from waits."""
        return self.change_of(field) - (self.waits_ns if field == "exposed_ns" else 0)


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences from the first run to the second.

    kinds  work of the slowest rank of each run, by kind: forward, all_reduce, host→device, ...
    """

    labels: tuple[str, str]
    steps: tuple[int | None, int | None]  # the compared steps; None: the whole runs
    titles: tuple[str, str]
    ranks: tuple[Ranked, ...]  # ranks that were recorded in both runs
    # ranks that were recorded only in the first run, and only in the second run
    alone: tuple[tuple[int, ...], tuple[int, ...]]
    slowest: tuple[int, int]
    lengths: tuple[int, int]  # ns of the slowest rank
    kinds: Mapping[str, tuple[KindTotal, KindTotal]]
    notes: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The compared stretch of time: "step" or "run"."""
        return "run" if self.steps[0] is None else "step"

    def finding(self) -> str:
        """Return a sentence on the lengths, and a sentence on the largest change."""
        first, second = self.lengths
        each = f"{words.ms(first)} → {words.ms(second)}"
        ratio = words.ratio(first, second)
        said = f"The {self.whole} of the slowest rank is {ratio} before: {each}."
        return prose(said, self._largest())

    def _largest(self) -> str:
        changes = [(rank, field) for rank in self.ranks for field in PARTS]
        if not changes:
            return "No rank is recorded in both runs."
        rank, field = max(changes, key=lambda each: abs(each[0].own_change_of(each[1])))
        change, waits = rank.change_of(field), rank.waits_ns if field == "exposed_ns" else 0
        if abs(change) <= words.LITTLE * max(self.lengths):
            return "No part of a rank's time changed by more than 1 % of it."
        before, after = (words.ms(int(getattr(part, field))) for part in rank.breakdowns)
        of_them = f", of which {signed(waits)} are waits for peers" if waits else ""
        return (
            f"The largest change is {PARTS[field]} of {rank.name}, {before} → {after} "
            f"({signed(change)}{of_them})."
        )

    def text(self, every: bool = True, many: int = 16) -> str:
        """Return the changes in words and tables.

        every  if False and there are more than `many` ranks, the table shows three ranks: those
               with the largest, the median and the smallest change of the step's length
        """
        lines = [self.finding()]
        for label, title in zip(self.labels, self.titles, strict=True):
            lines.append(f"{label}: {title}")
        shown = self.ranks if every or len(self.ranks) <= many else self._extremes()
        lines += columns([["", *self.heads()], *map(self.row, shown)]) if shown else []
        for label, ranks in zip(self.labels, self.alone, strict=True):
            if ranks:
                lines.append(f"Only in {label}: {rank_list(ranks)}.")
        lines += columns([["", *KIND_HEADS], *self.kind_rows()]) if self.kinds else []
        if len({*self.slowest}) > 1 and self.kinds:
            lines.append("The kinds are those of " + " and ".join(self._slowest()) + ".")
        return "\n".join(line.rstrip() for line in [*lines, *map(prose, self.notes)])

    def _slowest(self) -> list[str]:
        pairs = zip(self.slowest, self.labels, strict=True)
        return [f"rank {rank} in {label}" for rank, label in pairs]

    def _extremes(self) -> list[Ranked]:
        ordered = sorted(self.ranks, key=lambda each: abs(each.change_of("step_ns")))
        return [ordered[-1], ordered[len(ordered) // 2], ordered[0]]

    def _columns(self) -> dict[str, str]:
        return words.columns_of(part for rank in self.ranks for part in rank.breakdowns)

    def heads(self) -> list[str]:
        """Return the headings of the table of ranks."""
        return [self.whole, *self._columns(), "waiting"]

    def row(self, rank: Ranked) -> list[str]:
        """Return the cells of a rank, for the table under `heads`."""
        pairs = [
            [int(getattr(part, field)) for part in rank.breakdowns]
            for field in ("step_ns", *self._columns().values())
        ]
        return [rank.name, *(beside(*pair) for pair in [*pairs, rank.waiting_ns])]

    def kind_rows(self) -> Iterator[list[str]]:
        """Yield the cells of each kind of work, the kind with the largest change first."""

        def changed(name: str) -> int:
            before, after = self.kinds[name]
            return -abs(after.ns - before.ns)

        for name in sorted(self.kinds, key=changed):
            before, after = self.kinds[name]
            times = _arrow(f"×{before.times:,}", f"×{after.times:,}")
            nbytes = _arrow(size(before.bytes), size(after.bytes))
            some = before.bytes or after.bytes
            change = signed(after.ns - before.ns)
            yield [name, beside(before.ns, after.ns), change, times, nbytes if some else ""]

    def numbers(self) -> list[dict[str, str | int | float | None]]:
        """Return a row for each part of a rank's time and each kind of work; times in seconds."""
        rows: list[dict[str, str | int | float | None]] = []
        fields = {self.whole: "step_ns", **self._columns()}
        for rank in self.ranks:
            for name, field in fields.items():
                pair = [int(getattr(part, field)) for part in rank.breakdowns]
                rows.append({"rank": rank.rank, "of": name, **_seconds(*pair)})
            rows.append({"rank": rank.rank, "of": "waiting", **_seconds(*rank.waiting_ns)})
        for name, (before, after) in self.kinds.items():
            counts = {
                "times_before": before.times,
                "times_after": after.times,
                "bytes_before": before.bytes,
                "bytes_after": after.bytes,
            }
            rows.append({"rank": None, "of": name, **_seconds(before.ns, after.ns), **counts})
        return rows


KIND_HEADS = ("time", "change", "times", "bytes")


def changes(
    traces: tuple[Trace, Trace], labels: tuple[str, str], step: int | None = None
) -> Changes:
    """Return the differences from one run to another.

    step  the step to compare in both runs; None: the typical step of each, or the whole runs if one
          of them has no steps

    Raises TraceError if there is no such step.
    """
    steps = compared_steps(traces, step)
    cut = [trace if k is None else trace.step(k) for trace, k in zip(traces, steps, strict=True)]
    first = cut[0]
    breakdowns = [each.breakdown() for each in cut]
    waits = [_waits(each) for each in cut]
    recorded = [{*each.recorded_ranks} for each in cut]
    both = sorted(recorded[0] & recorded[1])
    slowest = [
        max(sorted(ranks), key=lambda rank: parts[rank].step_ns)
        for ranks, parts in zip(recorded, breakdowns, strict=True)
    ]
    kinds = [_kinds(each, rank) for each, rank in zip(cut, slowest, strict=True)]
    lengths = [parts[rank].step_ns for parts, rank in zip(breakdowns, slowest, strict=True)]
    titles = [
        words.title(each, "Run" if k is None else f"Step {k}")
        for each, k in zip(cut, steps, strict=True)
    ]
    return Changes(
        labels,
        steps,
        (titles[0], titles[1]),
        tuple(
            Ranked(
                rank,
                name_of(first.facts, rank),
                (breakdowns[0][rank], breakdowns[1][rank]),
                (waits[0][rank], waits[1][rank]),
            )
            for rank in both
        ),
        (tuple(sorted(recorded[0] - recorded[1])), tuple(sorted(recorded[1] - recorded[0]))),
        (slowest[0], slowest[1]),
        (lengths[0], lengths[1]),
        {name: (kinds[0][name], kinds[1][name]) for name in {**kinds[0], **kinds[1]}},
        tuple(dict.fromkeys(filter(None, (_note(each) for each in cut)))),
    )


def compared_steps(traces: tuple[Trace, Trace], step: int | None) -> tuple[int | None, int | None]:
    """Return the numbers of the steps to compare; see `changes`."""
    first, second = traces
    if step is not None:
        for trace in traces:
            trace.step(step)  # raises TraceError if there is none
        return step % first.steps, step % second.steps
    if first.steps and second.steps:
        return typical_step(first, None), typical_step(second, None)
    return None, None


def beside(before: int, after: int) -> str:
    """Return two times as ``"12 ms → 40 ms"``, or one time if both print the same."""
    return _arrow(words.ms(before), words.ms(after))


def signed(ns: int) -> str:
    """Return a change in ns as text with a sign: ``signed(-2_000_000) == "−2.0 ms"``."""
    return f"{'−' if ns < 0 else '+'}{words.ms(abs(ns))}"


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _seconds(before: int, after: int) -> dict[str, float]:
    return {
        "before_seconds": before / 1e9,
        "after_seconds": after / 1e9,
        "change_seconds": (after - before) / 1e9,
    }


def _note(trace: Trace) -> str:
    return words.note(trace.facts, compute=True, comm=True)


def _waits(trace: Trace) -> dict[int, int]:
    """Return the time that each rank waited for its peers, in ns."""
    found = {}
    for rank in trace.ranks:
        waits = (waiting(span) for span in trace.of(rank) if span.is_comm)
        found[rank] = total(intersect(waits, [trace.window_of(rank)]))
    return found


def _kinds(trace: Trace, rank: int) -> dict[str, KindTotal]:
    """Return the totals of a rank's spans, by the name of the kind of work."""
    window, spans = trace.window_of(rank), defaultdict[str, list[Span]](list)
    for span in trace.of(rank):
        if name := _kind(span):
            spans[name].append(span)
    return defaultdict(KindTotal, {name: _work(each, window) for name, each in spans.items()})


def _kind(span: Span) -> str:
    """Return the name of a span's kind for a table; "" for the span of a whole step."""
    return span.name if span.is_comm or span.is_copy else COMPUTE.get(span.kind, "")


def _work(spans: Sequence[Span], window: Interval) -> KindTotal:
    ran = intersect(((span.start_ns, span.end_ns) for span in spans), [window])
    moved = sum(span.bytes for span in spans if not span.is_compute)
    return KindTotal(len(spans), moved, total(ran))
