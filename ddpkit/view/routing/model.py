"""`routing_picture`: rows from each rank to each expert, and the rows of each rank. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

from ddpkit.text import prose

MOST_EXPERTS = 16  # columns of the text; with more, a column has the rows of a whole rank
MOST_RANKS = 8  # columns of the text; with more, a line has the rows of a rank


@dataclass(frozen=True, slots=True)
class RoutingPicture:
    """The rows from each rank to each expert; each rank has ``per_rank`` experts.

    ``counts[rank][expert]`` is a number of rows.
    """

    counts: tuple[tuple[int, ...], ...]
    per_rank: int

    @property
    def ranks(self) -> int:
        """The number of ranks; each sends rows and has experts."""
        return len(self.counts)

    @property
    def experts(self) -> int:
        """The number of experts on all ranks."""
        return self.ranks * self.per_rank

    def sent(self, rank: int, to: int) -> int:
        """Return the number of rows from ``rank`` to the experts of rank ``to``."""
        return sum(self.counts[rank][to * self.per_rank : (to + 1) * self.per_rank])

    @property
    def rows(self) -> tuple[int, ...]:
        """The number of rows that the experts of each rank receive."""
        ranks = range(self.ranks)
        return tuple(sum(self.sent(each, to) for each in ranks) for to in ranks)

    @property
    def mean(self) -> float:
        """The mean number of rows that a rank receives."""
        return sum(self.rows) / self.ranks

    @property
    def title(self) -> str:
        """The subject of the picture."""
        return f"Rows from {self.ranks} ranks to {self.experts} experts"

    @property
    def finding(self) -> str:
        """The busiest rank: its share of all rows, and its rows from other ranks."""
        rows, total = self.rows, sum(self.rows)
        if not total:
            return "No rank takes a row."
        busiest = max(range(self.ranks), key=rows.__getitem__)
        most, own = rows[busiest], self.sent(busiest, busiest)
        times = f"{most / self.mean:.1f} times the mean"
        if min(rows) == most:
            times = "like every other rank" if self.ranks > 1 else "all of them"
        return (
            f"Rank {busiest} takes {most:,} of {total:,} rows, {times}; "
            f"{most - own:,} come from other ranks."
        )

    @property
    def text(self) -> str:
        """The picture in words and numbers."""
        lines = self._table() if self.ranks <= MOST_RANKS else self._lines()
        return "\n".join([prose(self.finding), *lines, f"mean {self.mean:,.0f} rows for each rank"])

    def _lines(self) -> list[str]:
        every = enumerate(self.rows)
        return [
            f"rank {rank}: {rows:,} rows, {self.sent(rank, rank):,} own" for rank, rows in every
        ]

    def _table(self) -> list[str]:
        by_expert = self.experts <= MOST_EXPERTS
        wide = self.per_rank if by_expert else 1
        cells = [
            [[f"{each:,}" for each in own[to * wide : (to + 1) * wide]] for to in range(self.ranks)]
            for own in (self.counts if by_expert else self._by_rank())
        ]
        names = [[f"e{to * wide + at}" for at in range(wide)] for to in range(self.ranks)]
        if not by_expert:
            names = [[f"rank {to}"] for to in range(self.ranks)]
        sums = [f"{each:,}" for each in self.rows]
        size = max(len(word) for line in [names, *cells] for group in line for word in group)
        size = max(size, -(-(max(map(len, sums)) - 2 * (wide - 1)) // wide))
        group = wide * size + 2 * (wide - 1)
        lines = [("from \\ to", names)]
        lines += [(f"rank {rank}", each) for rank, each in enumerate(cells)]
        side = max(len(name) for name, _ in lines)
        table = [
            f"{name:<{side}}  "
            + " | ".join("  ".join(f"{word:>{size}}" for word in each) for each in groups)
            for name, groups in lines
        ]
        total = " | ".join(f"{each:>{group}}" for each in sums)
        return [*table, f"{'rows':<{side}}  {total}"]

    def _by_rank(self) -> list[list[int]]:
        ranks = range(self.ranks)
        return [[self.sent(rank, to) for to in ranks] for rank in ranks]


def routing_picture(counts: Sequence[Iterable[Any]], per_rank: int | None = None) -> RoutingPicture:
    """Return the picture of these counts; without ``per_rank`` the ranks share the experts evenly.

    ``counts`` has the rows of each rank for each expert: numbers, or a tensor of whole numbers.
    Raises ValueError for counts that do not fit together, TypeError for counts that are not whole
    numbers.
    """
    rows = tuple(tuple(index(each) for each in own) for own in counts)
    if not rows or not rows[0]:
        raise ValueError("show_routing needs the counts of at least one rank and one expert")
    for rank, own in enumerate(rows):
        if len(own) != len(rows[0]):
            raise ValueError(
                f"rank {rank} has counts for {len(own)} experts, and rank 0 for {len(rows[0])}: "
                "use bincount(minlength=...) with the number of all experts"
            )
        if min(own) < 0:
            raise ValueError(f"rank {rank} has a count of {min(own)}: counts are 0 or more")
    per_rank = len(rows[0]) // len(rows) if per_rank is None else per_rank
    if per_rank < 1 or per_rank * len(rows) != len(rows[0]):
        raise ValueError(
            f"{len(rows)} ranks with {per_rank} experts each do not have {len(rows[0])} experts"
        )
    return RoutingPicture(rows, per_rank)
