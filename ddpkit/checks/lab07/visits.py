"""Lab 07: the right outcome of each visit to a barrier, and the sorting of observed outcomes."""

from __future__ import annotations

from collections.abc import Sequence

from ddpkit.exercises.exercise import Observed


def read(timeout: float, seen: Observed) -> Observed:
    """Add the observation "in time": True if no rank has waited over 1.5 times the timeout.

    Some answers read the store only at intervals, so they notice the end of the timeout late.
    """
    longest = max(seconds for of_rank in seen["took"] for seconds in of_rank)
    return {**in_order(seen), "in time": longest <= 1.5 * timeout, "longest": longest}


def in_order(seen: Observed) -> Observed:
    """Sort the missing ranks of each outcome, because an answer may name the ranks in any order."""
    ends = [[sorted(end) if isinstance(end, list) else end for end in each]
            for each in seen["ends"]]  # fmt: skip
    return {**seen, "ends": ends}


def ends(
    plans: Sequence[Sequence[tuple[str, float]]], timeout: float
) -> list[list[list[int] | str]]:
    """Return the outcome of each visit: "passes", or the ranks that did not come in time."""
    came: dict[str, dict[int, float]] = {}
    found: list[list[list[int] | str]] = [[] for _ in plans]
    now = [0.0] * len(plans)
    for visit in range(max(map(len, plans))):
        for rank, plan in enumerate(plans):
            if visit < len(plan):
                now[rank] += plan[visit][1]
                came.setdefault(plan[visit][0], {})[rank] = now[rank]
        for rank, plan in enumerate(plans):
            if visit < len(plan):
                times = came[plan[visit][0]]
                until = now[rank] + timeout
                missing = [r for r in range(len(plans)) if times.get(r, until + 1) > until]
                found[rank].append(missing or "passes")
                now[rank] = until if missing else max(now[rank], *times.values())
    return found
