"""`Dropped`: counts of the oldest spans of a rank, which the rank dropped during a long run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ddpkit.trace.memory import MemoryLevel
from ddpkit.trace.peers import match_peers
from ddpkit.trace.span import LAUNCHED, OPERATIONS, SENDS, Scalar, Span
from ddpkit.trace.trace import Trace
from ddpkit.trace.traffic import Count, Traffic


@dataclass(frozen=True, slots=True)
class Dropped:
    """Counts of the oldest spans of one rank, which the rank has dropped from its memory."""

    spans: int = 0
    steps: int = 0
    # the number of times and the bytes of each operation, by (name, peer)
    operations: Mapping[tuple[str, int | None], Count] = field(default_factory=dict)


def join(
    spans: Sequence[Span],
    gone: Mapping[int, Dropped],
    world_size: int,
    facts: Mapping[str, Scalar],
    memory: Mapping[int, tuple[MemoryLevel, ...]] | None = None,
) -> tuple[Trace, Traffic]:
    """Return the trace of the kept spans of all ranks, and the traffic of the other spans.

    ``gone`` has the counts of dropped spans for each rank. The trace begins with the first step
    that all ranks still have. If a part of the run is missing, the trace's fact "kept" names the
    part that is there.
    """
    before = _traffic(gone, world_size)
    if any(each.spans for each in gone.values()):
        spans, early = _from_a_common_step(Trace(tuple(spans), world_size), gone)
        before += Traffic.of(early, world_size)
        facts = {**facts, "kept": _in_words(Trace(tuple(spans), world_size), gone)}
    spans = _operations_inside(spans)
    return Trace(match_peers(spans), world_size, facts, memory=memory or {}), before


def _operations_inside(spans: Sequence[Span]) -> Sequence[Span]:
    """Return the spans; operations before or after all calls and modules are cut off.

    A trace lasts from the first call or module of any rank to the last. Operations outside modules
    that make the model and the inputs come before, and must not make the trace longer.
    """
    others = [span for span in spans if OPERATIONS not in span.args and span.kind != "host"]
    if not others:
        return spans
    start, end = min(one.start_ns for one in others), max(one.end_ns for one in others)
    spans = _host_inside(spans, others, start, end)
    return [
        replace(span, start_ns=max(start, span.start_ns), end_ns=min(end, span.end_ns))
        if OPERATIONS in span.args
        else span
        for span in spans
        if OPERATIONS not in span.args or (span.start_ns < end and start < span.end_ns)
    ]


def _host_inside(
    spans: Sequence[Span], others: Sequence[Span], start: int, end: int
) -> Sequence[Span]:
    """Return the spans without the host's work before the first launch and after `end`."""
    launched = (int(one.args[LAUNCHED]) for one in others if LAUNCHED in one.args)
    first = min([start, *launched])
    return [
        one for one in spans if one.kind != "host" or (one.end_ns > first and one.start_ns < end)
    ]


def _from_a_common_step(trace: Trace, gone: Mapping[int, Dropped]) -> tuple[list[Span], list[Span]]:
    """Return the spans since the first step that all ranks still have, and all earlier spans."""
    first, begins = max(each.steps for each in gone.values()), {}
    for rank, dropped in gone.items():
        surplus = trace.marks_of(rank)[: first - dropped.steps]
        begins[rank] = surplus[-1] if surplus else trace.start_ns
    early = [span for span in trace.spans if span.start_ns < begins[span.rank]]
    return [span for span in trace.spans if span.start_ns >= begins[span.rank]], early


def _in_words(trace: Trace, gone: Mapping[int, Dropped]) -> str:
    """Return the kept part of a run in words: "the last 812 of 5,000 steps"."""
    if steps := max(each.steps for each in gone.values()):
        marks = max(len(trace.marks_of(rank)) for rank in gone)
        steps //= max(1, round(marks / trace.steps)) if trace.steps else 1
        return f"the last {trace.steps:,} of {steps + trace.steps:,} steps"
    rank = max(gone, key=lambda rank: gone[rank].spans)
    kept = len(trace.of(rank))
    return f"the last {kept:,} of {kept + gone[rank].spans:,} spans of rank {rank}"


def _traffic(gone: Mapping[int, Dropped], world_size: int) -> Traffic:
    p2p: dict[tuple[int, int], Count] = {}
    collective: dict[tuple[int, str], Count] = {}
    for rank, dropped in gone.items():
        for (name, peer), count in dropped.operations.items():
            if peer is None:
                collective[rank, name] = count
            elif name in SENDS:
                p2p[rank, peer] = count
    return Traffic(world_size, p2p, collective)
