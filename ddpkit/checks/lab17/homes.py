"""Lab 17: copies of experts on ranks, and wrong methods to place the copies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import index
from typing import TYPE_CHECKING

from ddpkit.exercises.exercise import Observed

if TYPE_CHECKING:
    from ddpkit.exercises.guard import Answer

Load = Sequence[int]
Places = list[list[int]]
ENOUGH = 1.03  # an answer's busiest rank may have this multiple of the right number of rows
CLEAR = 1.05  # a wrong method exceeds this multiple in at least one case


def copied(load: Load, free: int) -> list[int]:
    """Return the number of copies of each expert.

    Each of the `free` slots in turn goes to the expert with the most rows per copy.
    """
    copies = [1] * len(load)
    for _ in range(free):
        copies[max(range(len(load)), key=lambda e: load[e] / copies[e])] += 1
    return copies


def _all_for_one(load: Load, free: int) -> list[int]:
    copies = [1] * len(load)
    copies[max(range(len(load)), key=lambda e: load[e])] += free
    return copies


def _in_turn(load: Load, free: int) -> list[int]:
    return [1 + free // len(load) + (e < free % len(load)) for e in range(len(load))]


def _in_order_of_rows(load: Load, copies: Sequence[int]) -> list[tuple[float, int]]:
    return sorted((load[e] / copies[e], e) for e in range(len(load)) for _ in range(copies[e]))


def _dealt(parts: Sequence[tuple[float, int]], ranks: int, slots: int) -> Places:
    """Place the copies on ranks in this order, and return the experts of each rank.

    Among the ranks with a free slot, the rank with the fewest rows gets the copy.
    """
    places: Places = [[] for _ in range(ranks)]
    total = [0.0] * ranks
    for part, expert in parts:
        free = [rank for rank in range(ranks) if len(places[rank]) < slots]
        rank = min(free, key=lambda each: total[each])
        total[rank] += part
        places[rank].append(expert)
    return places


Copying = Callable[[Load, int], list[int]]


def greedy(load: Load, ranks: int, slots: int, copying: Copying = copied) -> Places:
    """Return the placement by the exercise's method; `copying` gives the numbers of copies."""
    copies = copying(load, ranks * slots - len(load))
    return _dealt(_in_order_of_rows(load, copies)[::-1], ranks, slots)


def _light_first(load: Load, ranks: int, slots: int) -> Places:
    copies = copied(load, ranks * slots - len(load))
    return _dealt(_in_order_of_rows(load, copies), ranks, slots)


def _full_load(load: Load, ranks: int, slots: int) -> Places:
    copies = copied(load, ranks * slots - len(load))
    parts = [(float(load[expert]), expert) for _, expert in _in_order_of_rows(load, copies)]
    return _dealt(sorted(parts, reverse=True), ranks, slots)


def _in_order(load: Load, ranks: int, slots: int) -> Places:
    copies = copied(load, ranks * slots - len(load))
    every = [expert for expert, times in enumerate(copies) for _ in range(times)]
    return [every[slots * rank : slots * (rank + 1)] for rank in range(ranks)]


WAYS: Mapping[str, Callable[[Load, int, int], Places]] = {
    "all for one": partial(greedy, copying=_all_for_one),
    "in turn": partial(greedy, copying=_in_turn),
    "light first": _light_first,
    "full load": _full_load,
    "in order": _in_order,
}


def rows_of(places: Places, load: Load) -> list[float]:
    """Return the rows of each rank; the copies of an expert share its rows equally."""
    every = [expert for own in places for expert in own]
    return [sum(load[expert] / every.count(expert) for expert in own) for own in places]


Question = tuple[list[int], int, int]  # load, ranks, slots
SHAPES = ((8, 4, 3), (8, 4, 4), (16, 4, 5), (12, 3, 6), (6, 6, 2), (32, 8, 6))


def busiest(question: Question, way: Callable[[Load, int, int], Places] = greedy) -> float:
    """Return the rows of the busiest rank, if `way` places the experts."""
    load, ranks, slots = question
    return max(rows_of(way(load, ranks, slots), load))


def drawn(rng: random.Random) -> list[Question]:
    """Return loads with a few popular experts; each wrong method clearly fails for some load."""
    while True:
        questions = [
            ([1 + round(100 * rng.paretovariate(1.1)) for _ in range(experts)], ranks, slots)
            for experts, ranks, slots in SHAPES
        ]
        most = [busiest(each) for each in questions]
        off = [
            [busiest(each, way) > CLEAR * least for way in WAYS.values()]
            for each, least in zip(questions, most, strict=True)
        ]
        if all(any(column) for column in zip(*off, strict=True)) and all(off[0]):
            return questions


def hot(rng: random.Random) -> Question:
    """Return the load of the lesson: expert 0 has half of all rows."""
    each = rng.randrange(200, 900)
    return [7 * each, *(each + rng.randrange(3) for _ in range(7))], 4, 3


def read(question: Question, observed: Observed) -> Observed:
    """Return a verdict on the placement; if it is wrong, add the numbers that hints need."""
    load, ranks, slots = question
    rest = {"load kept": observed["load kept"]}
    try:
        places = [[index(each) for each in own] for own in observed["places"]]
    except TypeError:
        return {"places": "no lists of numbers", **rest}
    if len(places) != ranks:
        return {"places": "not a list for each rank", **rest}
    every = [expert for own in places for expert in own]
    if every and not 0 <= min(every) <= max(every) < len(load):
        return {"places": "no such expert", **rest}
    if homeless := [expert for expert in range(len(load)) if expert not in every]:
        return {"places": "an expert is nowhere", "experts": homeless, **rest}
    sizes = [len(own) for own in places]
    if max(sizes) > slots:
        return {"places": "too many in a rank's slots", "sizes": sizes, **rest}
    rows = rows_of(places, load)
    copies = [every.count(expert) for expert in range(len(load))]
    facts = {"rows": rows, "copies": copies, "sizes": sizes}
    if min(sizes) < slots:
        return {"places": "a slot is empty", **facts, **rest}
    if max(rows) > ENOUGH * busiest(question) + 1e-6:
        return {"places": "one rank is too busy", **facts, **rest}
    return {"places": "balanced", **rest}


def placed(answer: Answer, load: Load, ranks: int, slots: int) -> Observed:
    """Return an answer's placement, and "load kept": true if the load is unchanged."""
    given = list(load)
    found = answer(given, ranks, slots)
    return {"places": found, "load kept": given == list(load)}
