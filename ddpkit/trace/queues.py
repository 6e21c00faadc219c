"""The rows in a picture of a rank with a device: the host, and each queue of the device.

A profile of torch has a row for the thread that launches, and a row for each stream. A trace of an
emulated device has rows for the host, for the stretches in which the device waits for launches, for
the default stream, and for each side stream, each communicator and each copy engine.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ddpkit.trace.base import BaseTrace
from ddpkit.trace.intervals import Interval, intersect, total
from ddpkit.trace.span import LIMIT, QUEUE, Span

HOST, STARVED, COMPUTE = "host", "starved", "compute"
_ENGINES = {"host→device": "copy up", "device→host": "copy down"}


def queue_of(span: Span) -> str:
    """Return the name of the row that a span belongs to, on a rank with a device."""
    if span.kind == "host":
        return STARVED if LIMIT in span.args else HOST
    if span.is_comm:
        name = str(span.args.get("group_desc", "")).partition(" [")[0]
        return f"comm {name}".strip() if name or not span.group else f"comm {span.group}"
    if span.is_copy:
        return _ENGINES.get(span.name, "copy")
    return str(span.args.get(QUEUE, COMPUTE))


def has_host(trace: BaseTrace, rank: int) -> bool:
    """True if the trace has a row for the host of a rank's device."""
    return bool(trace.row(rank, "host"))


def by_queue(spans: Iterable[Span]) -> dict[str, list[Span]]:
    """Return a rank's spans by the name of their row. Side streams are in the order of number."""
    found: dict[str, list[Span]] = {}
    for span in spans:
        found.setdefault(queue_of(span), []).append(span)
    return dict(sorted(found.items(), key=lambda row: (len(row[0]), row[0])))


@dataclass(frozen=True, slots=True)
class Starvation:
    """The time in which a rank's device waits for launches.

    waited_ns  the time in the window in which the device computes nothing and waits for launches
    longest    the stretch in which the device waits longest
    """

    waited_ns: int
    longest: Span


def starvation(trace: BaseTrace, rank: int) -> Starvation | None:
    """Return the time in which a rank's device waits for launches in the rank's window.

    Returns None if the device never waits.
    """
    window = trace.window_of(rank)
    stretches = [span for span in trace.row(rank, "host") if LIMIT in span.args]
    parts = [_waited(span, window) for span in stretches]
    if not sum(parts):
        return None
    longest = max(zip(parts, stretches, strict=True), key=lambda part: part[0])[1]
    return Starvation(sum(parts), longest)


def _waited(span: Span, window: Interval) -> int:
    """Return the part of a stretch's waiting time that lies inside a window, in ns.

    The waiting time is assumed to be spread evenly over the stretch.
    """
    inside = total(intersect([(span.start_ns, span.end_ns)], [window]))
    return round(int(span.args[LIMIT]) * inside / max(1, span.duration_ns))
