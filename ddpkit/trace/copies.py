"""Copies between host and device, and on the device, in a profiler's recording.

A copy is neither compute nor communication of ranks: `Breakdown.copy_ns` is the time in which a
rank copies and does nothing else. torch.profiler writes "Memcpy HtoD (Pageable -> Device)" on CUDA,
"CopyHostToDevice" on ROCm and "...MemoryCopy(M2D)" on Intel's GPUs.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ddpkit.trace.intervals import Interval, intersect, total
from ddpkit.trace.span import Scalar, Span

# "M": host memory on Intel's GPUs; "S": memory shared with the host; "P": a peer of the device
_ENDS = {"h": "host", "m": "host", "d": "device", "s": "device", "p": "device"}
_SHORT = re.compile(r"(?<![A-Za-z])([HMDSP])(?:to|2)([HMDSP])(?![a-z])")
_LONG = re.compile(r"(Host|Device|Peer)To(Host|Device|Peer)", re.IGNORECASE)
_FILLS = re.compile("memset|fill", re.IGNORECASE)
_PLACES = re.compile(r"\((\w+) -> (\w+)\)")
UNKNOWN, FILL = "copy", "memset"
_OF_CUDA = {
    "host→device": "Memcpy HtoD",
    "device→host": "Memcpy DtoH",
    "device→device": "Memcpy DtoD",
    "host→host": "Memcpy HtoH",
    FILL: "Memset",
    UNKNOWN: "Memcpy",
}
DIRECTIONS = (*_OF_CUDA,)


@dataclass(frozen=True, slots=True)
class CopyTotal:
    """The sums over all copies of one direction.

    ns         the time during which at least one of the copies ran
    hidden_ns  the part of this time in which the rank computed or communicated
    """

    times: int
    bytes: int
    ns: int
    hidden_ns: int


def direction(name: str) -> str:
    """Return the direction, one of `DIRECTIONS`, of a copy by its name in a profiler's file."""
    if found := _SHORT.search(name) or _LONG.search(name):
        source, target = (_ENDS[end[0].lower()] for end in found.groups())
        return f"{source}→{target}"
    return FILL if _FILLS.search(name) else UNKNOWN


def name_on_cuda(name: str) -> str:
    """Return torch.profiler's name on CUDA for a copy of this direction: "Memcpy HtoD"."""
    return _OF_CUDA.get(name, _OF_CUDA[UNKNOWN])


def from_to(name: str) -> dict[str, Scalar]:
    """Return the kinds of memory in the name of a copy: {"from": "pageable", ...}."""
    found = _PLACES.search(name)
    return {"from": found[1].lower(), "to": found[2].lower()} if found else {}


def copy_totals(
    spans: Iterable[Span], window: Interval, others: Iterable[Interval]
) -> dict[str, CopyTotal]:
    """Return the totals of the copies in a rank's spans inside a window, by direction.

    others  times during which the rank computed or communicated
    """
    found: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        if span.is_copy and span.start_ns < window[1] and window[0] < span.end_ns:
            found[span.name].append(span)
    others, totals = [*others] if found else [], {}
    for name in sorted(found, key=lambda name: (_place(name), name)):
        ran = intersect(((span.start_ns, span.end_ns) for span in found[name]), [window])
        nbytes = sum(span.bytes for span in found[name])
        hidden = total(intersect(ran, others))
        totals[name] = CopyTotal(len(found[name]), nbytes, total(ran), hidden)
    return totals


def _place(name: str) -> int:
    return DIRECTIONS.index(name) if name in DIRECTIONS else len(DIRECTIONS)
