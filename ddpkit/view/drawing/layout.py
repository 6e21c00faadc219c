"""`lay_out`: the places of the rows of bars, in inches below the top of the plot. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ddpkit.view.drawing.rows import RankRow

LEFT, MIDDLE, RIGHT = 1.32, 7.08, 2.08  # margin with names, timeline, parts: 11 inches in all
PANEL = LEFT + MIDDLE + 0.32  # left end of the bars of parts
Extent = tuple[float, float]  # (top, bottom), in inches


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The place of one row and of the row's parts."""

    top: float
    bottom: float
    compute: Extent
    overlap: Extent
    lanes: list[Extent]  # communication
    header: float  # the middle of the numbers over the bar
    bar: Extent  # the bar of parts, on the right
    copies: Extent | None = None  # below the lanes; None if no row has copies
    more: dict[str, Extent] = field(default_factory=dict)  # the host and side streams, by name


@dataclass(frozen=True, slots=True)
class Heights:
    """The heights of the parts of a row, in inches."""

    compute: float
    overlap: float
    lane: float  # height of a single lane
    lanes: float  # height of all lanes together, at most
    bar: float  # height of the bar of parts, on the right
    gap: float  # between rows

    @classmethod
    def of(cls, ranks: int) -> "Heights":
        """Return the heights for a number of ranks: low enough that 16 ranks fit on a page."""
        if ranks <= 4:
            return cls(0.44, 0.07, 0.36, 1.1, 0.34, 0.24)
        if ranks <= 8:
            return cls(0.3, 0.05, 0.24, 0.64, 0.25, 0.18)
        return cls(0.2, 0.04, 0.16, 0.3, 0.17, 0.11)


HEADER = 0.17  # inches: a line of text above a bar


def lay_out(
    rows: Sequence[RankRow], high: Heights, *, compute: bool, comm: bool, top: float = 0.0
) -> Iterator[RowLayout]:
    """Yield the places of the rows, downwards, with room for compute, communication, or both."""
    least = high.bar + HEADER
    copied = any(row.copies for row in rows)
    for row in rows:
        many = max(1, len(row.lanes)) if comm else 0
        lane = min(high.lane * (1 if many == 1 else 0.75), high.lanes / max(1, many))
        y = top
        if compute:
            y += high.compute if comm else least
        else:
            lane = max(lane, least / max(1, many))
        own = top, y
        overlap = y + 0.03, y + 0.03 + high.overlap
        if compute and comm:
            y = overlap[1] + 0.03
        lanes = [(y + lane * n, y + lane * (n + 1) - min(0.02, lane / 8)) for n in range(many)]
        y += lane * many
        copies = (y + 0.03, y + 0.03 + high.compute / 2) if copied else None
        more, y = dict[str, Extent](), copies[1] if copies else y
        for name in row.more:
            more[name] = y + 0.03, y + 0.03 + high.compute / 2
            y = more[name][1]
        bottom = max(y, top + least)
        bar = (top + bottom + HEADER - high.bar) / 2
        parts = bar, bar + high.bar
        yield RowLayout(top, bottom, own, overlap, lanes, bar - 0.1, parts, copies, more)
        top = bottom + high.gap
