"""Lab 13: units that record the starts of their gathers, and a pass through the units."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer


@dataclass
class Unit:
    """A stand-in for a `FullyShard` unit that gathers nothing and records its events."""

    number: int
    log: list[str]
    begun: bool = False
    there: bool = False

    def begin(self) -> None:
        """Start the gather, unless it has already started."""
        if not self.begun:
            self.begun = True
            self.log.append(f"g{self.number}")

    def wait(self) -> None:
        """Wait for the gather, after which the parameters are in memory."""
        if not self.begun:
            raise RuntimeError(
                f"wait() of the unit {self.number} was called before the gather of the unit began"
            )
        self.there = True

    def after(self) -> None:
        """Free the parameters."""
        self.begun = self.there = False


@dataclass
class Sweep:
    """A forward pass and a backward pass through all units; each unit first calls the answer."""

    count: int
    # "g0": unit 0 begins to gather; "f0", "b0": unit 0 computes forward, backward
    order: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)  # computations without parameters
    under_way: list[str] = field(default_factory=list)  # computations while a unit is fetched
    most: int = 0  # largest number of units in memory at a time

    def run(self, answer: Answer) -> dict[str, object]:
        """Run both passes; return the events in order, and the units that are left in memory."""
        units = [Unit(number, self.order) for number in range(self.count)]
        left = []
        for step, name in ((1, "f"), (-1, "b")):
            for unit in units[::step]:
                answer(units, unit.number, step)
                self._computes(units, unit, f"{name}{unit.number}")
            left += [f"{unit.number} after {name}" for unit in units if unit.begun]
            for unit in units:
                unit.after()
        return {
            "order": " ".join(self.order),
            "computes without parameters": " ".join(self.missing) or "nothing",
            "computes while one is fetched": " ".join(self.under_way) or "nothing",
            "units in memory": self.most,
            "left in memory": " ".join(left) or "nothing",
        }

    def _computes(self, units: list[Unit], unit: Unit, name: str) -> None:
        self.order.append(name)
        self.most = max(self.most, sum(each.begun for each in units))
        if not unit.there:
            self.missing.append(name)
        if any(each.begun and not each.there for each in units):
            self.under_way.append(name)
        unit.after()


def swept(answer: Answer, count: int) -> dict[str, object]:
    """Return the observations of an answer in a model with `count` units."""
    return Sweep(count).run(answer)


def right(count: int) -> dict[str, object]:
    """Return the observations of a right answer in a model with `count` units."""
    forward, backward = range(count), range(count)[::-1]
    order: list[str] = []
    for numbers, name in ((forward, "f"), (backward, "b")):
        order += [f"g{numbers[0]}"]
        for number, after in zip(numbers, [*numbers[1:], None], strict=True):
            order += [f"g{after}"] * (after is not None) + [f"{name}{number}"]
    ahead = [f"f{number}" for number in forward[:-1]] + [f"b{number}" for number in backward[:-1]]
    return {
        "order": " ".join(order),
        "computes without parameters": "nothing",
        "computes while one is fetched": " ".join(ahead) or "nothing",
        "units in memory": min(2, count),
        "left in memory": "nothing",
    }
