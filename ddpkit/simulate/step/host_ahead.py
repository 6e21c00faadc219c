"""`HostAhead`: the host's time in a step. A host that never waits runs ahead of its device.

A host that never waits needs the same time to launch each step, whatever the device does. Then each
of many equal steps takes the longer of two times: the launches, and the device's work with its
waits for communication. The device's work is its compute without the waits for launches.

A host that waits in a step, for a loss or a copy, can launch more work only after its wait. Then
the device's waits for launches are a part of the step, and the model leaves them in the step's
compute.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ddpkit.trace import Span
from ddpkit.trace.intervals import Interval
from ddpkit.trace.span import LIMIT

WAITS = "waits"  # the names of the host's waits begin with this word
OF_THE_KIT = "waits: values of peers"  # a wait of the emulation; a GPU's host has no such wait


@dataclass(frozen=True, slots=True)
class HostAhead:
    """The host's time in a step. Both fields are empty if the host waits, or has no device.

    ns       the time of the host's work
    starved  stretches in which the device waits for launches, each with the share of the time in
             which the device computes
    """

    ns: int = 0
    starved: tuple[tuple[Interval, float], ...] = ()

    @classmethod
    def of(cls, spans: Sequence[Span], window: Interval) -> "HostAhead":
        """Return the host's time in one step of one rank; `window` is the step's start and end.

        A wait counts in the step in which it ends: only then can the host launch more work.
        """
        host = [span for span in spans if span.kind == "host"]  # perhaps steps ahead of the device
        waits = (span for span in host if span.name.startswith(WAITS) and span.name != OF_THE_KIT)
        if any(window[0] <= wait.end_ns < window[1] for wait in waits):
            return cls()
        starved = tuple(
            ((span.start_ns, span.end_ns), 1 - int(span.args[LIMIT]) / max(1, span.duration_ns))
            for span in sorted(host, key=lambda span: span.start_ns)
            if LIMIT in span.args
        )
        return cls(_work_ns(spans), starved)


def _work_ns(spans: Sequence[Span]) -> int:
    """Return the host's work in ns, as noted in the "host_ns" of the spans that end the step."""
    marked = [span for span in spans if span.kind == "step"]
    ends = marked[-1:] or [span for span in spans if span.kind == "optimizer"]
    return sum(int(span.args.get("host_ns", 0)) for span in ends)
