"""Lab 17: the hints for the placement of experts on ranks."""

from __future__ import annotations

from ddpkit.exercises.hint import Hint, Seen


def _mean(s: Seen) -> float:
    return float(sum(s.load) / s.ranks)


def _busy(s: Seen) -> bool:
    """True if the placement is complete, but a rank has too many rows."""
    return bool(s.places == "one rank is too busy")


def _fullest(s: Seen) -> int:
    return max(range(s.ranks), key=lambda rank: s.rows[rank])


def _most(s: Seen) -> str:
    rank = _fullest(s)
    return f"Rank {rank} has {s.rows[rank]:,.0f} rows, and the mean is {_mean(s):,.0f}"


def _is(s: Seen, way: str) -> bool:
    """True if a rank is too busy, and the ranks have the rows that the wrong method `way` gives."""
    wrong = _busy(s)
    pairs = zip(sorted(s.rows), s.way_rows[way], strict=True)
    return wrong and all(abs(one - other) < 1e-6 * sum(s.load) for one, other in pairs)


def _alone(s: Seen) -> bool:
    """True if one expert has all extra copies, but the right method copies several experts."""
    extra = [copies - 1 for copies in s.copies]
    several = sum(copies > 1 for copies in s.right_copies) > 1
    return several and _busy(s) and sum(extra) == max(extra) > 1


def _only(s: Seen) -> str:
    expert = max(range(len(s.load)), key=s.copies.__getitem__)
    others = [e for e in range(len(s.load)) if e != expert]
    next_one = max(others, key=s.load.__getitem__)
    return (
        f"Expert {expert} has {s.copies[expert]} copies, and now expert {next_one} has the most "
        "rows per copy: give the next copy to the expert with the most rows per copy."
    )


def _nearly_idle(s: Seen) -> str:
    twice = [expert for expert, copies in enumerate(s.copies) if copies > 1]
    idle = min(twice, key=lambda expert: s.load[expert] / s.copies[expert])
    return f"Expert {idle} has few rows and {s.copies[idle]} copies: busy experts need them more."


def _even_copies(s: Seen) -> bool:
    return bool(max(s.copies) - min(s.copies) <= 1 < max(s.copies))


# fmt: off
PLACE = (
    Hint("load changed", lambda s: s.wrong("load kept"),
         "Your code changed the list `load`. Work on a copy."),
    Hint("lists", lambda s: s.places in ("no lists of numbers", "not a list for each rank"),
         lambda s: f"Return a list with {s.ranks} lists, one for each rank, of numbers of experts "
         "as ints."),
    Hint("no such expert", lambda s: s.places == "no such expert",
         lambda s: f"The experts have the numbers 0 to {len(s.load) - 1}."),
    Hint("no home", lambda s: s.places == "an expert is nowhere",
         lambda s: f"Expert {s.experts[0]} is nowhere: the next batch may want this expert."),
    Hint("too many", lambda s: s.places == "too many in a rank's slots",
         lambda s: f"A rank has {max(s.sizes)} experts in {s.slots} slots."),
    Hint("no copies", lambda s: s.places == "a slot is empty" and max(s.copies) == 1,
         lambda s: f"{_most(s)}: {s.ranks * s.slots - len(s.load)} slots are free for copies."),
    Hint("empty slot", lambda s: s.places == "a slot is empty",
         "A slot is empty: a copy in each slot leaves less for the busiest rank."),
    Hint("one expert alone", _alone, _only),
    Hint("in turn", lambda s: s.places == "one rank is too busy" and _even_copies(s)
         and _is(s, "in turn"), _nearly_idle),
    Hint("light first", lambda s: _is(s, "light first"),
         lambda s: f"{_most(s)}. Give each copy, the heaviest first, to the rank that has the "
         "fewest rows so far, not the fewest copies."),
    Hint("full load", lambda s: _is(s, "full load"),
         lambda s: f"{_most(s)}. The copies were placed as if each copy had all rows of its "
         "expert: the copies share the rows."),
    Hint("in order", lambda s: _is(s, "in order"),
         lambda s: f"{_most(s)}: busy experts are side by side on rank {_fullest(s)}. Give each "
         "copy to the rank with the fewest rows."),
    Hint("too busy", lambda s: s.places == "one rank is too busy",
         lambda s: f"{_most(s)}: another placement has fewer rows on the busiest rank. Follow the "
         "method, first for the copies, then for their ranks."),
)
# fmt: on
