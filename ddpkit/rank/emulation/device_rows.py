"""Makes rows of a device's trace for the host's waits and for kernels of side streams.

The recorder makes the spans of modules, backward passes and optimizers. Only the timekeeper knows
when kernels of side streams run, and when the device waits for launches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ddpkit.protocol.emulation import DeviceTimes
from ddpkit.rank.record.log import MAX_SPANS
from ddpkit.text import count
from ddpkit.trace import OPERATIONS, Scalar, Span
from ddpkit.trace.span import LIMIT, QUEUE


class _Tells(Protocol):
    def now(self) -> int: ...


class HostWaits:
    """The newest `MAX_SPANS` waits of a rank's host: start and end in ns, and the waiting call."""

    def __init__(self) -> None:
        self.all: deque[tuple[int, int, str]] = deque(maxlen=MAX_SPANS)

    @contextmanager
    def noted(self, clock: _Tells, why: str) -> Iterator[None]:
        """A block in which the host may wait; time that passes on `clock` is recorded as a wait."""
        start = clock.now()
        yield
        if (end := clock.now()) > start:
            self.all.append((start, end, why))


def rows(rank: int, waits: HostWaits, over: DeviceTimes) -> list[Span]:
    """Return the spans of the host's waits, the device's waits for launches, and side streams."""
    found = [
        Span(rank, "host", f"waits: {why}" if why else "waits", "host", start, end)
        for start, end, why in waits.all
    ]
    for start, end, launches, waited in over.starved:
        each = (end - start) / launches / 1e3
        name = f"the host is the limit: {count(launches, 'operation')} of {each:.3g} us"
        limit = {"launches": launches, LIMIT: waited}
        found.append(Span(rank, "host", name, "host", start, end, args=limit))
    for stream, start, end, kernels in over.streams:
        args: dict[str, Scalar] = {OPERATIONS: kernels, QUEUE: f"stream {stream}"}
        name = count(kernels, "kernel")
        found.append(Span(rank, "compute", name, "span", start, end, args=args))
    return found
