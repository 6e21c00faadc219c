"""Exact arithmetic on sets of time, each a list of half-open intervals ``[start, end)`` in ns.

All times are integers, because the parts of a step must add up to the step exactly, and floats
would not. Every function takes intervals in any order, overlapping or empty, and returns *normal*
intervals: sorted, disjoint, neither touching nor empty.
"""

from collections.abc import Iterable

Interval = tuple[int, int]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the time that lies in at least one of the intervals."""
    merged: list[Interval] = []
    ordered = sorted(intervals)
    first = last = ordered[0][0] if ordered else 0  # the growing interval
    for start, end in ordered:
        if start > last:
            if first < last:
                merged.append((first, last))
            first, last = start, end
        elif end > last:
            last = end
    if first < last:
        merged.append((first, last))
    return merged


def intersect(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Return the time that lies in both sets."""
    left, right = union(a), union(b)
    common: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            common.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return common


def subtract(a: Iterable[Interval], b: Iterable[Interval]) -> list[Interval]:
    """Return the time in ``a`` that is not in ``b``."""
    holes = union(b)
    rest: list[Interval] = []
    j = 0
    for start, end in union(a):
        while j < len(holes) and holes[j][1] <= start:
            j += 1
        at, k = start, j  # a hole may reach into the next interval of a, so j stays
        while k < len(holes) and holes[k][0] < end:
            if at < holes[k][0]:
                rest.append((at, holes[k][0]))
            at = holes[k][1]
            k += 1
        if at < end:
            rest.append((at, end))
        j = max(j, k - 1)
    return rest


def total(intervals: Iterable[Interval]) -> int:
    """Return the length of the set, in ns; time covered twice counts once."""
    return sum(end - start for start, end in union(intervals))
