"""`plan_map`: the hours and dollars of a training, by ranks and batch. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ddpkit.text import columns

StepSeconds: TypeAlias = Callable[[int, int], float]  # (ranks, batch per rank) -> seconds
WORLDS = tuple(2**k for k in range(11))
BATCHES = (8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class PlanCell:
    """A plan of a training: ranks, samples for each rank and step, hours and dollars."""

    ranks: int
    batch: int
    hours: float
    dollars: float

    @property
    def text(self) -> str:
        return f"{self.ranks:,} × {self.batch:,}"

    @property
    def said(self) -> str:
        return f"{_short(self.hours)} h and {_short(self.dollars)} dollars"


@dataclass(frozen=True)
class PlanMap:
    """All plans, by batch and ranks, and the deadline."""

    title: str
    rows: tuple[tuple[PlanCell, ...], ...]  # row: a batch; column: a number of ranks
    deadline: float  # hours

    @property
    def cells(self) -> list[PlanCell]:
        return [cell for row in self.rows for cell in row]

    @property
    def cheapest(self) -> PlanCell | None:
        """The cheapest plan that meets the deadline; None if no plan does.

        Of equally cheap plans, this is the fastest.
        """
        done = [cell for cell in self.cells if cell.hours <= self.deadline]
        return min(done, key=lambda cell: (cell.dollars, cell.hours), default=None)

    @property
    def fastest(self) -> PlanCell:
        return min(self.cells, key=lambda cell: (cell.hours, cell.dollars))

    @property
    def text(self) -> str:
        """The finding: the cheapest plan that meets the deadline, and the fastest plan."""
        best, fastest = self.cheapest, self.fastest
        hours = f"{self.deadline:g} h"
        if best is None:
            return f"No plan meets {hours}: the fastest, {fastest.text}, takes {fastest.said}."
        if best == fastest:
            return f"In {hours} the cheapest is the fastest, {best.text}: {best.said}."
        return (
            f"In {hours} the cheapest is {best.text} (ranks × batch): {best.said}. "
            f"The fastest, {fastest.text}, takes {fastest.said}."
        )

    @property
    def notice(self) -> str:
        """Return a sentence on the dollars that the deadline costs."""
        free = min(self.cells, key=lambda cell: (cell.dollars, cell.hours))
        best = self.cheapest
        if best is None or best == free:
            return f"Notice: without a deadline it would be {free.text}: {free.said}."
        return (
            f"Notice: the deadline costs {_short(best.dollars - free.dollars)} dollars; "
            f"without one it would be {free.text}: {free.said}."
        )

    def table(self) -> str:
        """Return all plans as text."""
        rows = [["ranks", "batch", "hours", "dollars"]]
        rows += [
            [f"{c.ranks:,}", f"{c.batch:,}", _short(c.hours), _short(c.dollars)] for c in self.cells
        ]
        return "\n".join([self.title, *columns(rows), self.notice])


def plan_map(
    step_seconds: StepSeconds,
    noise: float,
    least_steps: float,
    worlds: Sequence[int] = WORLDS,
    batches: Sequence[int] = BATCHES,
    dollars: float = 2.0,
    deadline: float = 24.0,
) -> PlanMap:
    """Return the plans of lab 09, each with its hours and dollars.

    A training takes steps · ``step_seconds(ranks, batch)``. The number of steps is
    least_steps · (1 + noise / samples), where samples counts a step's samples on all ranks
    (S. McCandlish and others, An Empirical Model of Large-Batch Training, 2018). ``dollars`` is the
    price of a rank for an hour, and ``deadline`` is in hours.
    Raises ValueError without ranks, batches or a deadline above 0.
    """
    if not worlds or not batches or min(*worlds, *batches) < 1 or not deadline > 0:
        raise ValueError(
            f"give ranks, batches and a deadline above 0, not {worlds}, {batches}, {deadline}"
        )
    rows = []
    for batch in sorted(batches):
        row = []
        for n in sorted(worlds):
            steps = least_steps * (1 + noise / (n * batch))
            hours = steps * step_seconds(n, batch) / 3600
            row.append(PlanCell(n, batch, hours, n * dollars * hours))
        rows.append(tuple(row))
    title = (
        f"{least_steps:,.6g} steps at least, a noise scale of {noise:,.6g} samples, "
        f"{dollars:g} dollars an hour and rank"
    )
    return PlanMap(title, tuple(rows), deadline)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"
