"""The facts of a run without values: the lines of code that read values which were not computed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ddpkit.text import count
from ddpkit.trace import Scalar

AT_MOST = 4  # lines of code that the text names
Reads = Mapping[tuple[str, int], int]  # (file, line) -> number of reads


def without_values(reads: Mapping[int, Reads]) -> dict[str, Scalar]:
    """Return the fact "values" and, if lines have read values, the fact "reads".

    `reads` is by rank.
    """
    facts: dict[str, Scalar] = {"values": "not computed"}
    total = Counter[tuple[str, int]]()
    for each in reads.values():
        total.update(each)
    if total:
        several = len({file for file, _ in total}) > 1
        named = [
            f"{Path(file).name} " * several + f"line {line} ({count(number, 'read')})"
            for (file, line), number in total.most_common(AT_MOST)
        ]
        if len(total) > AT_MOST:
            named.append(f"{count(len(total) - AT_MOST, 'more line')}")
        facts["reads"] = ", ".join(named)
    return facts
