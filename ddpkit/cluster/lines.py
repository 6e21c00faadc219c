"""The lines of code from which the ranks call the same collective.

Collectives of different ranks are paired only by their number. If a rank makes an additional call,
or makes two calls in a different order, and the tensors have equal shapes, then the wrong values
are summed without an error. But correct programs may also call a collective from different lines,
in the branches of an if. So:

- Barriers have no values, and calls with a root are often paired from two lines on purpose: both
  are ignored.
- A *place* is a line and the number of a DDP model, because the same line reduces the gradients of
  all DDP models.
- After a failure, a difference between two ranks counts only if one of these ranks has also called
  from the other rank's place. The branches of `if rank == 0` never count, because each branch
  belongs only to some ranks. A call of the user's code that was paired with a call of torch's own
  code takes precedence over other differences, because under `Join` it is correct that calls of
  torch's own code are paired from two lines.
- After a run without an error, the texts of the lines are compared, and a difference counts only in
  one of two patterns. *Swapped*: in consecutive calls, two ranks call from lines with the same
  texts in different orders, and calls from one of these texts are never paired with each other.
  *Shifted*: in at least three consecutive calls, calls from one text are paired with calls from two
  other texts. A branch for ranks without data makes neither pattern: its call is paired with the
  other branch's call, and the next calls are paired as usual.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from ddpkit.protocol.call import Call, Where

Place: TypeAlias = tuple[Where, int]  # a line, and the number of a DDP model

UNWATCHED = ("barrier", "broadcast", "scatter", "gather", "reduce")
MOST = 1000  # number of kept differences of each group
AtLines: TypeAlias = Mapping[int, Call]  # rank -> call, for one collective


class Lines:
    """Stores those collectives of a run that ranks call from different lines."""

    def __init__(self) -> None:
        self._by: dict[tuple[str, Place], set[int]] = defaultdict(set)  # (group, place) -> ranks
        self._alike: set[tuple[str, Place]] = set()  # places from which all ranks called
        self._apart: dict[str, list[dict[int, Call]]] = defaultdict(list)  # group -> differences

    def came(self, rank: int, call: Call) -> None:
        """Record that a rank has made a call."""
        self._by[call.group, place(call)].add(rank)

    def met(self, calls: AtLines) -> None:
        """Record the calls of a collective that all ranks have made."""
        first = next(iter(calls.values()))
        places = set(map(place, calls.values()))
        if len(places) == 1:
            self._alike.add((first.group, place(first)))
        elif first.op not in UNWATCHED and all(file for (file, _), _ in places):
            kept = self._apart[first.group]
            if len(kept) < MOST:
                kept.append(dict(calls))

    def first_apart(self, group: str) -> dict[int, Call]:
        """Return the calls of a group's first collective with different lines; {} if none has.

        A line from which only some ranks ever call is a branch of an `if`, and does not count.
        """
        found = [calls for calls in self._apart[group] if self._is_by_place(calls)]
        mixed = (calls for calls in found if len({call.is_users for call in calls.values()}) > 1)
        return dict(sorted(next(mixed, next(iter(found), {})).items()))

    def _is_by_place(self, calls: AtLines) -> bool:
        """True if a rank has also called from the place of another rank's call."""
        return any(
            place(calls[one]) != (there := place(calls[other]))
            and one in self._by[calls[one].group, there]
            for one, other in itertools.permutations(calls, 2)
        )

    def by_luck(self, text: Callable[[Where], str]) -> dict[int, Call]:
        """Return the calls of the run's first collective that seems wrongly paired, or {}.

        text  a function that returns the text of a line
        """

        def said(at: Place) -> str:
            return f"{text(at[0])} {at[1]}"

        alike = {(group, said(at)) for group, at in self._alike}
        for group, kept in self._apart.items():
            for one, other in itertools.combinations(sorted({r for c in kept for r in c}), 2):
                for stretch in _stretches(kept, one, other, said):
                    pairs = [(said(place(c[one])), said(place(c[other]))) for c in stretch]
                    if _swapped(pairs, {t for g, t in alike if g == group}) or _shifted(pairs):
                        return dict(sorted(stretch[0].items()))
        return {}


def place(call: Call) -> Place:
    """Return the place of a call: its line and the number of its DDP model."""
    return call.where, call.model


def _stretches(
    kept: Sequence[AtLines], one: int, other: int, said: Callable[[Place], str]
) -> list[list[AtLines]]:
    """Return the stretches of consecutive collectives that two ranks call from different lines."""
    found: list[list[AtLines]] = []
    last = -1
    for calls in kept:
        if one not in calls or other not in calls:
            continue
        if said(place(calls[one])) == said(place(calls[other])):
            continue
        number = calls[one].seq
        if number != last + 1:
            found.append([])
        found[-1].append(calls)
        last = number
    return found


def _swapped(pairs: Sequence[tuple[str, str]], alike: set[str]) -> bool:
    """True if two ranks call from lines with the same texts, in different orders."""
    mine, theirs = (sorted(texts) for texts in zip(*pairs, strict=True))
    return len(pairs) > 1 and mine == theirs and not alike & set(mine)


def _shifted(pairs: Sequence[tuple[str, str]]) -> bool:
    """True if, in at least three calls, one text is paired with two other texts of lines."""
    meets: dict[str, set[str]] = defaultdict(set)
    for mine, theirs in pairs:
        meets[mine].add(theirs)
        meets[theirs].add(mine)
    both = {mine for mine, _ in pairs} & {theirs for _, theirs in pairs}
    return len(pairs) > 2 and any(len(meets[each]) > 1 for each in both)
