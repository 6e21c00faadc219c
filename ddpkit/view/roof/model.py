"""`roof_picture`: operations under two roofs, by their FLOPs per byte. Pure.

The roofline is that of S. Williams, A. Waterman and D. Patterson (CACM 52(4), 2009). The launch is
a third limit: a device that has waited for the launch of an operation is bound by launches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ddpkit.asked import not_for
from ddpkit.view.drawing.words import ms

LIMITS = "arithmetic", "memory", "launches"


class Rates(Protocol):
    """The rates that a machine reaches: FLOP/s and bytes/s, and the seconds of a launch."""

    @property
    def flops(self) -> float: ...
    @property
    def bandwidth(self) -> float: ...
    @property
    def launch(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Dot:
    """A group of equal operations: FLOPs per byte, FLOP/s, limit, number and seconds in all."""

    intensity: float
    rate: float
    limit: str
    number: int
    seconds: float


@dataclass(frozen=True, slots=True)
class RoofPicture:
    """Dots under the roofs of a machine."""

    dots: tuple[Dot, ...]  # operations with FLOPs
    shares: dict[str, float]  # limit -> share of the whole time, of all operations
    flops: float
    bandwidth: float
    seconds: float  # the end of the last operation
    number: int
    without: int  # number of operations without FLOPs, which have no dot

    @property
    def ridge(self) -> float:
        """The FLOPs per byte at which the two roofs meet."""
        return self.flops / self.bandwidth

    @property
    def title(self) -> str:
        """The subject of the picture."""
        return f"{self.number:,} operations under the roofs, {ms(round(1e9 * self.seconds))}"

    @property
    def finding(self) -> str:
        """The shares of the time, by limit, in one sentence."""
        flat, slope, late = (self.shares[name] for name in LIMITS)
        said = f"{flat:.0%} of the time under the flat roof, {slope:.0%} under the slope"
        return f"{said}, {late:.0%} for launches."

    @property
    def text(self) -> str:
        """The picture in words and numbers."""
        lines = [f"{self.title}.", self.finding]
        lines.append(f"The roofs meet at {self.ridge:,.0f} FLOPs a byte.")
        if self.without:
            lines.append(f"{self.without:,} operations have no FLOPs and no dot.")
        return "\n".join(lines)


def roof_picture(operations: Sequence[tuple[float, float]], machine: Rates) -> RoofPicture:
    """Return the picture of ``operations``: pairs (FLOPs, bytes) in the order of the launches.

    The host launches the k-th operation, counted from 1, at k * launch. The device runs one
    operation at a time, for the time of its arithmetic or of its memory traffic, whichever is
    longer. Raises ValueError for no operation, an operation without bytes, and a rate that is not
    above 0.
    """
    not_for("roof")
    if not operations:
        raise ValueError("show_roof needs at least one operation, as (FLOPs, bytes)")
    if not (machine.flops > 0 and machine.bandwidth > 0 and machine.launch >= 0):
        raise ValueError("a machine needs flops and bandwidth above 0, and a launch of 0 or more")
    free = 0.0
    times, counts = Counter[str](), Counter[tuple[float, float, str]]()
    spent = Counter[tuple[float, float, str]]()
    for number, (flops, nbytes) in enumerate(operations, 1):
        if nbytes <= 0 or flops < 0:
            raise ValueError(
                f"operation {number - 1} has {flops} FLOPs and {nbytes} bytes: an operation moves "
                "at least one byte"
            )
        launched = number * machine.launch
        arithmetic, memory = flops / machine.flops, nbytes / machine.bandwidth
        work = max(arithmetic, memory)
        limit = "arithmetic" if arithmetic >= memory else "memory"
        if launched > free:
            limit = "launches"
            times[limit] += launched - free  # type: ignore[assignment]
        times[limit] += work  # type: ignore[assignment]
        free = max(launched, free) + work
        if flops:
            dot = flops / nbytes, flops / work, limit
            counts[dot] += 1
            spent[dot] += work  # type: ignore[assignment]
    dots = tuple(Dot(*dot, counts[dot], spent[dot]) for dot in counts)
    shares = {name: times[name] / free for name in LIMITS}
    without = len(operations) - sum(counts.values())
    rates = machine.flops, machine.bandwidth
    return RoofPicture(dots, shares, *rates, free, len(operations), without)
