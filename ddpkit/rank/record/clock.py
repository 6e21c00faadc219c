"""Moments in time: on the host's clock, as events on a GPU, or after an operation's end.

CUDA runs behind Python: a call returns as soon as its work is queued. So a rank on a GPU marks its
times with events in the stream of the work, and the events are read after the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from ddpkit.trace.span import LAUNCHED, OF_DEVICE, QUEUE, Span

if TYPE_CHECKING:
    import torch

ANCHOR_AFTER = 1_000_000_000  # ns
TRIES = 5


@dataclass(slots=True)
class Mark:
    """A moment on a GPU: an event, and an earlier event from which its time is counted."""

    event: Any  # torch.cuda.Event
    since: Anchor


class HostState(NamedTuple):
    """The work of a device's host from the start of the run to a moment.

    ns       the host's time
    queue    the number of the current stream; 0 is the default stream
    """

    ns: int
    launches: int = 0
    flops: int = 0
    nbytes: int = 0
    queue: int = 0


@dataclass(frozen=True, slots=True)
class DeviceMoment:
    """A moment on an emulated device.

    The moment is the end of the operation `number`. If `begins`, the moment is the operation's
    start. If `waits`, the moment is the start of the device's wait for the operation's end.
    """

    number: int
    begins: bool = False
    waits: bool = False
    host: HostState | None = None  # at the launch


@dataclass(slots=True)
class Anchor:
    """An event from which the times of later events are counted.

    CUDA returns the time between two events as milliseconds in a float32. The resolution of a
    float32 gets coarser for longer times: it is 0.06 us at one second. So the anchor's own time is
    counted from an earlier anchor, `since`. The host has measured the time of the first anchor.
    """

    event: Any
    host_ns: int  # until `ns()`: the host's time of queueing the event; then the event's own time
    since: Anchor | None = None

    def ns(self) -> int:
        """Return the anchor's time by the host's clock; wait for the event."""
        if self.since is not None:
            self.host_ns, self.since = self.since.ns_of(self.event), None
        return self.host_ns

    def ns_of(self, event: torch.cuda.Event) -> int:
        """Return the time of a later event, in ns; wait for both events."""
        begun = self.ns()
        self.event.synchronize()
        event.synchronize()
        return begun + int(1e6 * self.event.elapsed_time(event))


class Ends(Protocol):
    """An operation on an emulated network."""

    @property
    def call(self) -> Any:
        """The record of the operation."""

    @property
    def number(self) -> int:
        """The number that the rank has given to the operation."""

    followed_by: list[tuple[int, int]]  # on a device: last launches of callbacks

    @property
    def done_ns(self) -> int:
        """The end of the operation, in ns; waits until the end is known."""

    def is_completed(self) -> bool:
        """True if the operation is done."""


@dataclass(frozen=True, slots=True)
class Later:
    """A moment that is counted from the ends of operations, which may still be under way.

    after  operations, each with a time in ns that is added to its end; the latest sum counts
    """

    after: tuple[tuple[Ends, int], ...]

    def ns(self) -> int:
        """Return the moment in ns; wait until the ends of the operations are known."""
        return max(operation.done_ns + later for operation, later in self.after)


Moment: TypeAlias = int | Mark | DeviceMoment | Later
Read: TypeAlias = Callable[[Moment], int]


def stretch(read: Read, start: Moment, end: Moment) -> tuple[int, int]:
    """Return the start and the end of a stretch of work, in ns.

    Moments in two streams of a GPU may be out of order by the resolution of the GPU's clock.
    Moments of two streams of an emulated device may be out of order by more. On the host, a wrong
    order would be a bug in ddpkit, and `Span` raises an error.
    """
    start_ns, end_ns = read(start), read(end)
    return start_ns, max(start_ns, end_ns) if isinstance(end, Mark | DeviceMoment) else end_ns


def launched(start: Moment, end: Moment) -> dict[str, int | str]:
    """Return the facts of a stretch on an emulated device: launches, FLOPs and bytes.

    The dict is empty for a stretch without launches, and for a stretch on the host's clock.
    """
    if not isinstance(start, DeviceMoment) or not isinstance(end, DeviceMoment):
        return {}
    if start.host is None or end.host is None or end.host.launches <= start.host.launches:
        return {}
    before, after = start.host, end.host
    work = (after.launches - before.launches, after.flops - before.flops)
    facts: dict[str, int | str] = dict(
        zip(OF_DEVICE, (before.ns, *work, after.nbytes - before.nbytes), strict=True)
    )
    if before.queue:
        facts[QUEUE] = f"stream {before.queue}"
    return facts


def of_host(rank: int, name: str, start: Moment, end: Moment) -> Span | None:
    """Return the span of the host's launches for a stretch on an emulated device, or None."""
    facts = launched(start, end)
    if not facts:
        return None
    assert isinstance(end, DeviceMoment)
    assert end.host is not None
    launches = {"launches": facts["own_launches"]}
    since = int(facts[LAUNCHED])
    return Span(rank, "host", name, "host", since, max(since, end.host.ns), args=launches)


class Clock(Protocol):
    """A clock, from which a recorder gets its moments."""

    @property
    def now(self) -> Callable[[], Moment]:
        """A function that returns the present moment."""

    def ns(self, moment: Moment) -> int:
        """Return a moment in ``perf_counter_ns`` of the host; wait until the GPU has reached it."""

    def is_past(self, moment: Moment) -> bool:
        """True if `ns` would return without waiting. Any thread may call this method."""


class HostClock:
    """The host's clock: moments are ``perf_counter_ns``, which all processes of a machine share."""

    now = staticmethod(time.perf_counter_ns)

    def ns(self, moment: Moment) -> int:
        assert isinstance(moment, int)
        return moment

    def is_past(self, moment: Moment) -> bool:
        return True


HOST = HostClock()


class GpuClock:
    """A clock whose moments are events in the current stream of this process's GPU."""

    def __init__(self) -> None:
        import torch

        self._gpu = torch.cuda.current_device()
        self._anchor = min((self._at_rest() for _ in range(TRIES)), key=lambda found: found[0])[1]

    def _at_rest(self) -> tuple[int, Anchor]:
        """Return the uncertainty in ns of a new anchor's time on the host, and the anchor."""
        import torch

        torch.cuda.synchronize()
        before, event = time.perf_counter_ns(), _event()
        event.synchronize()
        after = time.perf_counter_ns()
        return after - before, Anchor(event, (before + after) // 2)

    def now(self) -> Mark:
        event, anchor = _event(), self._anchor
        queued = time.perf_counter_ns()
        if queued - anchor.host_ns > ANCHOR_AFTER and anchor.event.query():
            anchor.ns()  # counted at once, so that a chain has at most two links
            self._anchor = Anchor(event, queued, since=anchor)
        return Mark(event, anchor)

    def ns(self, moment: Moment) -> int:
        if isinstance(moment, Mark):
            return moment.since.ns_of(moment.event)
        assert isinstance(moment, int)  # the host times gloo's calls
        return moment

    def is_past(self, moment: Moment) -> bool:
        import torch

        if not isinstance(moment, Mark):
            return True
        with torch.cuda.device(self._gpu):  # a thread begins on GPU 0, and would take memory there
            return bool(moment.event.query())


def _event() -> torch.cuda.Event:
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event
