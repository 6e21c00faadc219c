"""`rank_graph`: the work of one rank, as a graph of compute and communication.

A trace has times, but a simulator of other networks needs to know what must come before what. The
graph has the work of a rank's main thread in the order of the program, cut into stretches wherever
the thread posts an operation or ends a wait for an operation:

- A stretch of compute depends on the stretch before it, and on the operations for which the
  rank has waited in between.
- An operation depends on the compute before its post. Only stretches after the rank's `wait()`
  depend on the operation.
- Time in which a rank neither computes nor waits is a stretch of its own, "idle", because another
  network does not make it shorter.

A profiler's recording does not have the waits, so the graph guesses them. If an operation ends
while the rank computes nothing, the rank is taken to wait for the operation until this end. For any
other operation, the rank is taken to wait at the next optimizer step, or never.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ddpkit.trace.base import BaseTrace
from ddpkit.trace.innermost import innermost
from ddpkit.trace.intervals import Interval, intersect, subtract, union
from ddpkit.trace.span import Span

IDLE = "idle"


@dataclass(slots=True)
class GraphNode:
    """A stretch of compute, of a copy or of idle time, or an operation of communication.

    span   the operation, or the span to which the stretch belongs; None for idle time
    after  numbers of the nodes that must end first
    """

    number: int
    name: str
    start_ns: int
    end_ns: int
    span: Span | None
    after: set[int] = field(default_factory=set)

    @property
    def operation(self) -> Span | None:
        """The operation of a communication node; None for compute, copies and idle time."""
        return self.span if self.span is not None and self.span.is_comm else None


def rank_graph(trace: BaseTrace, rank: int) -> list[GraphNode]:
    """Return the nodes of a rank, numbered from 1, each after all nodes that it depends on."""
    spans, activity = trace.of(rank), trace.activity(rank)
    first, last = trace.bounds.get(rank, (trace.start_ns, trace.end_ns + 1))
    operations = sorted(
        (span for span in spans if span.is_comm and first <= span.start_ns < last),
        key=lambda span: span.start_ns,
    )
    busy = union([*activity.compute, *activity.copy_only])
    work = [(start, end, span) for start, end, span in innermost(_own(spans), busy)]
    waits = _waits(operations, activity.exposed, [start for start, _, s in work if _steps(s)])
    blocked = [(s.blocked_ns, s.end_ns) for s in operations if s.blocked_ns is not None]
    idle = subtract([activity.window], [*busy, *(blocked or activity.comm)])
    stretches = sorted([*work, *((*each, None) for each in idle)], key=lambda each: each[:2])
    cuts = sorted({*(span.start_ns for span in operations), *waits.values()})
    return _ordered(list(_cut(stretches, cuts)), operations, waits)


def _own(spans: Iterable[Span]) -> Iterator[Span]:
    return (span for span in spans if span.is_compute or span.is_copy)


def _steps(span: Span) -> bool:
    return span.kind == "optimizer"


def _waits(
    operations: Sequence[Span], exposed: Sequence[Interval], optimizers: Sequence[int]
) -> dict[int, int]:
    """Return the moment at which the rank's wait for an operation ends, by the id of its span.

    An operation without a wait has no entry.
    """
    if any(span.blocked_ns is not None or span.collected_ns is not None for span in operations):
        return {
            id(span): span.over_ns
            for span in operations
            if span.blocked_ns is not None or span.collected_ns is not None
        }
    found = {}
    for span in operations:
        if intersect(exposed, [(span.end_ns - 1, span.end_ns)]):
            found[id(span)] = span.end_ns
        elif (k := bisect_left(optimizers, span.end_ns)) < len(optimizers):
            found[id(span)] = optimizers[k]
    return found


def _cut(
    stretches: Iterable[tuple[int, int, Span | None]], cuts: Sequence[int]
) -> Iterator[tuple[int, int, Span | None]]:
    """Yield the stretches of time, cut at the moments in `cuts`."""
    for start, end, span in stretches:
        for at in cuts[bisect_left(cuts, start + 1) : bisect_left(cuts, end)]:
            yield start, at, span
            start = at
        yield start, end, span


def _ordered(
    stretches: Sequence[tuple[int, int, Span | None]],
    operations: Sequence[Span],
    waits: dict[int, int],
) -> list[GraphNode]:
    """Return the nodes in the order of a rank's thread. At one moment, waits end before posts."""
    moments: list[tuple[int, int, int]] = []  # time, kind of event, index
    moments += ((waits[id(span)], 0, n) for n, span in enumerate(operations) if id(span) in waits)
    moments += ((span.start_ns, 1, n) for n, span in enumerate(operations))
    moments += ((start, 2, n) for n, (start, _, _) in enumerate(stretches))
    posted: dict[int, GraphNode] = {}
    waited_early: set[int] = set()
    nodes: list[GraphNode] = []
    front: set[int] = set()  # nodes without successor in the thread
    for _, event, n in sorted(moments):
        if event == 0 and n in posted:
            front = front - posted[n].after | {posted[n].number}
        elif event == 0:
            waited_early.add(n)  # the wait for an operation of length 0 is sorted before its post
        elif event == 1:
            span = operations[n]
            node = GraphNode(
                len(nodes) + 1, span.name, span.start_ns, span.end_ns, span, set(front)
            )
            posted[n] = node
            nodes.append(node)
            if n in waited_early:
                front = front - node.after | {node.number}
        else:
            start, end, owner = stretches[n]
            name = IDLE if owner is None else owner.name
            node = GraphNode(len(nodes) + 1, name, start, end, owner, front)
            front = {node.number}
            nodes.append(node)
    return nodes
